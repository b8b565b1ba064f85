"""What the control records of a batch change in the tables of subscriptions and bindings.

What a record does depends only on the records and rows that have its node and id. So if a record is the only one with
these in a batch, and it creates a subscription that does not exist or removes one that was never bound, its row can be
computed by columns. `apply_records_in_bulk` does so, and leaves the other records to `apply_records`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.errors import InputError
from roamcast.journal.records import DRAINED, POSITION, REMOVAL, SUBSCRIPTION
from roamcast.model import EARLIEST, LATEST, NO_END
from roamcast.pipeline.schemas import BINDINGS, SUBSCRIPTIONS
from roamcast.pipeline.state.control import DeadLetter, Row, SubscriptionSpec, parse_control_record, parse_removal
from roamcast.pipeline.state.lookups import Integers, Truths
from roamcast.pipeline.state.state_rows import StateRows

__all__ = ["ControlChanges", "SubscriptionKey", "apply_records", "apply_records_in_bulk", "drain", "drained_through"]

# Two subscriptions with one id are the same if these columns are equal. A live binding is always the same.
_SAME: Final = ("subscriber", *SubscriptionSpec._fields)

_OTHER_KINDS: Final = pa.array([POSITION, DRAINED])  # see `moving_regions` and `drain`


SubscriptionKey: TypeAlias = tuple[str, str, str]
"""Its node, its id and its subscriber."""


@dataclass(frozen=True, slots=True)
class ControlChanges:
    """The rows that a batch writes, and by how many the number of live rows grows.

    `initial` are the new bindings that also send the last known event of their source. `removed` has the offset of the
    last removal of each removed subscription; `left` are those that earlier batches removed and that leave the index
    now. `latest_binding_times` has the time of the latest record of a binding of each node.
    """

    subscriptions: pa.Table
    subscription_growth: int
    bindings: pa.Table
    binding_growth: int
    initial: list[Row]
    removed: Mapping[SubscriptionKey, int]
    latest_binding_times: Mapping[str, int]
    dead_letters: list[DeadLetter]
    left: Sequence[SubscriptionKey] = ()


def apply_records_in_bulk(records: pa.Table, batch: int, known: StateRows) -> ControlChanges:
    """Apply the control records of a batch: like `apply_records`, and fast for very many records.

    The rows may be in another order.
    """
    records = _without_other_kinds(records).combine_chunks()
    is_alone = _are_alone(records)
    created, new_rows = _create(records, is_alone & _is_kind(records, SUBSCRIPTION), known)
    removed, ended_rows = _remove(records, is_alone & _is_kind(records, REMOVAL), batch, known)
    others = np.ones(records.num_rows, np.bool_)
    others[created] = others[removed] = False
    rest = apply_records(records.filter(pa.array(others)), batch, known)
    return replace(
        rest,
        subscriptions=pa.concat_tables([ended_rows, new_rows, rest.subscriptions]),
        subscription_growth=rest.subscription_growth + len(created) - len(removed),
        removed={**rest.removed, **dict(zip(_keys(ended_rows), ended_rows["until"].to_pylist(), strict=True))},
    )


def _are_alone(records: pa.Table) -> Truths:
    """Whether each record is the only one with its node and id, and has the columns that every record needs."""
    if not records.num_rows:
        return np.empty(0, np.bool_)
    nodes, ids = (pc.fill_null(records[name].combine_chunks(), "").dictionary_encode() for name in ("node", "id"))
    codes = nodes.indices.to_numpy() * np.int64(len(ids.dictionary)) + ids.indices.to_numpy()
    _, code, count = np.unique(codes, return_inverse=True, return_counts=True)
    time = records["time"].cast(pa.int64())
    needs = [pc.and_(pc.greater_equal(time, EARLIEST), pc.less_equal(time, LATEST))]
    needs += [pc.greater(pc.binary_length(records[name]), 0) for name in ("id", "entity")]
    alone: Truths = np.logical_and.reduce([pc.fill_null(need, False).to_numpy() for need in needs])
    alone &= count[code] == 1
    return alone


def _create(records: pa.Table, chosen: Truths, known: StateRows) -> tuple[Integers, pa.Table]:
    """The chosen records that create a subscription which is not live, by index, and the rows that they create.

    A record with a bad body is left to `apply_records`, which makes it a dead letter.
    """
    indices = np.flatnonzero(chosen)
    if len(indices):
        indices = np.delete(indices, known.find_live(*_names(records, indices)).name_index)
    bodies = records["body"].take(pa.array(indices)).to_pylist()
    specs = [SubscriptionSpec.from_body_or_none(body) for body in bodies]
    indices = indices[np.array([spec is not None for spec in specs], np.bool_)]
    if not len(indices):
        return indices, SUBSCRIPTIONS.schema.empty_table()
    chosen_records = records.take(pa.array(indices))
    columns: dict[str, npt.ArrayLike] = {
        **dict(zip(SubscriptionSpec._fields, zip(*filter(None, specs), strict=True), strict=True)),
        "node": chosen_records["node"],
        "since": chosen_records["offset"],
        "id": chosen_records["id"],
        "subscriber": chosen_records["entity"],
        "begin": chosen_records["time"].cast(pa.int64()),
    }
    rows = [columns.get(field.name, pa.nulls(len(indices), field.type)) for field in SUBSCRIPTIONS.schema]
    return indices, pa.table(rows, schema=SUBSCRIPTIONS.schema)


def _remove(records: pa.Table, chosen: Truths, batch: int, known: StateRows) -> tuple[Integers, pa.Table]:
    """The chosen records that remove a live subscription which is not younger and not bound; and the ended rows.

    A record with a bad body is left to `apply_records`, which makes it a dead letter.
    """
    indices = np.flatnonzero(chosen)
    texts = records["body"].take(pa.array(indices)).to_pylist()
    is_readable = [text is None or _is_removal(text) for text in texts]
    indices = indices[np.array(is_readable, np.bool_)]
    if not len(indices):
        return indices, SUBSCRIPTIONS.schema.empty_table()
    names = _names(records, indices)
    live = known.find_live(*names)
    time = records["time"].cast(pa.int64()).to_numpy()[indices]
    is_simple = np.bincount(live.name_index, minlength=len(indices)) == 1
    is_simple[known.find_bound(*names)] = False
    kept = np.flatnonzero(is_simple[live.name_index] & (live.rows["begin"].to_numpy() <= time[live.name_index]))
    indices = indices[live.name_index[kept]]
    rows = live.rows.take(pa.array(kept))
    removed_in = pa.repeat(pa.scalar(batch, pa.int64()), len(indices))
    forwarded_until = pa.array(map(parse_removal, records["body"].take(pa.array(indices)).to_pylist()), pa.int64())
    ends = {
        "until": pa.array(records["offset"].to_numpy()[indices]),
        "removed_in": removed_in,
        "forwarded_until": forwarded_until,
        "drained_in": pc.if_else(pc.is_null(forwarded_until), removed_in, None),
    }
    for name, values in ends.items():
        rows = _set_column(rows, name, values)
    return indices, rows


def drained_through(records: pa.Table) -> dict[str, int]:
    """Up to which offset of each node removals and moves are drained, by the records `drained` among these."""
    records = records.filter(_is_kind(records, DRAINED))
    through: dict[str, int] = {}
    for node, offset in zip(records["node"].to_pylist(), records["seq"].to_pylist(), strict=True):
        through[node] = max(through.get(node, 0), offset or 0)
    return through


def drain(
    changes: ControlChanges, through: Mapping[str, int], leaving: Sequence[int], batch: int, known: StateRows
) -> ControlChanges:
    """Subscriptions that were removed up to the offsets `through` leave the index with this batch.

    `leaving` are the handles of rows that earlier batches removed and that have not left.
    """
    if not through:
        return changes

    def drained(rows: pa.Table) -> pa.Table:
        nodes = rows["node"].combine_chunks().dictionary_encode()
        limits = np.array([through.get(node, 0) for node in nodes.dictionary.to_pylist()], np.int64)
        is_over = pc.fill_null(rows["until"], NO_END).to_numpy() <= limits[nodes.indices.to_numpy()]
        is_drained = pc.and_(pa.array(is_over), pc.is_null(rows["drained_in"]))
        return _set_column(rows, "drained_in", pc.if_else(is_drained, batch, rows["drained_in"]))

    left = drained(known.with_handles(np.array(leaving, np.int64)))
    left = left.filter(pc.is_valid(left["drained_in"]))
    return replace(changes, subscriptions=pa.concat_tables([left, drained(changes.subscriptions)]), left=_keys(left))


def _keys(rows: pa.Table) -> list[SubscriptionKey]:
    return list(zip(*(rows[name].to_pylist() for name in ("node", "id", "subscriber")), strict=True))


def _without_other_kinds(records: pa.Table) -> pa.Table:
    return records.filter(pc.invert(pc.is_in(records["kind"], _OTHER_KINDS)))


def _is_removal(text: str) -> bool:
    try:
        return parse_removal(text) is not None
    except InputError:
        return False


def _end(row: Row, batch: int) -> Row:
    """What becomes of a subscription that is removed, or replaced by another one with its id."""
    forwarded_until = row["forwarded_until"]
    return {
        "until": row["since"],
        "removed_in": batch,
        "forwarded_until": forwarded_until,
        "drained_in": batch if forwarded_until is None else None,
    }


def _set_column(rows: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    column = rows.schema.get_field_index(name)
    return rows.set_column(column, rows.schema.field(column), values)


def _is_kind(records: pa.Table, kind: str) -> Truths:
    is_kind: Truths = pc.fill_null(pc.equal(records["kind"], kind), False).to_numpy()
    return is_kind


def _names(records: pa.Table, indices: Integers) -> tuple[pa.Array, pa.Array]:
    node, id = (records[name].take(pa.array(indices)).combine_chunks() for name in ("node", "id"))
    return node, id


def apply_records(records: pa.Table, batch: int, known: StateRows) -> ControlChanges:
    """Apply these records, in this order, one by one.

    Creating what is live already changes nothing. Neither does a record that is older than what it is about: a node
    that crashed may journal its last records again. Positions are ignored, see `moving_regions`, and so is `drained`.
    """
    records = _without_other_kinds(records)
    columns = {name: records[name] for name in ("node", "offset", "kind", "entity", "id", "body")}
    rows, dead_letters = [], []
    for record in pa.table({**columns, "time": records["time"].cast(pa.int64())}).to_pylist():
        try:
            rows.append(parse_control_record(record))
        except InputError as error:
            dead_letters.append(DeadLetter(record["node"], record["offset"], error.message))
    subscriptions, bindings = _known_subscriptions(known, rows), _known_bindings(known, rows)
    removed: dict[SubscriptionKey, int] = {}
    latest: dict[str, int] = {}
    for row in rows:
        if row["binds"]:
            bindings.apply(row, {"until": row["since"], "end": row["begin"]})
            latest[row["node"]] = max(row["begin"], latest.get(row["node"], row["begin"]))
        elif row["creates"] or not (subscriptions.has_newer_row(row) or bindings.has_newer_row(row)):
            subscriptions.apply(row, _end(row, batch), _SAME)
            if not row["creates"]:
                bindings.end_all(row)
                removed[row["node"], row["id"], row["subscriber"]] = row["since"]
    return ControlChanges(
        subscriptions=pa.Table.from_pylist(list(subscriptions.written.values()), SUBSCRIPTIONS.schema),
        subscription_growth=subscriptions.growth,
        bindings=pa.Table.from_pylist(list(bindings.written.values()), BINDINGS.schema),
        binding_growth=bindings.growth,
        initial=[row for row in bindings.created if row["initial"]],
        removed=removed,
        latest_binding_times=latest,
        dead_letters=dead_letters,
    )


class _RowHistory:
    """The rows that some records concern, and what becomes of them. Rows are named by the columns `name_columns`."""

    def __init__(self, name_columns: tuple[str, ...], known: Iterable[Row]) -> None:
        self._name_columns = name_columns
        self._last: dict[tuple[str, ...], Row] = {}
        self._by_subscription: dict[tuple[str, str], dict[int, Row]] = {}
        for row in sorted(known, key=lambda row: row["since"]):
            self._remember(row)
        self._live_before = self._live
        self.written: dict[tuple[str, int], Row] = {}
        self.created: list[Row] = []

    @property
    def growth(self) -> int:
        return self._live - self._live_before

    def apply(self, row: Row, end: Row, same: Sequence[str] = ()) -> None:
        """Create `row`, or end the live row with its name by setting the columns `end`.

        Creating also ends the live row, unless both are equal in the columns `same`: then nothing happens.
        """
        last = self._last.get(tuple(row[column] for column in self._name_columns))
        if last is not None and last["until"] is None:
            if row["creates"] and all(last[column] == row[column] for column in same):
                return
            if not row["creates"] and row["begin"] < last["begin"]:
                if not self._is_new(row, "end"):
                    return
                end = {**end, "end": last["begin"]}
            self._write({**last, **end})
        elif last is not None and row["begin"] <= last.get("end", -inf):
            if not row["creates"] or not self._is_new(row, "begin"):
                return
            row = {**row, "begin": last["end"]}
        if row["creates"]:
            self._write(row)
            self.created.append(row)

    def _is_new(self, row: Row, column: str) -> bool:
        """Whether a record of a binding is new although it is older than the last one.

        A binding to a source of another node is timed by that node's clock, as it was known then. Such a record is an
        old one only if its time is known.
        """
        if not _is_remote(row):
            return False
        name = row["home"], row["source"]
        known = (each for each in self._rows_of(row) if (each["home"], each["source"]) == name)
        return all(row["begin"] != each[column] for each in known)

    def has_newer_row(self, removal: Row) -> bool:
        """Whether a row of the removed subscription began after the removal. Then the removal is an old record.

        The times of bindings to sources of other nodes are not comparable; they end before a removal.
        """
        rows = self._rows_of(removal)
        return any(row["begin"] > removal["begin"] for row in rows if row["until"] is None or not _is_remote(row))

    def end_all(self, removal: Row) -> None:
        """End all rows of the removed subscription, and for good: no later event matches them.

        Events of another node may have been published before, so time alone decides about them.
        """
        for row in self._rows_of(removal):
            end = {"until": removal["since"], "end": removal["begin"]} if row["until"] is None else {}
            self._write({**row, **end, "final": not _is_remote(row)})

    def _rows_of(self, record: Row) -> list[Row]:
        return list(self._by_subscription.get((record["node"], record["id"]), {}).values())

    @property
    def _live(self) -> int:
        return sum(row["until"] is None for row in self._last.values())

    def _write(self, row: Row) -> None:
        self.written[row["node"], row["since"]] = row
        self._remember(row)

    def _remember(self, row: Row) -> None:
        name = tuple(row[column] for column in self._name_columns)
        if name not in self._last or self._last[name]["since"] <= row["since"]:
            self._last[name] = row
        self._by_subscription.setdefault((row["node"], row["id"]), {})[row["since"]] = row


def _is_remote(row: Row) -> bool:
    """Whether it is about a binding to a source of another node."""
    return bool(row.get("home", row["node"]) != row["node"])


def _known_subscriptions(known: StateRows, rows: Sequence[Row]) -> _RowHistory:
    names = _distinct([row for row in rows if not row["binds"]], ("node", "id"))
    return _RowHistory(("node", "id"), known.live_subscriptions(*names) if names else ())


def _known_bindings(known: StateRows, rows: Sequence[Row]) -> _RowHistory:
    bindings: list[Row] = []
    names = _distinct([row for row in rows if row["binds"]], ("node", "id", "home", "source", "begin"))
    if names:
        bindings += known.recent_bindings(*names)
    removed = _distinct([row for row in rows if not row["binds"] and not row["creates"]], ("node", "id"))
    if removed:
        bindings += known.bindings_of(*removed)
    distinct = {(row["node"], row["since"]): row for row in bindings}
    return _RowHistory(("node", "id", "home", "source"), distinct.values())


def _distinct(rows: Sequence[Row], names: Sequence[str]) -> list[list[Any]]:
    """The distinct combinations of these columns, as columns; empty if there are no rows."""
    distinct = dict.fromkeys(tuple(row[name] for name in names) for row in rows)
    return [list(column) for column in zip(*distinct, strict=True)]
