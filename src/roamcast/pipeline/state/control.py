"""Control records: what a batch changes in the subscriptions and bindings of the state.

The driver reads them out of the journal before Spark reads the events, so that one job sees the state of the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.errors import CorruptionError, InputError
from roamcast.journal.bodies import BindingBody
from roamcast.journal.records import BINDING, POSITION, RECORD_SCHEMA, REMOVAL, SUBSCRIPTION, UNBINDING
from roamcast.journal.segments import JournalFolder, read_control, read_terms
from roamcast.model import split_name
from roamcast.pipeline.schemas import BINDINGS, EARLIEST, LATEST, SUBSCRIPTIONS
from roamcast.pipeline.state.subscription_spec import Asked, asked_of
from roamcast.pipeline.tasks.event_columns import on_of

__all__ = [
    "Changes",
    "Control",
    "Known",
    "Nothing",
    "OffsetRanges",
    "Row",
    "SetAside",
    "changes_of",
    "control_of",
    "offset_ranges",
]

Row: TypeAlias = dict[str, Any]
OffsetRanges: TypeAlias = Mapping[str, tuple[int, int]]
"""By node: the offsets after < p <= through."""


class SetAside(NamedTuple):
    """A record that cannot be processed, and why."""

    node: str
    offset: int
    reason: str


class Control(NamedTuple):
    """The control records of a batch, how many other records it has, and the terms of some of these."""

    records: pa.Table
    events: int
    terms: Sequence[pa.ListArray] = ()


def offset_ranges(checkpoint: Path, batch: int) -> OffsetRanges:
    """What Spark has noted that a batch contains."""
    through = _offset(checkpoint / "offsets" / str(batch))
    after = _offset(checkpoint / "offsets" / str(batch - 1)) if batch else {}
    return {node: (after.get(node, 0), last) for node, last in through.items()}


def _offset(path: Path) -> dict[str, int]:
    try:
        offset = orjson.loads(path.read_bytes().splitlines()[-1])
        return {str(node): int(last) for node, last in offset.items()}
    except (OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        hint = "restore the whole pipeline folder, or start a new pipeline with --new"
        raise CorruptionError(f"Spark's note of a batch is unreadable: {error}", where=str(path), hint=hint) from error


def control_of(journal: Path, ranges: OffsetRanges) -> Control:
    """Ordered by node and offset."""
    tables, terms, total = [RECORD_SCHEMA.empty_table()], [], 0
    for node, (after, through) in sorted(ranges.items()):
        folder = JournalFolder(journal, node)
        begin = after or folder.first_offset() - 1  # a node that is new begins with what is left of it
        if begin < through:
            segments = folder.between(begin, through)
            tables.append(read_control(segments, begin, through))
            terms.append(read_terms(segments[-1]))
            total += through - begin
    records = pa.concat_tables(tables)
    return Control(records, total - records.num_rows, terms)


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows that a batch writes; by how many the live ones grow; and the new bindings that are the first of their kind.

    `removed` are the subscriptions that were removed, as pairs (node, id), each with the place of its last removal.
    `clocks` has the latest time that each node's bindings tell.
    """

    subscriptions: pa.Table
    more_subscriptions: int
    bindings: pa.Table
    more_bindings: int
    initial: list[Row]
    removed: Mapping[tuple[str, str], int]
    clocks: Mapping[str, int]
    set_aside: list[SetAside]


class Known(Protocol):
    """What the state knows."""

    def subscriptions(self, node: Sequence[str], id: Sequence[str]) -> Iterable[Row]:
        """The live ones with these names."""

    def bindings(
        self,
        node: Sequence[str],
        id: Sequence[str],
        home: Sequence[str],
        source: Sequence[str],
        time: Sequence[int],
    ) -> Iterable[Row]:
        """The live ones of these subscriptions and sources, and those that ended at the time beside them or later."""

    def bindings_of(self, node: Sequence[str], id: Sequence[str]) -> Iterable[Row]:
        """All of these subscriptions that are kept."""


class Nothing:
    """Known to a state that is new."""

    def subscriptions(self, node: Sequence[str], id: Sequence[str]) -> list[Row]:
        return []

    def bindings(
        self,
        node: Sequence[str],
        id: Sequence[str],
        home: Sequence[str],
        source: Sequence[str],
        time: Sequence[int],
    ) -> list[Row]:
        return []

    def bindings_of(self, node: Sequence[str], id: Sequence[str]) -> list[Row]:
        return []


def changes_of(records: pa.Table, batch: int, known: Known) -> Changes:
    """What these records, in this order, make of what is known.

    Making again what is live changes nothing. Nor does a record that is older than what it speaks of: a node that
    crashed may journal its last records again. Positions are not looked at: see `regions`.
    """
    records = records.filter(pc.not_equal(records["kind"], POSITION))
    columns = {name: records[name] for name in ("node", "offset", "kind", "entity", "id", "body")}
    rows, refused = [], []
    for record in pa.table({**columns, "time": records["time"].cast(pa.int64())}).to_pylist():
        try:
            rows.append(_read(record))
        except InputError as error:
            refused.append(SetAside(record["node"], record["offset"], error.message))
    bindings = [row for row in rows if row["binds"]]
    wishes, bonds = _wishes(known, [row for row in rows if not row["binds"]]), _bonds(known, rows)
    removed: dict[tuple[str, str], int] = {}
    clocks: dict[str, int] = {}
    for row in rows:
        if row["binds"]:
            bonds.apply(row, {"until": row["since"], "end": row["begin"]})
        elif row["makes"] or not (wishes.outlive(row) or bonds.outlive(row)):
            wishes.apply(row, {"until": row["since"], "removed_in": batch}, _SAME)
            if not row["makes"]:
                bonds.finish(row)
                removed[row["node"], row["id"]] = row["since"]
    for row in bindings:
        clocks[row["node"]] = max(row["begin"], clocks.get(row["node"], row["begin"]))
    return Changes(
        subscriptions=pa.Table.from_pylist(list(wishes.written.values()), SUBSCRIPTIONS.schema),
        more_subscriptions=wishes.growth,
        bindings=pa.Table.from_pylist(list(bonds.written.values()), BINDINGS.schema),
        more_bindings=bonds.growth,
        initial=[row for row in bonds.made if row["initial"]],
        removed=removed,
        clocks=clocks,
        set_aside=refused,
    )


