"""Control records: what a batch changes in the subscriptions and bindings of the state.

The driver reads them out of the journal before Spark reads the events, so that one job sees the state of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import orjson
import pyarrow as pa

from roamcast.errors import CorruptionError, InputError
from roamcast.journal.bodies import BindingBody, SubscriptionBody
from roamcast.journal.records import BINDING, RECORD_SCHEMA, REMOVAL, SUBSCRIPTION, UNBINDING
from roamcast.journal.segments import SegmentFolder, read_control
from roamcast.pipeline.exact import tests_of
from roamcast.pipeline.facts import on_of
from roamcast.pipeline.schemas import BINDINGS, EARLIEST, LATEST, SUBSCRIPTIONS

__all__ = ["Changes", "Control", "SetAside", "Stretches", "changes_of", "control_of", "stretches_of"]

Row: TypeAlias = dict[str, Any]
Lookup: TypeAlias = Callable[[Sequence[Sequence[str]]], Iterable[Row]]
Stretches: TypeAlias = Mapping[str, tuple[int, int]]
"""By node: the positions after < p <= through."""


class SetAside(NamedTuple):
    """A record that cannot be processed, and why."""

    node: str
    position: int
    reason: str


class Control(NamedTuple):
    """The control records of a batch, and how many other records it has."""

    records: pa.Table
    events: int


def stretches_of(checkpoint: Path, batch: int) -> Stretches:
    """What Spark has noted that a batch contains."""
    through = _offset(checkpoint / "offsets" / str(batch))
    after = _offset(checkpoint / "offsets" / str(batch - 1)) if batch else {}
    return {node: (after.get(node, 0), position) for node, position in through.items()}


def _offset(path: Path) -> dict[str, int]:
    try:
        offset = orjson.loads(path.read_bytes().splitlines()[-1])
        return {str(node): int(position) for node, position in offset.items()}
    except (OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        hint = "restore the whole pipeline folder, or start a new pipeline with --new"
        raise CorruptionError(f"Spark's note of a batch is unreadable: {error}", where=str(path), hint=hint) from error


def control_of(journal: Path, stretches: Stretches) -> Control:
    """Ordered by node and position."""
    tables, total = [RECORD_SCHEMA.empty_table()], 0
    for node, (after, through) in sorted(stretches.items()):
        folder = SegmentFolder(journal, node)
        begin = after or folder.first_position() - 1  # a node that is new begins with what is left of it
        if begin < through:
            tables.append(read_control(folder.between(begin, through), begin, through))
            total += through - begin
    records = pa.concat_tables(tables)
    return Control(records, total - records.num_rows)


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows that a batch writes; by how many the live ones grow; and the new bindings that are the first of their kind.

    `clocks` has the latest time that each node's bindings tell.
    """

    subscriptions: pa.Table
    more_subscriptions: int
    bindings: pa.Table
    more_bindings: int
    initial: list[Row]
    clocks: Mapping[str, int]
    set_aside: list[SetAside]


def changes_of(records: pa.Table, batch: int, subscriptions: Lookup, bindings: Lookup) -> Changes:
    """What these records, in this order, make of the rows that the lookups tell of.

    `subscriptions` is asked with columns (node, id) and tells the live ones, `bindings` with (node, id, source) and
    tells all. Making again what is live changes nothing; nor does a binding from before the last one ended: a node
    that crashed may journal its last records again.
    """
    columns = {name: records[name] for name in ("node", "position", "kind", "entity", "id", "body")}
    rows = pa.table({**columns, "time": records["time"].cast(pa.int64())}).to_pylist()
    refused: list[SetAside] = []
    of_kind: dict[bool, list[Row]] = {True: [], False: []}
    for row in rows:
        try:
            of_kind[row["kind"] in (BINDING, UNBINDING)].append(_read(row))
        except InputError as error:
            refused.append(SetAside(row["node"], row["position"], error.message))
    wishes = _Live(("node", "id"), subscriptions, of_kind[False])
    for row in of_kind[False]:
        wishes.apply(row, {"until": row["since"], "removed_in": batch}, _SAME)
    bonds = _Live(("node", "id", "source"), bindings, of_kind[True])
    for row in of_kind[True]:
        if not (row["makes"] and row["begin"] <= bonds.last(row).get("end", -inf)):
            bonds.apply(row, {"until": row["since"], "end": row["begin"]})
    clocks: dict[str, int] = {}
    for row in of_kind[True]:
        clocks[row["node"]] = max(row["begin"], clocks.get(row["node"], row["begin"]))
    return Changes(
        subscriptions=pa.Table.from_pylist(list(wishes.written.values()), SUBSCRIPTIONS.schema),
        more_subscriptions=wishes.growth,
        bindings=pa.Table.from_pylist(list(bonds.written.values()), BINDINGS.schema),
        more_bindings=bonds.growth,
        initial=[row for row in bonds.made if row["initial"]],
        clocks=clocks,
        set_aside=refused,
    )


