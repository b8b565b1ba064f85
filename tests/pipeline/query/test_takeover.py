"""Takeover: what a new pipeline gets from an earlier state or from the registries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from controls import condition

from roamcast.bind.lcesm.messages import Bound, Unbound
from roamcast.errors import CorruptionError
from roamcast.journal.bodies import SubscriptionBody, encode_condition
from roamcast.model import Box, Lifecycle, Subscription
from roamcast.pipeline.query.takeover import take_over_registries, take_over_state
from roamcast.pipeline.schemas import BINDINGS, LAST_SENT, RECEIVERS, SOURCES, SUBSCRIPTIONS, TABLES, StateTable
from roamcast.pipeline.state.manifests import Manifest, StateFolder
from roamcast.store.engine import open_sqlite
from roamcast.store.registry.schema import REGISTRY_FORMAT
from roamcast.store.registry.sql import SqlRegistry
from roamcast.store.registry.values import Change, SubscriptionAdded

BODY = SubscriptionBody(Box(0, 0, 1, 1), ("fire",)).to_json()
FOLLOWS = "Select Where &context = light and &location in nearest\nOn @ > 5\nEvery 10 s"


def register(data: Path, *changes: Change, node: str = "local") -> None:
    """Create a node's registry with these changes."""
    (data / "nodes" / node).mkdir(parents=True)
    registry = SqlRegistry(open_sqlite(data / "nodes" / node / "store.sqlite", REGISTRY_FORMAT))
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
    rows = take_over_registries(tmp_path)[SUBSCRIPTIONS.name].to_pylist()
    assert [(row["node"], row["id"], row["subscriber"], row["terms"]) for row in rows] == [
        ("north", "s1", "ann", ["fire"]), ("north", "s2", "ann", ["fire"]),
        ("south", "s1", "ann", ["fire"]), ("south", "t0", "ann", ["fire"]),
    ]  # fmt: skip
    assert all(row["since"] < 1 and row["until"] is None for row in rows)
    assert len({(row["node"], row["since"]) for row in rows}) == len(rows)


def test_live_bindings_come_from_the_registries(tmp_path: Path) -> None:
    """With their start and the conditions of their subscription. They are not initial."""
    register(tmp_path, match("s1"), follow("b1"), follow("b2"), Bound("b1", "cam", 7), Bound("b1", "car", 8))
    registry = SqlRegistry(open_sqlite(tmp_path / "nodes" / "local" / "store.sqlite", REGISTRY_FORMAT))
    registry.apply([Unbound("b1", "cam", 9)], at=9)
    registry.close()
    (row,) = take_over_registries(tmp_path)[BINDINGS.name].to_pylist()
    assert row["since"] < 1
    del row["since"]
    assert row == {
        "node": "local", "id": "b1", "subscriber": "bob", "home": "local", "source": "car", "begin": 8,
        "on": encode_condition(condition("@ > 5")),
        "every": 10_000_000, "until": None, "end": None, "final": False,
    }  # fmt: skip


def test_without_registries_nothing_is_taken_over(tmp_path: Path) -> None:
    """There may be no node yet."""
    assert [rows.num_rows for rows in take_over_registries(tmp_path).values()] == [0, 0, 0]


def test_an_unusable_row_in_a_registry_is_corruption(tmp_path: Path) -> None:
    """Nothing acknowledged is dropped silently."""
    register(tmp_path, match("s1", body='{"version":9}'))
    with pytest.raises(CorruptionError, match="version 9"):
        take_over_registries(tmp_path)


def state_with(folder: Path, rows: dict[StateTable, list[dict[str, Any]]]) -> StateFolder:
    state = StateFolder(folder)
    state.create("pipe", {})
    tables = {t.name: (state.parts.write(t, pa.Table.from_pylist(r, t.schema)),) for t, r in rows.items()}
    state.publish(Manifest("pipe", 3, tables))
    return state


STATE: dict[StateTable, list[dict[str, Any]]] = {
    SUBSCRIPTIONS: [
        {"node": "n", "since": 1, "id": "s1"},
        {"node": "n", "since": 2, "id": "s2", "until": 5, "removed_in": 3},
    ],
    BINDINGS: [
        {"node": "n", "since": 3, "id": "b1", "source": "cam", "begin": 7},
        {"node": "n", "since": 4, "id": "b2", "source": "cam", "begin": 7, "until": 6, "end": 9},
    ],
    SOURCES: [{"node": "n", "source": "cam", "seen": "1-7", "time": 7, "event": "{}"}],
    LAST_SENT: [{"node": "n", "id": "b1", "last": 70}],
    RECEIVERS: [{"office": "n", "receiver": "ann", "last": 4}],
}


def test_an_earlier_state_is_taken_over(tmp_path: Path) -> None:
    """Live subscriptions, bindings, seen numbers and notifications, but no letter numbers."""
    state_with(tmp_path, STATE)
    taken = take_over_state(tmp_path)
    assert taken is not None
    assert taken.keys() == {table.name for table in TABLES} - {RECEIVERS.name} | {"positions"}
    assert taken[SUBSCRIPTIONS.name]["id"].to_pylist() == ["s1"]
    for table in (SOURCES, LAST_SENT):
        assert taken[table.name].equals(pa.Table.from_pylist(STATE[table], table.schema))
    names = ("id", "since", "until", "end")
    bindings = [tuple(row[name] for name in names) for row in taken[BINDINGS.name].to_pylist()]
    assert bindings == [("b1", -3, None, None), ("b2", -2, -1, 9)]


def test_rows_that_are_taken_over_start_before_all_records(tmp_path: Path) -> None:
    """The journal may have started again at 1 since."""
    state_with(tmp_path, STATE)
    taken = take_over_state(tmp_path)
    assert taken is not None
    assert taken[SUBSCRIPTIONS.name]["since"].to_pylist() == [-1]


def test_live_rows_are_counted(tmp_path: Path) -> None:
    """In the new state; ended bindings are not counted."""
    state_with(tmp_path / "earlier", STATE)
    taken = take_over_state(tmp_path / "earlier")
    assert taken is not None
    state = StateFolder(tmp_path / "state")
    state.create("next", taken)
    manifest = state.newest()
    assert manifest is not None
    assert manifest.counters == {"subscriptions": 1, "bindings": 1}


@pytest.mark.parametrize("loss", ["folder", "manifests", "a part", "a manifest damaged"])
def test_an_incomplete_state_is_not_taken_over(tmp_path: Path, loss: str) -> None:
    """All of it or nothing."""
    folder = tmp_path / "state"
    if loss != "folder":
        state = state_with(folder, STATE)
        manifests, parts = list(folder.glob("*.json")), list(state.parts.folder.iterdir())
        for path in {"manifests": manifests, "a part": parts[:1]}.get(loss, []):
            path.unlink()
        if loss == "a manifest damaged":
            (folder / "3.json").write_text("{")
    assert take_over_state(folder) is None
