"""Batches of messages about sources have the same result as single messages."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from binding import Node
from hypothesis import given
from hypothesis import strategies as st

from roamcast.bind.lcesm.messages import (
    Bound,
    Effect,
    EntityMoved,
    PositionForgotten,
    SourceChanged,
    SourceDemanded,
    SourceMessage,
    SourceRegistered,
    SourceRemoved,
    Unbound,
)
from roamcast.errors import ConflictError, InputError, NotFoundError
from roamcast.model import Position

TEXTS = (
    "Select Where &location in nearest",
    "Select Where &context = noise and &location in nearest",
    "Select Where &location in nearest(3)",
    "Select nearof() Where not &context = light and &location in rang:loc(3)",
    "Select remoteof() Where &context in (noise, light) and &location in rang:loc(4)",
)
ANY = "Select anyof() Where &context = noise and &location in rang:loc(3)"

coordinates = st.integers(0, 6)
contexts = st.sampled_from([{}, {"context": "noise"}, {"context": "light"}])
places = st.tuples(coordinates, coordinates)
sources = st.dictionaries(st.integers(0, 40), st.tuples(contexts, st.none() | places), min_size=5)
actions = st.dictionaries(
    st.integers(0, 60),
    st.tuples(st.sampled_from(["remove", "forget", "stay"]), st.none() | contexts, st.none() | places),
)


def position(id: str, at: tuple[int, int] | None, time: int) -> Position | None:
    return None if at is None else Position(id, *at, time)


def node_with(
    known: dict[int, tuple[dict[str, str], tuple[int, int] | None]], subscribers: list[tuple[int, int]]
) -> Node:
    node = Node()
    for number, (attributes, at) in known.items():
        node.tell(SourceRegistered(f"s{number:02}", attributes, position(f"s{number:02}", at, 10)))
    for number, at in enumerate(subscribers):
        node.subscriber(f"ann-{number}", at)
        for kind, text in enumerate((*TEXTS, ANY)):
            node.subscribe(f"p{number}-{kind}", f"ann-{number}", text)
    return node


def bindings(effects: Iterable[Effect]) -> list[tuple[str, str]]:
    return [(effect.subscription, effect.source) for effect in effects if isinstance(effect, Bound | Unbound)]


@given(known=sources, subscribers=st.lists(places, min_size=1, max_size=6), batch=actions)
def test_a_batch_has_the_same_result_as_single_messages(
    known: dict[int, tuple[dict[str, str], tuple[int, int] | None]],
    subscribers: list[tuple[int, int]],
    batch: dict[int, tuple[str, dict[str, str] | None, tuple[int, int] | None]],
) -> None:
    """Except for the choice of anyof(); with no more changes of bindings, and none that is undone."""
    messages: list[SourceMessage] = []
    for number, (action, attributes, at) in batch.items():
        id = f"s{number:02}"
        if number not in known:
            messages.append(SourceRegistered(id, attributes or {}, position(id, at, 20)))
        elif action == "remove":
            messages.append(SourceRemoved(id))
        else:
            messages += [PositionForgotten(id)] if action == "forget" else []
            messages += [SourceChanged(id, attributes)] if attributes is not None else []
            messages += [EntityMoved(id, *at, 5 if action == "forget" else 20)] if at is not None else []
    at_once, in_turn = node_with(known, subscribers), node_with(known, subscribers)
    effects = at_once.binder.handle_sources(messages, 99)
    others = [effect for message in messages for effect in in_turn.tell(message)]
    changed = bindings(effects)
    assert len(changed) == len(set(changed))
    assert len(changed) <= len(bindings(others))
    for one, other in zip(at_once.binder.statuses(), in_turn.binder.statuses(), strict=True):
        assert bool(one.sources) == bool(other.sources)
        if "anyof" not in one.text:
            assert (one.id, one.sources, one.why) == (other.id, other.sources, other.why)
    for number in known.keys() - {number for number, (action, *_) in batch.items() if action == "remove"}:
        one, other = (node.binder.entity(f"s{number:02}") for node in (at_once, in_turn))
        assert (one.attributes, one.position) == (other.attributes, other.position)


def test_each_subscription_changes_once_in_a_batch() -> None:
    """When many sources are added or removed, to the best in the end."""
    node = Node()
    node.source("last", (1000, 0))
    node.subscriber("ann", (0, 0))
    node.subscribe("p", "ann", "Select Where &location in nearest")
    new = [SourceRegistered(f"s{x:03}", {}, Position(f"s{x:03}", 300 - x, 0, 1)) for x in range(300)]
    (bound,) = (effect for effect in node.binder.handle_sources(new, 9) if isinstance(effect, Bound))
    assert bound.source == "s299"
    effects = node.binder.handle_sources([SourceRemoved(message.id) for message in new], 10)
    assert [effect.source for effect in effects if isinstance(effect, Bound)] == ["last"]
    assert [effect.source for effect in effects if isinstance(effect, SourceDemanded)] == ["last"]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (SourceRemoved("nobody"), NotFoundError),
        (SourceChanged("ann", {}), NotFoundError),
        (PositionForgotten("nobody"), NotFoundError),
        (EntityMoved("new", 0, 0, 1), InputError),
        (EntityMoved("gone", 0, 0, 1), InputError),
        (SourceRemoved("new"), InputError),
        (SourceRegistered("new", {}), InputError),
        (SourceRegistered("other", {}), ConflictError),
        (SourceRegistered("ann", {}), ConflictError),
        (SourceRegistered("far", {}, Position("far", float("inf"), 0, 1)), InputError),
        (EntityMoved("there", float("inf"), 0, 1), InputError),
    ],
    ids=repr,
)
def test_a_batch_is_applied_completely_or_not_at_all(wrong: SourceMessage, error: type[Exception]) -> None:
    """One invalid message is enough."""
    node = Node()
    node.subscriber("ann", (0, 0))
    for id, x in (("gone", 1), ("there", 2), ("other", 3)):
        node.source(id, (x, 0))
    node.subscribe("p", "ann", "Select Where &location in nearest")
    binder = node.binder
    before = binder.statuses(), binder.agents(), binder.entity("there"), binder.bound_sources
    good = [SourceRemoved("gone"), SourceRegistered("new", {}, Position("new", 0, 0, 1)), EntityMoved("there", 0, 0, 9)]
    with pytest.raises(error):
        node.binder.handle_sources([*good, wrong], 9)
    assert (binder.statuses(), binder.agents(), binder.entity("there"), binder.bound_sources) == before
    with pytest.raises(NotFoundError):
        node.binder.entity("new")


def test_after_an_erased_position_an_older_one_counts() -> None:
    """In between the source is not bound."""
    node = Node()
    node.subscriber("ann", (0, 0))
    node.tell(SourceRegistered("lamp", {}, Position("lamp", 1, 0, 9)))
    node.subscribe("p", "ann", "Select Where &location in nearest")
    node.tell(PositionForgotten("lamp"))
    assert node.sources("p") == ()
    assert node.binder.status("p").why == "no source has a known position"
    node.tell(EntityMoved("lamp", 5, 0, 2))
    assert node.sources("p") == ("lamp",)
    assert node.binder.entity("lamp").position == Position("lamp", 5, 0, 2)
