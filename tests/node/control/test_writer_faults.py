"""The control when a disk refuses: nothing half done, nothing lost, nothing done in vain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from control_writers import NEAREST, NOISE, SECONDS, World, full, world
from nodes import until

from roamcast.errors import StorageError
from roamcast.journal.records import UNBINDING, Record
from roamcast.model import Position
from roamcast.store.registry.values import Change, Entity

TOLD = [("initial", "b", "q")]
MOVED = [("unbinding", "b", "q"), ("binding", "a", "q")]
BACK = [("unbinding", "a", "q"), ("binding", "b", "q")]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    """Ann hears the nearer of two sources, which is b."""
    with world(tmp_path) as node:
        node.source("a", (0, 0))
        node.source("b", (100, 0))
        node.subscriber("ann", (99, 0))
        node.subscribe("q", "ann", NEAREST)
        yield node


def where(node: World, id: str) -> float:
    position = node.control.entities.get(id).position
    assert position == node.registry.entity(id).position
    assert position is not None
    return position.x


def test_a_registry_that_refuses_changes_nothing(node: World) -> None:
    """The requests of the group fail; what is in memory is made anew, and the next request finds all as it was."""
    node.registry.refusals = 1
    with pytest.raises(StorageError, match="full"):
        node.move("ann", 0)
    assert (node.sources("q"), where(node, "ann")) == (("b",), 99)
    assert node.told() == TOLD
    node.move("ann", 0)
    assert node.told() == TOLD + MOVED


def test_a_registry_that_refuses_leaves_no_trace_of_anything(node: World) -> None:
    """Registration, attributes, subscription, unsubscription, leaving: each fails, and can be asked for again."""
    asks = {
        "register": lambda: node.control.register(Entity("c", "source", "h", {}, Position("c", 98, 0, 1))),
        "change": lambda: node.control.set_attributes("a", {"context": "noise"}),
        "subscribe": lambda: node.asking("p", "ann", NOISE),
        "unsubscribe": lambda: node.control.unsubscribe("q", "ann"),
        "leave": lambda: node.control.remove("a"),
    }
    for ask in asks.values():
        told = node.told()
        node.registry.refusals = 1
        with pytest.raises(StorageError):
            ask().result(SECONDS)
        assert node.told() == told
        ask().result(SECONDS)
    node.restart()
    assert {entity.id for entity in node.control.entities} == {"ann", "b", "c"}
    assert [s.id for s in node.registry.subscriptions()] == ["p"]


def counting(node: World) -> Counter[str]:
    """How often everybody is read from the registry, as when memory is made anew."""
    counts: Counter[str] = Counter()
    entities = node.registry.entities

    def counted() -> list[Entity]:
        counts["anew"] += 1
        return entities()

    node.registry.entities = counted  # type: ignore[method-assign]
    return counts


def test_a_full_registry_costs_little(node: World) -> None:
    """While it takes nothing, requests are refused without making memory anew; questions need that once."""
    counts = counting(node)
    node.registry.refusals = 1_000_000
    for _ in range(50):
        with pytest.raises(StorageError, match="full"):
            node.move("ann", 0)
    assert counts["anew"] == 0
    for _ in range(50):
        with pytest.raises(StorageError):
            node.move("ann", 0)
        assert node.sources("q") == ("b",)
    assert counts["anew"] == 1
    assert "full" in until(lambda: node.control.problem, "the trouble to be told")
    node.registry.refusals = 0
    node.move("ann", 0)
    assert node.told() == TOLD + MOVED
    until(lambda: node.control.problem is None, "the control to be well")


def test_a_registry_that_takes_only_little_costs_little(node: World) -> None:
    """When what is tried fits and what is asked for does not, memory is made anew less and less often."""
    counts = counting(node)
    apply = node.registry.apply

    def small(changes: Sequence[Change], **given: Any) -> int:
        if changes:
            raise full()
        return apply(changes, **given)

    node.registry.apply = small  # type: ignore[method-assign]
    for _ in range(100):
        with pytest.raises(StorageError, match="full"):
            node.move("ann", 0)
    assert 1 <= counts["anew"] <= 10
    node.registry.apply = apply  # type: ignore[method-assign]
    until(lambda: moved(node, 0), "the registry to be tried again")
    assert node.told() == TOLD + MOVED


def moved(node: World, x: float) -> bool:
    """Whether ann could be moved."""
    try:
        node.move("ann", x)
    except StorageError:
        return False
    return True


def test_a_journal_that_refuses_is_told_later(node: World) -> None:
    """The request fails, but has happened; its records are journalled before the next answer, in order."""
    node.journal.refusals = 1
    with pytest.raises(StorageError):
        node.move("ann", 0)
    assert node.sources("q") == ("a",)
    node.move("ann", 99)
    assert node.told() == TOLD + MOVED + BACK
    until(lambda: not node.registry.control_outbox(), "the records to be forgotten")


def test_nothing_is_done_that_is_not_journalled_but_once(node: World) -> None:
    """While the journal refuses, requests are refused before anything is done; questions are answered."""
    node.journal.refusals = 1_000_000
    for x in (0, 99, 0, 99):
        with pytest.raises(StorageError):
            node.move("ann", x)
    for ask in (lambda: node.source("c", (1, 1)), lambda: node.subscribe("r", "ann", NOISE)):
        with pytest.raises(StorageError):
            ask()
    assert (where(node, "ann"), node.sources("q")) == (0, ("a",))
    assert len(node.registry.control_outbox()) == len(MOVED)
    assert [s.id for s in node.registry.subscriptions()] == ["q"]
    node.journal.refusals = 0
    node.source("c", (1, 1))
    node.move("ann", 99)
    assert node.told() == TOLD + MOVED + BACK


def test_what_waits_is_journalled_once(node: World) -> None:
    """In portions: one that was journalled is not journalled again though the next one fails."""
    append, room = node.journal.append, [0]

    def counted(records: Sequence[Record]) -> Future[int]:
        room[0] -= 1
        node.journal.refusals = int(room[0] < 0)
        return append(records)

    node.journal.append = counted  # type: ignore[method-assign]
    with pytest.raises(StorageError):
        node.move("ann", 0)
    more = [Record(UNBINDING, "x", id=f"s{number}", time=1) for number in range(25_000)]
    node.registry.apply(more, at=1)
    for portions in (1, 100):
        room[0] = portions
        until(lambda: room[0] != portions, "a portion to be journalled")  # noqa: B023
    node.move("ann", 0)
    assert node.told() == TOLD + MOVED + [("unbinding", "x", record.id) for record in more]


def test_what_was_not_journalled_is_at_the_next_start(node: World) -> None:
    """Once."""
    node.journal.refusals = 1_000_000
    with pytest.raises(StorageError):
        node.move("ann", 0)
    node.restart()
    assert node.told() == TOLD + MOVED
    node.restart()
    assert node.told() == TOLD + MOVED


def test_a_token_is_told_though_the_journal_refuses(node: World) -> None:
    """A registration that is stored is acknowledged: its id could not be had again."""
    node.journal.refusals = 1
    node.source("c", (99, 0))
    assert node.sources("q") == ("c",)
    node.move("ann", 99)
    assert node.told() == [*TOLD, ("unbinding", "b", "q"), ("binding", "c", "q")]