# What makes two subscriptions with one id the same; a binding is the same if it is live.
_SAME = ("subscriber", "min_x", "min_y", "max_x", "max_y", "terms", "query", "area", "every", "space")


class _Live:
    """The rows that some records speak of, and what becomes of the live ones."""

    def __init__(self, name: tuple[str, ...], lookup: Lookup, records: Sequence[Row]) -> None:
        self._name = name
        asked = list(dict.fromkeys(tuple(row[column] for column in name) for row in records))
        known = lookup([list(column) for column in zip(*asked, strict=True)]) if asked else ()
        self._last = {self._key(row): row for row in sorted(known, key=lambda row: row["since"])}
        self._live = {key: row for key, row in self._last.items() if row["until"] is None}
        self._before = len(self._live)
        self.written: dict[tuple[str, int], Row] = {}
        self.made: list[Row] = []

    @property
    def growth(self) -> int:
        return len(self._live) - self._before

    def last(self, row: Row) -> Row:
        """The last one with the name of `row` that has ended; empty if there is none."""
        known = self._last.get(self._key(row))
        return {} if known is None or known["until"] is None else known

    def apply(self, row: Row, end: Row, same: Sequence[str] = ()) -> None:
        """Of the live row with its name, if there is one, `end` says how it ends; unless `row` makes the same again."""
        key = self._key(row)
        known = self._live.get(key)
        if known and row["makes"] and all(known[column] == row[column] for column in same):
            return
        if known:
            self._last[key] = self.written[known["node"], known["since"]] = {**known, **end}
            del self._live[key]
        if row["makes"]:
            self._last[key] = self._live[key] = self.written[row["node"], row["since"]] = row
            self.made.append(row)

    def _key(self, row: Row) -> tuple[str, ...]:
        return tuple(row[column] for column in self._name)


def _read(record: Row) -> Row:
    """A record as a row of its table; `makes` says whether it makes or ends one. Raises InputError."""
    if record["kind"] not in (SUBSCRIPTION, REMOVAL, BINDING, UNBINDING):
        raise InputError(f"unknown kind {record['kind']!r}")
    if not record["id"] or not record["entity"]:
        raise InputError(f"a {record['kind']} needs an id and {_ENTITY[record['kind']]}")
    row = {"node": record["node"], "since": record["position"], "id": record["id"]}
    if record["kind"] in (SUBSCRIPTION, REMOVAL):
        row |= {"makes": record["kind"] == SUBSCRIPTION, "subscriber": record["entity"]}
        return row | _wish(record["body"]) if row["makes"] else row
    if record["time"] is None or not EARLIEST <= record["time"] <= LATEST:
        raise InputError(f"a {record['kind']} needs a time that has a date")
    row |= {"makes": record["kind"] == BINDING, "source": record["entity"], "begin": record["time"]}
    return row | _bond(record["body"]) if row["makes"] else row


_ENTITY = {SUBSCRIPTION: "a subscriber", REMOVAL: "a subscriber", BINDING: "a source", UNBINDING: "a source"}


def _wish(text: str | None) -> Row:
    body = SubscriptionBody.from_json(text)
    if body.query is not None:
        tests_of(body.query, body.area, body.space)
    min_x, min_y, max_x, max_y = body.box or (-inf, -inf, inf, inf)
    return {
        "min_x": min_x, "min_y": min_y, "max_x": max_x, "max_y": max_y, "terms": list(body.terms), "query": body.query,
        "area": body.area, "every": body.every, "space": body.space, "until": None, "removed_in": None,
    }  # fmt: skip


def _bond(text: str | None) -> Row:
    body = BindingBody.from_json(text)
    if body.on is not None:
        on_of(body.on)
    return {
        "subscriber": body.subscriber, "on": body.on, "every": body.every, "initial": body.initial,
        "until": None, "end": None,
    }  # fmt: skip
