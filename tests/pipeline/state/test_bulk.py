"""Bulk: many control records at once change what they change one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from controls import KnownRows
from hypothesis import given
from hypothesis import strategies as st
from profiles import thorough
from pure import Placed, control, placed
from worlds import NOON, removal, subscription

from roamcast.journal.bodies import BindingBody, SubscriptionBody
from roamcast.journal.records import BINDING, POSITION, REMOVAL, SUBSCRIPTION, UNBINDING, Record
from roamcast.model import Box
from roamcast.pipeline.schemas import SUBSCRIPTIONS
from roamcast.pipeline.state import bulk
from roamcast.pipeline.state.bulk import Live, changes_in_bulk
from roamcast.pipeline.state.control import Changes, Row, changes_of


class World(KnownRows):
    """A state that knows these rows, and tells of them as rows and as columns."""

    def live(self, node: pa.Array, id: pa.Array) -> Live:
        names = list(zip(node.to_pylist(), id.to_pylist(), strict=True))
        found = [(names.index((row["node"], row["id"])), row) for row in self.subscriptions(*zip(*names, strict=True))]
        rows = pa.Table.from_pylist([row for _, row in found], SUBSCRIPTIONS.schema)
        return Live(np.array([name for name, _ in found], np.int64), rows)

    def bound(self, node: pa.Array, id: pa.Array) -> Any:
        names = list(zip(node.to_pylist(), id.to_pylist(), strict=True))
        return np.array(
            [names.index((row["node"], row["id"])) for row in self.bindings_of(*zip(*names, strict=True))], int
        )


def told(changes: Changes) -> dict[str, Any]:
    """All that changes say, rows by their place."""
    tables = {
        name: sorted(getattr(changes, name).to_pylist(), key=lambda row: (row["node"], row["since"]))
        for name in ("subscriptions", "bindings")
    }
    others = ("more_subscriptions", "more_bindings", "initial", "removed", "clocks", "set_aside")
    return {**tables, **{name: getattr(changes, name) for name in others}}


CIRCLE = "Select all() Where &location in circle(1, 2, 3) and &owner = bob\nOn @level > 1"
BODIES = [
    SubscriptionBody(None, ("a", "b")).to_json(),
    SubscriptionBody(Box(0, 0, 1, 1), ()).to_json(),
    SubscriptionBody(Box(0, 0, 1, 1), ("a",), CIRCLE, space="planar").to_json(),
    SubscriptionBody(None, (), around=5.0, every=7).to_json(),
    "{}",
    None,
]
_ids, _times = st.sampled_from(["s", "t", "u", "v", "", None]), st.sampled_from([None, 1, 2, 3, 1 << 62])
_entities = st.sampled_from(["ann", "bob", "", None])
_kinds = st.sampled_from(
    [SUBSCRIPTION, SUBSCRIPTION, SUBSCRIPTION, REMOVAL, REMOVAL, BINDING, UNBINDING, POSITION, "else"]
)


@st.composite
def records(draw: st.DrawFn) -> Record:
    kind = draw(_kinds)
    body = draw(st.sampled_from(BODIES)) if kind == SUBSCRIPTION else BindingBody("ann", initial=True).to_json()
    return Record(kind, draw(_entities), id=draw(_ids), time=draw(_times), body=body)


_batches = st.lists(st.lists(st.tuples(st.sampled_from(["north", "south"]), records()), max_size=9), max_size=4)


@thorough()
@given(batches=_batches)
def test_equals_one_record_after_the_other(batches: list[list[tuple[str, Record]]]) -> None:
    """Whatever records come, good and bad, once or again, to whatever earlier ones have made."""
    wishes: dict[tuple[str, int], Row] = {}
    bonds: dict[tuple[str, int], Row] = {}
    offset = 0
    for number, batch in enumerate(batches):
        rows = [Placed(node, offset + place, record) for place, (node, record) in enumerate(batch, 1)]
        offset += len(batch)
        world = World(list(wishes.values()), list(bonds.values()))
        given = control(rows).records
        changes = changes_of(given, number, world)
        assert told(changes_in_bulk(given, number, world)) == told(changes)
        for known, table in ((wishes, changes.subscriptions), (bonds, changes.bindings)):
            known |= {(row["node"], row["since"]): row for row in table.to_pylist()}


def test_records_that_stand_alone_are_none_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are made or removed, none of them goes the long way."""
    others: list[int] = []

    def counted(records: pa.Table, *more: Any) -> Changes:
        others.append(records.num_rows)
        return changes_of(records, *more)

    monkeypatch.setattr(bulk, "changes_of", counted)
    made = changes_in_bulk(control(placed([subscription(f"s{n}", "ann") for n in range(50)])).records, 0, World())
    gone = [removal(f"s{n}", "ann")._replace(time=NOON + 1) for n in range(50)]
    known = World(made.subscriptions.to_pylist())
    ended = changes_in_bulk(control(placed(gone, first=51)).records, 1, known)
    assert (others, made.more_subscriptions, ended.more_subscriptions) == ([0, 0], 50, -50)
    assert ended.subscriptions["until"].to_pylist() == list(range(51, 101))
