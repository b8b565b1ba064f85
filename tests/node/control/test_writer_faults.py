"""The control writer when a disk fails: nothing is half done, lost, or done in vain."""

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

BOUND = [("initial", "b", "q")]
MOVED = [("unbinding", "b", "q"), ("binding", "a", "q")]
BACK = [("unbinding", "a", "q"), ("binding", "b", "q")]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    """Ann is bound to b, the nearer of two sources."""
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


def test_a_registry_failure_changes_nothing(node: World) -> None:
    """The group fails, the binder is rebuilt, and the next request finds the previous state."""
    node.registry.refusals = 1
    with pytest.raises(StorageError, match="full"):
        node.move("ann", 0)
    assert (node.sources("q"), where(node, "ann")) == (("b",), 99)
    assert node.control_records() == BOUND
    node.move("ann", 0)
    assert node.control_records() == BOUND + MOVED


def test_every_kind_of_request_survives_a_registry_failure(node: World) -> None:
    """Each fails without a trace, and succeeds when repeated."""
    requests = {
        "register": lambda: node.control.register(Entity("c", "source", "h", {}, Position("c", 98, 0, 1))),
        "change": lambda: node.control.set_attributes("a", {"context": "noise"}),
        "subscribe": lambda: node.submit_subscription("p", "ann", NOISE),
        "unsubscribe": lambda: node.control.unsubscribe("q", "ann"),
        "leave": lambda: node.control.remove("a"),
    }
    for request in requests.values():
        before = node.control_records()
        node.registry.refusals = 1
        with pytest.raises(StorageError):
            request().result(SECONDS)
        assert node.control_records() == before
        request().result(SECONDS)
    node.restart()
    assert {entity.id for entity in node.control.entities} == {"ann", "b", "c"}
    assert [s.id for s in node.registry.subscriptions()] == ["p"]


def count_rebuilds(node: World) -> Counter[str]:
    """Counts how often all entities are read from the registry, as in a rebuild."""
    counts: Counter[str] = Counter()
    entities = node.registry.entities

    def counted() -> list[Entity]:
        counts["rebuilds"] += 1
        return entities()

    node.registry.entities = counted  # type: ignore[method-assign]
    return counts


def test_a_full_registry_is_not_rebuilt_from_repeatedly(node: World) -> None:
    """Requests are refused without a rebuild; reads need one."""
    counts = count_rebuilds(node)
    node.registry.refusals = 1_000_000
    for _ in range(50):
        with pytest.raises(StorageError, match="full"):
            node.move("ann", 0)
    assert counts["rebuilds"] == 0
    for _ in range(50):
        with pytest.raises(StorageError):
            node.move("ann", 0)
        assert node.sources("q") == ("b",)
    assert counts["rebuilds"] == 1
    assert "full" in until(lambda: node.control.failures.current, "the failure to be reported").detail
    node.registry.refusals = 0
    node.move("ann", 0)
    assert node.control_records() == BOUND + MOVED
    until(lambda: node.control.failures.current is None, "the failure to be over")


def test_rebuilds_back_off(node: World) -> None:
    """If empty transactions succeed and others fail, rebuilds become rarer."""
    counts = count_rebuilds(node)
    apply = node.registry.apply

    def small(changes: Sequence[Change], **given: Any) -> int:
        if changes:
            raise full()
        return apply(changes, **given)

    node.registry.apply = small  # type: ignore[method-assign]
    for _ in range(100):
        with pytest.raises(StorageError, match="full"):
            node.move("ann", 0)
    assert 1 <= counts["rebuilds"] <= 10
    node.registry.apply = apply  # type: ignore[method-assign]
    until(lambda: try_to_move(node, 0), "the registry to be tried again")
    assert node.control_records() == BOUND + MOVED


def try_to_move(node: World, x: float) -> bool:
    """Whether ann could be moved."""
    try:
        node.move("ann", x)
    except StorageError:
        return False
    return True


def test_records_are_journalled_after_a_journal_failure(node: World) -> None:
    """The request fails but is applied; its records come before the next response, in order."""
    node.journal.refusals = 1
    with pytest.raises(StorageError):
        node.move("ann", 0)
    assert node.sources("q") == ("a",)
    node.move("ann", 99)
    assert node.control_records() == BOUND + MOVED + BACK
    until(lambda: not node.registry.control_outbox(), "the records to be forgotten")


def test_while_the_journal_fails_requests_are_refused_before_they_change_anything(node: World) -> None:
    """Reads are answered."""
    node.journal.refusals = 1_000_000
    for x in (0, 99, 0, 99):
        with pytest.raises(StorageError):
            node.move("ann", x)
    for request in (lambda: node.source("c", (1, 1)), lambda: node.subscribe("r", "ann", NOISE)):
        with pytest.raises(StorageError):
            request()
    assert (where(node, "ann"), node.sources("q")) == (0, ("a",))
    assert len(node.registry.control_outbox()) == len(MOVED)
    assert [s.id for s in node.registry.subscriptions()] == ["q"]
    node.journal.refusals = 0
    node.source("c", (1, 1))
    node.move("ann", 99)
    assert node.control_records() == BOUND + MOVED + BACK


def test_waiting_records_are_journalled_once(node: World) -> None:
    """In chunks: a journalled chunk is not repeated although the next one fails."""
    append, room = node.journal.append, [0]

    def counted(records: Sequence[Record], *, urgent: bool = False) -> Future[int]:
        room[0] -= 1
        node.journal.refusals = int(room[0] < 0)
        return append(records, urgent=urgent)

    node.journal.append = counted  # type: ignore[method-assign]
    with pytest.raises(StorageError):
        node.move("ann", 0)
    more = [Record(UNBINDING, "x", id=f"s{number}", time=1) for number in range(25_000)]
    node.registry.apply(more, at=1)
    for portions in (1, 100):
        room[0] = portions
        until(lambda: room[0] != portions, "a portion to be journalled")  # noqa: B023
    node.move("ann", 0)
    assert node.control_records() == BOUND + MOVED + [("unbinding", "x", record.id) for record in more]


def test_the_next_start_journals_what_waits(node: World) -> None:
    """Once."""
    node.journal.refusals = 1_000_000
    with pytest.raises(StorageError):
        node.move("ann", 0)
    node.restart()
    assert node.control_records() == BOUND + MOVED
    node.restart()
    assert node.control_records() == BOUND + MOVED


def test_registration_succeeds_although_the_journal_fails(node: World) -> None:
    """It is stored, and its id could not be registered again."""
    node.journal.refusals = 1
    node.source("c", (99, 0))
    assert node.sources("q") == ("c",)
    node.move("ann", 99)
    assert node.control_records() == [*BOUND, ("unbinding", "b", "q"), ("binding", "c", "q")]
