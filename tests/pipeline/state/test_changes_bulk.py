"""Applying control records in bulk has the same effect as one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from batches import Placed, control, placed
from controls import KnownRows
from hypothesis import given
from hypothesis import strategies as st
from profiles import thorough
from worlds import NOON, removal, subscription

from roamcast.journal.bodies import BindingBody, RemovalBody, SubscriptionBody
from roamcast.journal.records import BINDING, DRAINED, POSITION, REMOVAL, SUBSCRIPTION, UNBINDING, Record
from roamcast.lacl import parse
from roamcast.model import Box
from roamcast.pipeline.schemas import SUBSCRIPTIONS
from roamcast.pipeline.state import changes as changes_module
from roamcast.pipeline.state.changes import ControlChanges, apply_records, apply_records_in_bulk
from roamcast.pipeline.state.control import Row
from roamcast.pipeline.state.state_rows import LiveSubscriptions


class KnownColumns(KnownRows):
    """The finders of `StateRows` for very many names too."""

    def find_live(self, node: pa.Array, id: pa.Array) -> LiveSubscriptions:
        names = list(zip(node.to_pylist(), id.to_pylist(), strict=True))
        pairs = [
            (names.index((row["node"], row["id"])), row) for row in self.live_subscriptions(*zip(*names, strict=True))
        ]
        rows = pa.Table.from_pylist([row for _, row in pairs], SUBSCRIPTIONS.schema)
        return LiveSubscriptions(np.array([name for name, _ in pairs], np.int64), rows)

    def find_bound(self, node: pa.Array, id: pa.Array) -> Any:
        names = list(zip(node.to_pylist(), id.to_pylist(), strict=True))
        return np.array(
            [names.index((row["node"], row["id"])) for row in self.bindings_of(*zip(*names, strict=True))], int
        )


def contents(changes: ControlChanges) -> dict[str, Any]:
    """All fields of changes, rows ordered by offset."""
    tables = {
        name: sorted(getattr(changes, name).to_pylist(), key=lambda row: (row["node"], row["since"]))
        for name in ("subscriptions", "bindings")
    }
    others = ("subscription_growth", "binding_growth", "initial", "removed", "latest_binding_times", "dead_letters")
    return {**tables, **{name: getattr(changes, name) for name in others}}


OWNER = parse("Select all() Where &owner = bob").where
BODIES = [
    SubscriptionBody(None, ("a", "b")).to_json(),
    SubscriptionBody(Box(0, 0, 1, 1), ()).to_json(),
    SubscriptionBody(Box(0, 0, 1, 1), ("a",), circle=(1.0, 2.0, 3.0), source=OWNER, space="planar").to_json(),
    SubscriptionBody(None, (), moving_radius=5.0, every=7).to_json(),
    "{}",
    None,
]
REMOVALS = [None, RemovalBody(7).to_json(), "{}"]
_ids, _times = st.sampled_from(["s", "t", "u", "v", "", None]), st.sampled_from([None, 1, 2, 3, 1 << 62])
_entities = st.sampled_from(["ann", "bob", "", None])
_kinds = st.sampled_from(
    [SUBSCRIPTION, SUBSCRIPTION, SUBSCRIPTION, REMOVAL, REMOVAL, BINDING, UNBINDING, POSITION, DRAINED, "else"]
)


@st.composite
def records(draw: st.DrawFn) -> Record:
    kind = draw(_kinds)
    body = BindingBody("ann", initial=True).to_json()
    if kind in (SUBSCRIPTION, REMOVAL):
        body = draw(st.sampled_from(BODIES if kind == SUBSCRIPTION else REMOVALS))
    return Record(kind, draw(_entities), id=draw(_ids), time=draw(_times), body=body)


_batches = st.lists(st.lists(st.tuples(st.sampled_from(["north", "south"]), records()), max_size=9), max_size=4)


@thorough()
@given(batches=_batches)
def test_bulk_equals_one_by_one(batches: list[list[tuple[str, Record]]]) -> None:
    """For good, bad and repeated records, after any earlier ones."""
    subscriptions: dict[tuple[str, int], Row] = {}
    bindings: dict[tuple[str, int], Row] = {}
    offset = 0
    for number, batch in enumerate(batches):
        rows = [Placed(node, offset + place, record) for place, (node, record) in enumerate(batch, 1)]
        offset += len(batch)
        state = KnownColumns(list(subscriptions.values()), list(bindings.values()))
        records = control(rows).records
        changes = apply_records(records, number, state)
        assert contents(apply_records_in_bulk(records, number, state)) == contents(changes)
        for known, table in ((subscriptions, changes.subscriptions), (bindings, changes.bindings)):
            known |= {(row["node"], row["since"]): row for row in table.to_pylist()}


def test_records_that_are_alone_are_processed_by_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is left to the loop over single records."""
    others: list[int] = []

    def counted(records: pa.Table, *more: Any) -> ControlChanges:
        others.append(records.num_rows)
        return apply_records(records, *more)

    monkeypatch.setattr(changes_module, "apply_records", counted)
    made = apply_records_in_bulk(
        control(placed([subscription(f"s{n}", "ann") for n in range(50)])).records, 0, KnownColumns()
    )
    gone = [removal(f"s{n}", "ann")._replace(time=NOON + 1) for n in range(50)]
    known = KnownColumns(made.subscriptions.to_pylist())
    ended = apply_records_in_bulk(control(placed(gone, first=51)).records, 1, known)
    assert (others, made.subscription_growth, ended.subscription_growth) == ([0, 0], 50, -50)
    assert ended.subscriptions["until"].to_pylist() == list(range(51, 101))
