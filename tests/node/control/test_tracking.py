"""What a node journals for the archive."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from binding import places
from control_writers import FIRE, ON_STAGE, SECONDS, World, walk, world

from roamcast.errors import ConflictError, StorageError
from roamcast.journal.records import TRACKING, Record
from roamcast.journal.tracking import EntityBody, HistoryBody, SnapshotBody, StateBody
from roamcast.model import EPOCH, Position
from roamcast.node.callers import Caller
from roamcast.node.control.control_outbox import _without_open_history
from roamcast.places import Places
from roamcast.space import PLANAR
from roamcast.store.registry.values import Entity


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path / "journal", places(stage=(0, 0, 10, 10)), tracked=tmp_path / "tracked") as node:
        yield node


def tracking(node: World) -> list[dict[str, Any]]:
    node.control.query(lambda _: None).result(SECONDS)  # snapshots follow the answer to a request
    return [row for row in node.journalled() if row["kind"] in TRACKING]


def kinds(node: World) -> list[tuple[str, str | None]]:
    return [(row["kind"], row["entity"]) for row in tracking(node)]


def test_a_node_that_does_not_track_journals_nothing_more(tmp_path: Path) -> None:
    with world(tmp_path) as node:
        walk(node)
        assert tracking(node) == []


def test_what_the_binder_is_told_comes_before_what_follows_from_it(node: World) -> None:
    walk(node)
    node.control.set_attributes("a", {"kind": "camera"}).result(SECONDS)
    rows = [(row["kind"], row["entity"]) for row in node.journalled()]
    assert rows == [
        ("snapshot", None), ("snapshot_end", None), ("registered", "a"), ("registered", "b"), ("registered", "ann"),
        ("binding", "a"), ("state", "ann"), ("track", "ann"), ("unbinding", "a"), ("binding", "b"), ("changed", "a"),
    ]  # fmt: skip
    registered, track, changed = (tracking(node)[at] for at in (2, 6, 7))
    assert EntityBody.from_json(registered["body"]) == EntityBody("source", {})
    position = node.registry.entity("ann").position
    assert position is not None
    assert (track["x"], track["y"], track["time"]) == (99, 0, EPOCH + timedelta(microseconds=position.time))
    assert EntityBody.from_json(changed["body"]) == EntityBody("source", {"kind": "camera"})


def test_moves_of_sources_and_only_accepted_ones_are_journalled(node: World) -> None:
    node.source("a", (0, 0))
    assert node.control.move([Position("a", 5, 0, 0), Position("a", 6, 0, 2_000_000)]).result(SECONDS) == 1
    assert [row["x"] for row in tracking(node) if row["kind"] == "track"] == [6]


def test_records_of_one_call_of_the_binder_have_one_time(node: World) -> None:
    for id in "ab":
        node.source(id, (0, 0))
    node.control.move([Position(id, 5, 0, 9_000_000) for id in "ab"]).result(SECONDS)
    first, second, *moves = [row["seq"] for row in tracking(node) if row["kind"] in ("registered", "track")]
    assert first < second < moves[0] == moves[1]


def test_states_are_journalled_with_their_reasons(node: World) -> None:
    node.subscriber("ann", (50, 50))
    node.subscribe("q", "ann", ON_STAGE)
    node.move("ann", 5, 5)
    states = [StateBody.from_json(row["body"]) for row in tracking(node) if row["kind"] == "state"]
    assert [(state.state, state.why is None) for state in states] == [("stop", False), ("active", True)]


def test_erased_positions_and_removed_entities_are_journalled(node: World) -> None:
    walk(node)
    node.control.erase_position("ann").result(SECONDS)
    node.control.erase_position("a").result(SECONDS)
    node.control.remove("ann").result(SECONDS)
    node.control.remove("b").result(SECONDS)
    last = [row for row in kinds(node) if row[0] in ("forgotten", "left", "snapshot")]
    assert last == [("snapshot", None), ("forgotten", "ann"), ("forgotten", "a"), ("left", "ann"), ("left", "b")]


def test_a_start_journals_everything_that_is_known(node: World) -> None:
    walk(node)
    node.restart()
    *_, snapshot, a, ann, b, state, end = tracking(node)
    assert [row["kind"] for row in (snapshot, a, ann, b, state, end)] == [
        "snapshot", "registered", "registered", "registered", "state", "snapshot_end"
    ]  # fmt: skip
    assert len({row["seq"] for row in (snapshot, a, ann, b, state, end)}) == 1
    body = SnapshotBody.from_json(snapshot["body"])
    assert (body.space, body.entities) == ("planar", 3)
    assert Places.from_geojson(body.places or "", PLANAR).bounds("stage") == node.places.bounds("stage")
    assert (ann["entity"], ann["x"], StateBody.from_json(state["body"]).state) == ("ann", 99, "active")


def test_a_new_day_begins_with_a_snapshot(node: World) -> None:
    day = 24 * 3600 * 1_000_000
    node.source("a", (0, 0))
    node.advance(day)
    node.move("a", 1)
    assert [kind for kind, _ in kinds(node)][-4:] == ["track", "snapshot", "registered", "snapshot_end"]
    node.move("a", 2)
    assert [kind for kind, _ in kinds(node)][-1] == "track"


def test_a_failed_registry_is_followed_by_a_snapshot(node: World) -> None:
    """The binder is rebuilt, and may then know what no record says."""
    walk(node)
    node.registry.refusals = 1
    with pytest.raises(StorageError):
        node.move("ann", 1)
    node.move("ann", 2)
    assert [kind for kind, _ in kinds(node)].count("snapshot") == 2


def test_a_start_without_tracking_says_so_once(node: World) -> None:
    node.source("a", (0, 0))
    node.tracks = False
    node.restart()
    node.move("a", 1)
    node.restart()
    assert [kind for kind, _ in kinds(node)] == ["snapshot", "snapshot_end", "registered", "untracked"]
    node.tracks = True
    node.restart()
    assert [kind for kind, _ in kinds(node)][4:] == ["snapshot", "registered", "snapshot_end"]


def test_sources_of_gateways_are_journalled(node: World) -> None:
    node.register("g", "gateway")
    gateway = Caller("g", "gateway")
    node.gateways.register_sources(gateway, [Entity("a", "source", None, gateway="g")]).result(SECONDS)
    node.gateways.remove_sources(gateway, ["a"]).result(SECONDS)
    assert kinds(node)[2:] == [("registered", "a"), ("left", "a")]


def test_what_asks_for_the_past_comes_before_the_subscription(node: World) -> None:
    node.subscriber("ann", (0, 0))
    query = node.queries.accept(FIRE)._replace(since=3_600_000_000)
    assert node.control.subscribe("q", "ann", query).result(SECONDS)
    assert not node.control.subscribe("q", "ann", query).result(SECONDS)  # it is asked for once
    *_, history, subscription = node.journalled()
    assert (history["kind"], subscription["kind"]) == ("history", "subscription")
    assert (history["id"], HistoryBody.from_json(history["body"])) == ("q", HistoryBody(query.text, 3_600_000_000))


def test_without_an_archive_there_is_no_past(tmp_path: Path) -> None:
    with world(tmp_path) as node:
        node.subscriber("ann", (0, 0))
        query = node.queries.accept(FIRE)._replace(since=1_000_000)
        with pytest.raises(ConflictError, match="no archive"):
            node.control.subscribe("q", "ann", query).result(SECONDS)
        assert node.registry.subscriptions() == []
        (outcome,) = node.control.subscribe_many("ann", [("q", query)]).result(SECONDS)
        assert isinstance(outcome, ConflictError)


def test_a_request_for_the_past_is_journalled_together_with_its_subscription() -> None:
    """Though the records that wait are journalled in portions."""
    kinds = ["track", "subscription", "history", "state"]
    waiting = list(enumerate(map(Record, kinds), 1))
    assert [ticket for ticket, _ in _without_open_history(waiting)] == [1, 2]
    assert _without_open_history(waiting[:2]) == waiting[:2]
