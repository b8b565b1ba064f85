"""Control records of a batch: reading them from the journal, and turning each one into a checked row.

The driver reads them before Spark reads the events, so that a single Spark job sees the state of its batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from roamcast.errors import CorruptionError, InputError
from roamcast.journal.bodies import BindingBody, RemovalBody, SubscriptionBody, encode_condition
from roamcast.journal.port import JournalReader
from roamcast.journal.records import BINDING, HISTORY, RECORD_SCHEMA, REMOVAL, SUBSCRIPTION, UNBINDING, are_tracking
from roamcast.model import EARLIEST, LATEST, split_name
from roamcast.pipeline.state.parts import RESTORE_HINT

__all__ = [
    "ControlRecords", "DeadLetter", "OffsetRanges", "Row", "SubscriptionSpec", "parse_area", "parse_control_record",
    "parse_removal", "read_control_records", "read_offset_ranges",
]  # fmt: skip

Row: TypeAlias = dict[str, Any]
OffsetRanges: TypeAlias = Mapping[str, tuple[int, int]]
"""By node: (after, through) for the offsets with after < offset <= through."""

_ENTITY: Final = {SUBSCRIPTION: "a subscriber", REMOVAL: "a subscriber", BINDING: "a source", UNBINDING: "a source"}
_LIVE: Final = {"until": None, "removed_in": None, "forwarded_until": None, "drained_in": None}


class DeadLetter(NamedTuple):
    """A record that cannot be processed, and why."""

    node: str
    offset: int
    reason: str


class ControlRecords(NamedTuple):
    """The control records of a batch, the number of its events, and the terms of some of these.

    Tracking records are left out, but for `histories`: those that ask for letters of the past.
    """

    records: pa.Table
    events: int
    terms: Sequence[pa.ListArray] = ()
    histories: pa.Table = RECORD_SCHEMA.empty_table()


def read_offset_ranges(checkpoint: Path, batch: int) -> OffsetRanges:
    """The offsets that Spark's checkpoint assigns to a batch. Raises CorruptionError."""
    through = _read_offsets(checkpoint / "offsets" / str(batch))
    after = _read_offsets(checkpoint / "offsets" / str(batch - 1)) if batch else {}
    return {node: (after.get(node, 0), last) for node, last in through.items()}


def _read_offsets(path: Path) -> dict[str, int]:
    try:
        offsets = orjson.loads(path.read_bytes().splitlines()[-1])
        return {str(node): int(last) for node, last in offsets.items()}
    except (OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise CorruptionError(
            f"Spark's offsets of a batch are unreadable: {error}", where=str(path), hint=RESTORE_HINT
        ) from error


def read_control_records(journal: JournalReader, ranges: OffsetRanges) -> ControlRecords:
    """Read the control records in these ranges, ordered by node and offset. Tracking records are left out."""
    tables, terms, total = [RECORD_SCHEMA.empty_table()], [], 0
    for node, (after, through) in sorted(ranges.items()):
        begin = after or journal.first_offset(node) - 1  # a new node starts with the first record that it still has
        if begin < through:
            tables.append(journal.read_control(node, begin, through))
            terms.append(journal.sample_terms(node, begin, through))
            total += through - begin
    records = pa.concat_tables(tables)
    events = total - records.num_rows
    histories = records.filter(pc.equal(records["kind"], HISTORY))
    return ControlRecords(records.filter(pc.invert(are_tracking(records["kind"]))), events, terms, histories)


def parse_control_record(record: Row) -> Row:
    """Turn a record into a row of its table. Raises InputError if it cannot be processed.

    `binds` is true for a row of BINDINGS, false for one of SUBSCRIPTIONS. `creates` is false if the record ends such
    a row; then there are only the columns that name it.
    """
    kind = record["kind"]
    if kind not in _ENTITY:
        raise InputError(f"unknown kind {kind!r}")
    if not record["id"] or not record["entity"]:
        raise InputError(f"a {kind} needs an id and {_ENTITY[kind]}")
    if record["time"] is None or not EARLIEST <= record["time"] <= LATEST:
        raise InputError(f"a {kind} needs a time between the years 1 and 9999")
    row = {"node": record["node"], "since": record["offset"], "id": record["id"], "begin": record["time"]}
    if kind in (SUBSCRIPTION, REMOVAL):
        row |= {"binds": False, "creates": kind == SUBSCRIPTION, "subscriber": record["entity"]}
        if not row["creates"]:
            return row | {"forwarded_until": parse_removal(record["body"])}
        return row | SubscriptionSpec.from_body(record["body"])._asdict() | _LIVE
    source, home = split_name(record["entity"])
    row |= {"binds": True, "creates": kind == BINDING, "home": home or record["node"], "source": source}
    return row | _binding_columns(record["body"]) if row["creates"] else row


@lru_cache(maxsize=1_000)
def parse_removal(text: str | None) -> int | None:
    """The time before which forwarded events still match, if any. Raises InputError."""
    return None if text is None else RemovalBody.from_json(text).forwarded_until


class SubscriptionSpec(NamedTuple):
    """Columns of SUBSCRIPTIONS, see there. Equal specs match the same events."""

    min_x: float
    min_y: float
    max_x: float
    max_y: float
    terms: list[str]
    circle: list[float] | None
    place: str | None
    area: str | None
    source: str | None
    on: str | None
    every: int | None
    space: str
    moving_radius: float | None

    @classmethod
    def from_body(cls, text: str | None) -> SubscriptionSpec:
        """Read the body of a control record. Raises InputError if it is unreadable or cannot be matched."""
        body = SubscriptionBody.from_json(text)
        if body.area is not None:
            parse_area(body.area)
        circle = None if body.circle is None else [*body.circle]
        source, on = (None if each is None else encode_condition(each) for each in (body.source, body.on))
        return cls(
            *(body.box or (-inf, -inf, inf, inf)), list(body.terms), circle, body.place, body.area, source, on,
            body.every, body.space, body.moving_radius,
        )  # fmt: skip

    @classmethod
    def from_body_or_none(cls, text: str | None) -> SubscriptionSpec | None:
        """Like `from_body`, but None for what it refuses."""
        try:
            return cls.from_body(text)
        except InputError:
            return None


def _binding_columns(text: str | None) -> Row:
    body = BindingBody.from_json(text)
    return {
        "subscriber": body.subscriber,
        "on": None if body.on is None else encode_condition(body.on),
        "every": body.every,
        "initial": body.initial,
        "until": None,
        "end": None,
        "final": False,
    }


@lru_cache(maxsize=1_000)
def parse_area(geojson: str) -> shapely.Geometry:
    """Parse the area of a place and prepare it for many points. Raises InputError."""
    try:
        area = shapely.from_geojson(geojson)
    except shapely.GEOSException as error:
        raise InputError(f"the area of a place is unreadable: {error}") from error
    shapely.prepare(area)
    return area
