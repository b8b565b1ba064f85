"""A binder holds a million subscriptions in less than a kilobyte each, including the subscriber."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

from binding import query

from roamcast.bind.lcesm.binder import Binder
from roamcast.bind.lcesm.messages import (
    Bound,
    EntityRegistered,
    SourceRegistered,
    StateChanged,
    Subscribed,
    SubscriberRegistered,
    SubscriptionState,
)
from roamcast.model import Position
from roamcast.space import PLANAR

COUNT = 20_000
NEAREST = query("Select Where &location in nearest")


def messages(count: int) -> Iterator[EntityRegistered | Subscribed]:
    yield SourceRegistered("lamp", {}, Position("lamp", 0, 0, 0))
    for number in range(count):
        id = f"subscriber-{number}"
        yield SubscriberRegistered(id, {}, Position(id, number, number, 0))
    for number in range(count):
        yield Subscribed(f"{number:032x}", f"subscriber-{number}", NEAREST)


def restored(count: int) -> Binder:
    """A binder whose subscriptions are active, each since a different time."""
    binder = Binder(PLANAR)
    bindings = (Bound(f"{number:032x}", "lamp", 10**9 + number) for number in range(count))
    states = (StateChanged(f"{number:032x}", SubscriptionState.ACTIVE, None, 10**9 + number) for number in range(count))
    assert binder.restore(messages(count), bindings, states, 10**9 + count) == []
    return binder


def test_the_memory_of_a_subscription() -> None:
    """All allocated memory, with one subscriber for each subscription."""
    restored(10)  # allocates what is needed once
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        binder = restored(COUNT)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / COUNT < 1000
    assert binder.search_bytes / COUNT < 200
