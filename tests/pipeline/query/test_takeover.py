"""Takeover: what a new pipeline gets from an earlier state or from the registries."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from controls import condition
from nodes import in_process_node
from worlds import event, journal

from roamcast.bind.lcesm.messages import Bound, Unbound
from roamcast.errors import CorruptionError, RoamcastError, StorageError
from roamcast.journal.bodies import SubscriptionBody, encode_condition
from roamcast.model import Box, Lifecycle, Subscription
from roamcast.pipeline.query.takeover import take_over_registries, take_over_state
from roamcast.pipeline.schemas import BINDINGS, LAST_SENT, RECEIVERS, SOURCES, SUBSCRIPTIONS, TABLES, StateTable
from roamcast.pipeline.state.manifests import Manifest, StateFolder
from roamcast.store.location import record_location
from roamcast.store.registry.sql import open_registry
from roamcast.store.registry.values import Change, SubscriptionAdded

BODY = SubscriptionBody(Box(0, 0, 1, 1), ("fire",)).to_json()
FOLLOWS = "Select Where &context = light and &location in nearest\nOn @ > 5\nEvery 10 s"


def register(data: Path, *changes: Change, node: str = "local") -> None:
    """Create a node's registry with these changes."""
    (data / "nodes" / node).mkdir(parents=True)
    registry = open_registry(data / "nodes" / node, node)
    registry.apply(changes, at=1)
    registry.close()


def match(id: str, body: str = BODY, **more: Any) -> SubscriptionAdded:
    return SubscriptionAdded(Subscription(id, "ann", f"text of {id}", body, **more))


def follow(id: str) -> SubscriptionAdded:
    return SubscriptionAdded(Subscription(id, "bob", FOLLOWS, lifecycle=Lifecycle("start", "no source", 5)))


def test_active_subscriptions_come_from_the_registries(tmp_path: Path) -> None:
    """Of all nodes, with offsets before all records."""
    register(tmp_path, match("s1"), match("s2"), node="north")
    stands = [match(f"t{n}", lifecycle=Lifecycle(s, None, 5)) for n, s in enumerate(("active", "inactive", "start"))]
    register(tmp_path, match("s1"), *stands, node="south")
    rows = take_over_registries(tmp_path).rows[SUBSCRIPTIONS.name].to_pylist()
    assert [(row["node"], row["id"], row["subscriber"], row["terms"]) for row in rows] == [
        ("north", "s1", "ann", ["fire"]), ("north", "s2", "ann", ["fire"]),
        ("south", "s1", "ann", ["fire"]), ("south", "t0", "ann", ["fire"]),
    ]  # fmt: skip
    assert all(row["since"] < 1 and row["until"] is None for row in rows)
    assert len({(row["node"], row["since"]) for row in rows}) == len(rows)


def test_live_bindings_come_from_the_registries(tmp_path: Path) -> None:
    """With their start and the conditions of their subscription. They are not initial."""
    register(tmp_path, match("s1"), follow("b1"), follow("b2"), Bound("b1", "cam", 7), Bound("b1", "car", 8))
    registry = open_registry(tmp_path / "nodes" / "local", "local")
    registry.apply([Unbound("b1", "cam", 9)], at=9)
    registry.close()
    (row,) = take_over_registries(tmp_path).rows[BINDINGS.name].to_pylist()
    assert row["since"] < 1
    del row["since"]
    assert row == {
        "node": "local", "id": "b1", "subscriber": "bob", "home": "local", "source": "car", "begin": 8,
        "on": encode_condition(condition("@ > 5")),
        "every": 10_000_000, "initial": False, "until": None, "end": None, "final": False,
    }  # fmt: skip


def test_without_registries_nothing_is_taken_over(tmp_path: Path) -> None:
    """There may be no node yet."""
    assert [rows.num_rows for rows in take_over_registries(tmp_path).rows.values()] == [0, 0]


_domains = itertools.count(1)


