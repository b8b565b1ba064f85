"""A binder may hold a million subscriptions: each takes less than a kilobyte, its subscriber included."""

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
)
from roamcast.bind.lcesm.states import SubscriptionState
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
    """As it was, each subscription active since a time of its own."""
    binder = Binder(PLANAR)
    bindings = (Bound(f"{number:032x}", "lamp", 10**9 + number) for number in range(count))
    states = (StateChanged(f"{number:032x}", SubscriptionState.ACTIVE, None, 10**9 + number) for number in range(count))
    assert binder.restore(messages(count), bindings, states, 10**9 + count) == []
    return binder


def test_memory_of_a_subscription() -> None:
    """All that is allocated and kept, for one subscriber a subscription."""
    restored(10)  # what is made once is not counted
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        binder = restored(COUNT)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / COUNT < 1000
    assert binder.hot_bytes / COUNT < 200
