"""What very many control records change: those that stand alone by columns, the others one after the other.

What a record does depends only on the records and the rows that have its node and id. So where a record is the only one
with these in a batch, and makes a subscription of which nothing is live or removes one that was never bound, its row is
known at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.errors import InputError
from roamcast.journal.records import POSITION, REMOVAL, SUBSCRIPTION
from roamcast.pipeline.schemas import EARLIEST, LATEST, SUBSCRIPTIONS
from roamcast.pipeline.state.control import Changes, Known, changes_of
from roamcast.pipeline.state.subscription_spec import Asked, asked_of

__all__ = ["KnownColumns", "Live", "changes_in_bulk"]

Integers: TypeAlias = npt.NDArray[np.int64]
Truths: TypeAlias = npt.NDArray[np.bool_]


class Live(NamedTuple):
    """Subscriptions that are live: for each the number of the name it was found by, and its row."""

    name: Integers
    rows: pa.Table


class KnownColumns(Known, Protocol):
    """What the state knows, told by columns too."""

    def live(self, node: pa.Array, id: pa.Array) -> Live:
        """The subscriptions with these names that are live."""

    def bound(self, node: pa.Array, id: pa.Array) -> Integers:
        """The numbers of the names of which any bindings are kept."""


def changes_in_bulk(records: pa.Table, batch: int, known: KnownColumns) -> Changes:
    """As `changes_of`; the rows may come in another order."""
    records = records.filter(pc.not_equal(records["kind"], POSITION)).combine_chunks()
    alone = _alone(records)
    made, begun = _begun(records, alone & _is(records, SUBSCRIPTION), known)
    removed, ended = _ended(records, alone & _is(records, REMOVAL), batch, known)
    others = np.ones(records.num_rows, np.bool_)
    others[made] = others[removed] = False
    rest = changes_of(records.filter(pa.array(others)), batch, known)
    names = zip(ended["node"].to_pylist(), ended["id"].to_pylist(), strict=True)
    return replace(
        rest,
        subscriptions=pa.concat_tables([ended, begun, rest.subscriptions]),
        more_subscriptions=rest.more_subscriptions + len(made) - len(removed),
        removed={**rest.removed, **dict(zip(names, ended["until"].to_pylist(), strict=True))},
    )


def _alone(records: pa.Table) -> Truths:
    """Whether each record is the only one with its node and id, and has what every record needs."""
    if not records.num_rows:
        return np.empty(0, np.bool_)
    nodes, ids = (pc.fill_null(_array(records[name]), "").dictionary_encode() for name in ("node", "id"))
    codes = nodes.indices.to_numpy() * np.int64(len(ids.dictionary)) + ids.indices.to_numpy()
    _, code, count = np.unique(codes, return_inverse=True, return_counts=True)
    time = records["time"].cast(pa.int64())
    needs = [pc.and_(pc.greater_equal(time, EARLIEST), pc.less_equal(time, LATEST))]
    needs += [pc.greater(pc.binary_length(records[name]), 0) for name in ("id", "entity")]
    whole: Truths = np.logical_and.reduce([pc.fill_null(need, False).to_numpy() for need in needs])
    whole &= count[code] == 1
    return whole


def _begun(records: pa.Table, chosen: Truths, known: KnownColumns) -> tuple[Integers, pa.Table]:
    """Of these records those that make what is not live, by their numbers, and its rows."""
    numbers = np.flatnonzero(chosen)
    if len(numbers):
        node, id = _names(records, numbers)
        numbers = np.delete(numbers, known.live(node, id).name)
    read = [_asked(text) for text in records["body"].take(pa.array(numbers)).to_pylist()]
    numbers = numbers[np.array([asked is not None for asked in read], np.bool_)]
    if not len(numbers):
        return numbers, SUBSCRIPTIONS.schema.empty_table()
    these = records.take(pa.array(numbers))
    asked = dict(zip(Asked._fields, zip(*filter(None, read), strict=True), strict=True))
    columns = {
        **asked, "node": these["node"], "since": these["offset"], "id": these["id"], "subscriber": these["entity"],
        "begin": these["time"].cast(pa.int64()),
    }  # fmt: skip
    rows = [columns.get(field.name, pa.nulls(len(numbers), field.type)) for field in SUBSCRIPTIONS.schema]
    return numbers, pa.table(rows, schema=SUBSCRIPTIONS.schema)


def _asked(text: str | None) -> Asked | None:
    """None for what is set aside, with a reason, when the records come one after the other."""
    try:
        return asked_of(text)
    except InputError:
        return None


def _ended(records: pa.Table, chosen: Truths, batch: int, known: KnownColumns) -> tuple[Integers, pa.Table]:
    """Of these records those that end what is live, and not younger, and not bound; and its rows."""
    numbers = np.flatnonzero(chosen)
    if not len(numbers):
        return numbers, SUBSCRIPTIONS.schema.empty_table()
    node, id = _names(records, numbers)
    found = known.live(node, id)
    time = records["time"].cast(pa.int64()).to_numpy()[numbers]
    simple = np.bincount(found.name, minlength=len(numbers)) == 1
    simple[known.bound(node, id)] = False
    kept = np.flatnonzero(simple[found.name] & (found.rows["begin"].to_numpy() <= time[found.name]))
    numbers = numbers[found.name[kept]]
    rows = found.rows.take(pa.array(kept))
    ends = {"until": records["offset"].to_numpy()[numbers], "removed_in": np.full(len(numbers), batch)}
    for name, values in ends.items():
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, rows.schema.field(place), pa.array(values, pa.int64()))
    return numbers, rows


def _is(records: pa.Table, kind: str) -> Truths:
    same: Truths = pc.fill_null(pc.equal(records["kind"], kind), False).to_numpy()
    return same


def _names(records: pa.Table, numbers: Integers) -> tuple[pa.Array, pa.Array]:
    node, id = (_array(records[name].take(pa.array(numbers))) for name in ("node", "id"))
    return node, id


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()