def with_password(url: str) -> str:
    """The server of the tests accepts any password."""
    return url.replace("@", ":swordfish@")


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_subscriptions_of_a_real_node_are_taken_over(tmp_path: Path, kind: str, postgresql: str) -> None:
    """Wherever it has its registry, while it runs and afterwards."""
    domain, store = f"takeover{next(_domains)}", with_password(postgresql) if kind == "postgresql" else None
    with in_process_node(tmp_path, domain=domain, store=store) as node:
        for id, subscriber in (("s1", "ann"), ("s2", "bob")):
            node.subscriber(subscriber).subscribe(box=(0, 0, 1, 1), terms=["fire"], id=id)
        running = take_over_registries(tmp_path)
    rows = take_over_registries(tmp_path).rows[SUBSCRIPTIONS.name]
    assert [(row["node"], row["subscriber"]) for row in rows.to_pylist()] == [(domain, "ann"), (domain, "bob")]
    assert running.rows[SUBSCRIPTIONS.name].equals(rows)


def test_a_node_that_moved_to_postgresql_is_read_there(tmp_path: Path, postgresql: str) -> None:
    """Its earlier file in the data folder does not count any more."""
    domain = f"takeover{next(_domains)}"
    for id, store in (("old", None), ("new", postgresql)):
        with in_process_node(tmp_path, domain=domain, store=store) as node:
            node.subscriber(id).subscribe(box=(0, 0, 1, 1))
    assert take_over_registries(tmp_path).rows[SUBSCRIPTIONS.name]["subscriber"].to_pylist() == ["new"]


def refusal(data: Path) -> RoamcastError:
    """The error of a takeover. It has a hint and does not show the password."""
    with pytest.raises(RoamcastError, match="cannot take over the subscriptions of node north") as caught:
        take_over_registries(data)
    assert caught.value.hint
    assert "swordfish" not in str(caught.value)
    return caught.value


def test_a_registry_that_does_not_answer_is_refused(tmp_path: Path) -> None:
    """Nothing listens at port 1."""
    register(tmp_path, match("s1"), node="east")
    record_location(tmp_path / "nodes" / "north", "postgresql://postgres:swordfish@127.0.0.1:1/postgres")
    assert isinstance(refusal(tmp_path), StorageError)


def test_an_empty_database_is_refused(tmp_path: Path, postgresql: str) -> None:
    """It has lost the registry. None is created."""
    record_location(tmp_path / "nodes" / "north", with_password(postgresql))
    for _ in range(2):
        assert "the store is missing" in refusal(tmp_path).message


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """None is created."""
    record_location(tmp_path / "nodes" / "north", None)
    for _ in range(2):
        assert "the store is missing" in refusal(tmp_path).message


@pytest.mark.parametrize("url", ["postgresql//u:swordfish@h/d", "postgresql://u:swordfish@h:swordfish/d"])
def test_an_invalid_url_is_refused(tmp_path: Path, url: str) -> None:
    """Without showing it."""
    record_location(tmp_path / "nodes" / "north", url)
    assert "not a database URL" in refusal(tmp_path).message


def test_a_node_without_a_known_registry_is_refused(tmp_path: Path) -> None:
    """It has a folder, or a record in the journal."""
    (tmp_path / "nodes" / "north").mkdir(parents=True)
    assert "not known where" in refusal(tmp_path).message
    (tmp_path / "nodes" / "north").rmdir()
    (tmp_path / "journal" / "south").mkdir(parents=True)  # a node that could not start
    assert take_over_registries(tmp_path).rows[SUBSCRIPTIONS.name].num_rows == 0
    journal(tmp_path, [event("cam", 1)], node="north")
    assert "not known where" in refusal(tmp_path).message