# What makes two subscriptions with one id the same; a binding is the same if it is live.
_SAME = ("subscriber", *Asked._fields)
_LIVE = {"until": None, "removed_in": None}


class _Lives:
    """The lives of what some records speak of, and what becomes of them."""

    def __init__(self, name: tuple[str, ...], known: Iterable[Row]) -> None:
        self._name = name
        self._last: dict[tuple[str, ...], Row] = {}
        self._all: dict[tuple[str, str], dict[int, Row]] = {}
        for row in sorted(known, key=lambda row: row["since"]):
            self._note(row)
        self._before = self._live
        self.written: dict[tuple[str, int], Row] = {}
        self.made: list[Row] = []

    @property
    def growth(self) -> int:
        return self._live - self._before

    def apply(self, row: Row, end: Row, same: Sequence[str] = ()) -> None:
        """Of the live row with its name, if there is one, `end` says how it ends; unless `row` makes the same again."""
        known = self._last.get(tuple(row[column] for column in self._name))
        live = known is not None and known["until"] is None
        if known is not None and live:
            if row["makes"] and all(known[column] == row[column] for column in same):
                return
            if not row["makes"] and row["begin"] < known["begin"]:
                return
            self._write({**known, **end})
        elif known is not None and row["begin"] <= known.get("end", -inf):
            return
        if row["makes"]:
            self._write(row)
            self.made.append(row)

    def outlive(self, removal: Row) -> bool:
        """Whether the subscription that it removes has begun since: then it is an old record."""
        return any(row["begin"] > removal["begin"] for row in self._of(removal))

    def finish(self, removal: Row) -> None:
        """End for good what the subscription had: later events find none of it."""
        for row in self._of(removal):
            end = {"until": removal["since"], "end": removal["begin"]} if row["until"] is None else {}
            self._write({**row, **end, "final": True})

    def _of(self, record: Row) -> list[Row]:
        return list(self._all.get((record["node"], record["id"]), {}).values())

    @property
    def _live(self) -> int:
        return sum(row["until"] is None for row in self._last.values())

    def _write(self, row: Row) -> None:
        self.written[row["node"], row["since"]] = row
        self._note(row)

    def _note(self, row: Row) -> None:
        name = tuple(row[column] for column in self._name)
        if name not in self._last or self._last[name]["since"] <= row["since"]:
            self._last[name] = row
        self._all.setdefault((row["node"], row["id"]), {})[row["since"]] = row


def _wishes(known: Known, records: Sequence[Row]) -> _Lives:
    asked = _columns(records, ("node", "id"))
    return _Lives(("node", "id"), known.subscriptions(*asked) if asked else ())


def _bonds(known: Known, records: Sequence[Row]) -> _Lives:
    found: dict[tuple[str, int], Row] = {}
    named = _columns([row for row in records if row["binds"]], ("node", "id", "home", "source", "begin"))
    if named:
        found |= {(row["node"], row["since"]): row for row in known.bindings(*named)}
    removed = _columns([row for row in records if not row["binds"] and not row["makes"]], ("node", "id"))
    if removed:
        found |= {(row["node"], row["since"]): row for row in known.bindings_of(*removed)}
    return _Lives(("node", "id", "home", "source"), found.values())


def _columns(records: Sequence[Row], names: Sequence[str]) -> list[list[Any]]:
    """The columns of what the records speak of, each once; empty if they speak of nothing."""
    distinct = dict.fromkeys(tuple(row[name] for name in names) for row in records)
    return [list(column) for column in zip(*distinct, strict=True)]


def _read(record: Row) -> Row:
    """A record as a row of its table; `binds` says of which, `makes` if it makes or ends one. Raises InputError."""
    if record["kind"] not in (SUBSCRIPTION, REMOVAL, BINDING, UNBINDING):
        raise InputError(f"unknown kind {record['kind']!r}")
    if not record["id"] or not record["entity"]:
        raise InputError(f"a {record['kind']} needs an id and {_ENTITY[record['kind']]}")
    if record["time"] is None or not EARLIEST <= record["time"] <= LATEST:
        raise InputError(f"a {record['kind']} needs a time that has a date")
    row = {"node": record["node"], "since": record["offset"], "id": record["id"], "begin": record["time"]}
    if record["kind"] in (SUBSCRIPTION, REMOVAL):
        row |= {"binds": False, "makes": record["kind"] == SUBSCRIPTION, "subscriber": record["entity"]}
        return row | asked_of(record["body"])._asdict() | _LIVE if row["makes"] else row
    source, home = split_name(record["entity"])
    row |= {"binds": True, "makes": record["kind"] == BINDING, "home": home or record["node"], "source": source}
    return row | _bond(record["body"]) if row["makes"] else row


_ENTITY = {SUBSCRIPTION: "a subscriber", REMOVAL: "a subscriber", BINDING: "a source", UNBINDING: "a source"}


def _bond(text: str | None) -> Row:
    body = BindingBody.from_json(text)
    if body.on is not None:
        on_of(body.on)
    return {
        "subscriber": body.subscriber, "on": body.on, "every": body.every, "initial": body.initial,
        "until": None, "end": None, "final": False,
    }  # fmt: skip