def test_only_a_takeover_imports_sqlalchemy() -> None:
    """It takes half a second, at every start of a pipeline."""
    code = "import sys, roamcast.pipeline.query.run; sys.exit('sqlalchemy' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def test_an_unusable_row_in_a_registry_is_corruption(tmp_path: Path) -> None:
    """Nothing acknowledged is dropped silently."""
    register(tmp_path, match("s1", body='{"version":9}'))
    with pytest.raises(CorruptionError, match="version 9"):
        take_over_registries(tmp_path)


def state_with(folder: Path, rows: dict[StateTable, list[dict[str, Any]]]) -> StateFolder:
    state = StateFolder(folder)
    state.create("pipe", {})
    tables = {
        (f"{t.name}/0" if t.shard_by else t.name): (state.parts.write(t, pa.Table.from_pylist(r, t.schema)),)
        for t, r in rows.items()
    }
    state.publish(Manifest("pipe", 3, tables))
    return state


STATE: dict[StateTable, list[dict[str, Any]]] = {
    SUBSCRIPTIONS: [
        {"node": "n", "since": 1, "id": "s1"},
        {"node": "n", "since": 2, "id": "s2", "until": 5, "removed_in": 3, "drained_in": 3},
    ],
    BINDINGS: [
        {"node": "n", "since": 3, "id": "b1", "source": "cam", "begin": 7},
        {"node": "n", "since": 4, "id": "b2", "source": "cam", "begin": 7, "until": 6, "end": 9},
    ],
    SOURCES: [{"node": "n", "source": "cam", "seen": "1-7", "time": 7, "event": "{}"}],
    LAST_SENT: [{"node": "n", "id": "b1", "receiver": "ann", "last": 70}],
    RECEIVERS: [{"office": "n", "receiver": "ann", "last": 4}],
}


def test_an_earlier_state_is_taken_over(tmp_path: Path) -> None:
    """Live subscriptions, bindings, seen numbers and notifications, but no letter numbers."""
    state_with(tmp_path, STATE)
    taken = take_over_state(tmp_path)
    assert taken is not None
    assert taken.rows.keys() == {table.name for table in TABLES} - {RECEIVERS.name}
    assert taken.rows[SUBSCRIPTIONS.name]["id"].to_pylist() == ["s1"]
    for table in (SOURCES, LAST_SENT):
        assert taken.rows[table.name].equals(pa.Table.from_pylist(STATE[table], table.schema))
    names = ("id", "since", "until", "end")
    bindings = [tuple(row[name] for name in names) for row in taken.rows[BINDINGS.name].to_pylist()]
    assert bindings == [("b1", -3, None, None), ("b2", -2, -1, 9)]


def test_rows_that_are_taken_over_start_before_all_records(tmp_path: Path) -> None:
    """The journal may have started again at 1 since."""
    state_with(tmp_path, STATE)
    taken = take_over_state(tmp_path)
    assert taken is not None
    assert taken.rows[SUBSCRIPTIONS.name]["since"].to_pylist() == [-1]


def test_live_rows_are_counted(tmp_path: Path) -> None:
    """In the new state; ended bindings are not counted."""
    state_with(tmp_path / "earlier", STATE)
    taken = take_over_state(tmp_path / "earlier")
    assert taken is not None
    state = StateFolder(tmp_path / "state")
    state.create("next", *taken)
    manifest = state.newest()
    assert manifest is not None
    assert manifest.counters == {"subscriptions": 1, "bindings": 1}


@pytest.mark.parametrize("loss", ["folder", "manifests", "a part", "a manifest damaged"])
def test_an_incomplete_state_is_not_taken_over(tmp_path: Path, loss: str) -> None:
    """All of it or nothing."""
    folder = tmp_path / "state"
    if loss != "folder":
        state = state_with(folder, STATE)
        manifest = state.newest()
        assert manifest is not None
        part = state.parts.folder / manifest.parts(SUBSCRIPTIONS)[0].name
        for path in {"manifests": list(folder.glob("*.json")), "a part": [part]}.get(loss, []):
            path.unlink()
        if loss == "a manifest damaged":
            (folder / "3.json").write_text("{")
    assert take_over_state(folder) is None
