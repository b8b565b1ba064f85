"""The records of a journal, and the segments that contain them.

A record is one row. All kinds share one schema; `kind` says which columns are used.

| kind           | entity     | seq | id              | time        | x, y  | terms, readings | body                   |
| -------------- | ---------- | --- | --------------- | ----------- | ----- | --------------- | ---------------------- |
| `event`        | source     | yes | event id        | event time  | point | yes             | attributes of a source |
| `forwarded`    | source     | yes | event id        | event time  | point | yes             | attributes of a source |
| `last_known`   | source     | yes | event id        | event time  | point | yes             | attributes of a source |
| `subscription` | subscriber |     | subscription id | accepted at |       |                 | `SubscriptionBody`     |
| `removal`      | subscriber |     | subscription id | accepted at |       |                 | `RemovalBody` or none  |
| `binding`      | source     |     | subscription id | bound from  |       |                 | `BindingBody`          |
| `unbinding`    | source     |     | subscription id | bound until |       |                 |                        |
| `position`     | subscriber |     |                 | there since | point |                 | `PositionBody` or none |
| `drained`      |            | yes |                 | accepted at |       |                 |                        |
| `registered`   | entity     | yes |                 | there since | point |                 | `EntityBody`           |
| `changed`      | entity     | yes |                 |             |       |                 | `EntityBody`           |
| `track`        | entity     | yes |                 | there since | point |                 |                        |
| `forgotten`    | entity     | yes |                 |             |       |                 |                        |
| `left`         | entity     | yes |                 |             |       |                 |                        |
| `state`        | subscriber | yes | subscription id | since       |       |                 | `StateBody`            |
| `history`      | subscriber | yes | subscription id | accepted at |       |                 | `HistoryBody`          |
| `snapshot`     |            | yes |                 |             |       |                 | `SnapshotBody`         |
| `snapshot_end` |            | yes |                 |             |       |                 |                        |
| `untracked`    |            | yes |                 |             |       |                 |                        |

The first three kinds are events. A `forwarded` one comes from its home over a link; a `last_known` one too, as the
newest event of a source that has just become wanted. The last ten are tracking records, for the archive only: see
`tracking`. The other kinds are control records. Bodies are JSON, see
`bodies`; an event of a source without attributes has none. Offsets are dense for each node and start at 1. A position
applies to the moving regions of its subscriber that exist at its offset. Records of unknown kinds become dead letters
in the pipeline.

A subscription that is removed still gets the forwarded events that were on their way, see `RemovalBody`. Those that
were on their way when a subscriber moved are matched with its position before, see `PositionBody`. `drained`: all
events that were published before the record with the offset `seq` of this journal, at any peer, have been journalled,
or are no longer waited for.

An event may be published at another node than its source's home. Its entity is then `source@domain`, see
`model.global_name`. The same holds for a binding to a source of another node.

A segment is a Parquet file in the data folder, which appears complete and never changes:

    <root>/<node>/<first:020d>-<last:020d>.parquet   the records of a node with the offsets first..last
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from roamcast.durable import storage_errors
from roamcast.errors import CorruptionError

__all__ = [
    "BINDING", "CHANGED", "DRAINED", "EVENT", "FORGOTTEN", "FORMAT", "FORWARDED", "HISTORY", "LAST_KNOWN", "LEFT",
    "MISSING_HINT", "POSITION", "RECORD_SCHEMA", "REGISTERED", "REMOVAL", "ROW_SCHEMA", "SNAPSHOT", "SNAPSHOT_END",
    "STATE", "SUBSCRIPTION", "TRACK", "TRACKING", "UNBINDING", "UNTRACKED", "Record", "Records", "Segment",
    "add_home_column", "are_events", "are_tracking", "at_offsets", "check_readable", "encode", "load_file", "read",
    "read_control", "read_terms", "split_by_size", "to_batch", "to_records", "to_rows",
]  # fmt: skip

FORMAT = "roamcast-journal/4"
MISSING_HINT: Final = "restore the missing files from a backup, or start a new pipeline with --new"

_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{20})\.parquet")
# Segments are small and many. Rows are returned in batches of about the size Spark uses.
_BATCH_ROWS: Final = 10_000
_BATCH_BYTES: Final = 16 << 20
# What Arrow raises for damaged bytes, invalid text in the footer included.
_UNREADABLE: Final = (pa.ArrowException, OSError, ValueError)

EVENT = "event"
FORWARDED = "forwarded"
LAST_KNOWN = "last_known"
SUBSCRIPTION = "subscription"
REMOVAL = "removal"
BINDING = "binding"
UNBINDING = "unbinding"
POSITION = "position"
DRAINED = "drained"
REGISTERED = "registered"
CHANGED = "changed"
TRACK = "track"
FORGOTTEN = "forgotten"
LEFT = "left"
STATE = "state"
HISTORY = "history"
SNAPSHOT = "snapshot"
SNAPSHOT_END = "snapshot_end"
UNTRACKED = "untracked"

TRACKING: Final = (REGISTERED, CHANGED, TRACK, FORGOTTEN, LEFT, STATE, HISTORY, SNAPSHOT, SNAPSHOT_END, UNTRACKED)
"""The kinds of tracking records."""

RECORD_SCHEMA = pa.schema(
    [
        pa.field("node", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("entity", pa.string()),
        pa.field("seq", pa.int64()),
        pa.field("id", pa.string()),
        pa.field("time", pa.timestamp("us", tz="UTC")),
        pa.field("x", pa.float64()),
        pa.field("y", pa.float64()),
        pa.field("terms", pa.list_(pa.string())),
        pa.field("readings", pa.map_(pa.string(), pa.float64())),
        pa.field("body", pa.string()),
    ]
)

ROW_SCHEMA = pa.schema([field for field in RECORD_SCHEMA if field.name not in ("node", "offset")])
"""Records before they have an offset, as columns."""


class Record(NamedTuple):
    """A record before it has an offset. `time` is in microseconds since 1970."""

    kind: str
    entity: str | None = None
    seq: int | None = None
    id: str | None = None
    time: int | None = None
    x: float | None = None
    y: float | None = None
    terms: Sequence[str] | None = None
    readings: Mapping[str, float] | None = None
    body: str | None = None


Records: TypeAlias = Sequence[Record] | pa.RecordBatch
"""Records, or rows of ROW_SCHEMA."""


def are_events(kinds: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Which of these kinds are events, and not control records."""
    return pc.is_in(kinds, pa.array([EVENT, FORWARDED, LAST_KNOWN]))


def are_tracking(kinds: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Which of these kinds are tracking records."""
    return pc.is_in(kinds, pa.array(TRACKING))


def add_home_column(events: pa.RecordBatch) -> pa.RecordBatch:
    """Append the column `home`, the node at which the source is registered, and strip that node from `entity`."""
    node, entity = events["node"], events["entity"]
    is_remote = pc.fill_null(pc.match_substring(entity, "@"), False)
    if not pc.any(is_remote).as_py():
        return events.append_column("home", node)
    parts = pc.extract_regex(entity, r"^(?P<id>[^@]*)@(?P<home>.*)$")
    home, id = (pc.struct_field(parts, name) for name in ("home", "id"))
    column = events.schema.get_field_index("entity")
    local = events.set_column(column, "entity", pc.if_else(is_remote, id, entity))
    return local.append_column("home", pc.if_else(is_remote, home, node))


def to_batch(node: str, first_offset: int, records: Sequence[Record]) -> pa.RecordBatch:
    """Build rows in the given order, at consecutive offsets from `first_offset`."""
    return at_offsets(node, first_offset, to_rows(records))


def at_offsets(node: str, first_offset: int, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of ROW_SCHEMA at consecutive offsets from `first_offset`."""
    offsets = np.arange(first_offset, first_offset + rows.num_rows)
    head = [pa.repeat(pa.scalar(node, pa.string()), rows.num_rows), pa.array(offsets)]
    return pa.RecordBatch.from_arrays([*head, *rows.columns], schema=RECORD_SCHEMA)


def to_rows(records: Sequence[Record]) -> pa.RecordBatch:
    """Rows of ROW_SCHEMA in the given order."""
    kind, entity, seq, id_, time, x, y, terms, readings, body = (
        zip(*records, strict=True) if records else ((),) * len(Record._fields)
    )
    pairs = [None if each is None else list(each.items()) for each in readings]
    columns = [kind, entity, seq, id_, time, x, y, terms, pairs, body]
    arrays = [pa.array(list(c), type=f.type) for c, f in zip(columns, ROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROW_SCHEMA)


def to_records(rows: pa.RecordBatch) -> list[Record]:
    """The records of rows of ROW_SCHEMA."""
    columns = {name: rows[name].to_pylist() for name in Record._fields if name not in ("time", "readings")}
    columns["time"] = rows["time"].cast(pa.int64()).to_pylist()
    columns["readings"] = [None if pairs is None else dict(pairs) for pairs in rows["readings"].to_pylist()]
    return [Record(*values) for values in zip(*(columns[name] for name in Record._fields), strict=True)]


@dataclass(frozen=True, slots=True)
class Segment:
    """A file and the offsets it holds, both ends included."""

    path: Path
    first: int
    last: int

    @classmethod
    def at(cls, folder: Path, first: int, last: int) -> Segment:
        return cls(folder / f"{first:020d}-{last:020d}.parquet", first, last)

    @classmethod
    def from_name(cls, folder: Path, name: str) -> Segment | None:
        """The segment with this file name; None if the name is not that of a segment."""
        match = _NAME.fullmatch(name)
        if not match:
            return None
        first, last = int(match[1]), int(match[2])
        return cls(folder / name, first, last) if 1 <= first <= last else None


def encode(batches: Sequence[pa.RecordBatch]) -> memoryview:
    """The content of a segment file with these rows.

    Most segments are tiny. Without dictionaries, statistics and a second copy of the schema they are half as large and
    take two thirds of the time to write and read. Pages carry checksums.
    """
    content = pa.BufferOutputStream()
    with pq.ParquetWriter(
        content,
        RECORD_SCHEMA,
        compression="lz4",
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
        write_page_checksum=True,
    ) as writer:
        writer.write_table(pa.Table.from_batches(batches, schema=RECORD_SCHEMA))
        writer.add_key_value_metadata({"format": FORMAT})
    return memoryview(content.getvalue())


def load_file(segment: Segment) -> bytes:
    """The content of the file. Raises CorruptionError if it is missing, StorageError if the disk refuses."""
    with storage_errors(segment.path):
        try:
            return segment.path.read_bytes()
        except FileNotFoundError as error:
            raise CorruptionError("the segment is missing", where=str(segment.path), hint=MISSING_HINT) from error


def read(
    segments: Iterable[Segment], after: int, through: int, *, load: Callable[[Segment], bytes] = load_file
) -> Iterator[pa.RecordBatch]:
    """Yield the rows with after < offset <= through, in the order of `segments`. Small segments share a batch.

    A batch of several rows has at most 16 MiB: copies of its rows fit into an Arrow array.
    Raises CorruptionError if a segment is missing, damaged or of another format, and whatever `load` raises.
    """
    tables: list[pa.Table] = []
    rows = size = 0
    for segment in segments:
        begin, end = max(after + 1, segment.first), min(through, segment.last)
        if begin > end:
            continue
        tables.append(_read_table(segment, load).slice(begin - segment.first, end - begin + 1))
        rows, size = rows + end - begin + 1, size + tables[-1].nbytes
        if rows >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield from _combine(tables)
            tables, rows, size = [], 0, 0
    yield from _combine(tables)


def read_control(segments: Iterable[Segment], after: int, through: int) -> pa.Table:
    """The rows of `read` that are not events. Of segments with events only, no more than one column is read.

    Raises CorruptionError as `read` does.
    """
    tables = [RECORD_SCHEMA.empty_table()]
    for segment in segments:
        if pc.all(are_events(_read_column(segment, "kind"))).as_py():
            continue
        begin, end = max(after + 1, segment.first), min(through, segment.last)
        rows = _read_table(segment).slice(begin - segment.first, max(0, end - begin + 1)).cast(RECORD_SCHEMA)
        tables.append(rows.filter(pc.invert(are_events(rows["kind"]))))
    return pa.concat_tables(tables).combine_chunks()


def read_terms(segment: Segment) -> pa.ListArray:
    """The terms of all rows. Raises CorruptionError as `read` does."""
    return _read_column(segment, "terms").combine_chunks()


def check_readable(segment: Segment) -> None:
    """Raises CorruptionError if the segment is missing, damaged or of another format."""
    _open(segment)


def _combine(tables: Sequence[pa.Table]) -> Iterator[pa.RecordBatch]:
    if tables:
        for batch in pa.concat_tables(tables).combine_chunks().cast(RECORD_SCHEMA).to_batches():
            yield from split_by_size(batch, _BATCH_BYTES)


def split_by_size(rows: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """The rows in order, in parts of at most this size in bytes, or of one row."""
    if rows.nbytes <= most or rows.num_rows <= 1:
        yield rows
        return
    half = rows.num_rows // 2
    yield from split_by_size(rows.slice(0, half), most)
    yield from split_by_size(rows.slice(half), most)


def _open(segment: Segment, load: Callable[[Segment], bytes] = load_file) -> pq.ParquetFile:
    content = load(segment)
    try:
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        format = (file.metadata.metadata or {}).get(b"format", b"none").decode(errors="replace")
    except _UNREADABLE as error:
        raise _damaged(segment, str(error)) from error
    if format != FORMAT:
        raise CorruptionError(
            f"its format is {format}, not {FORMAT}",
            where=str(segment.path),
            hint="read it with the version of roamcast that wrote it",
        )
    if file.metadata.num_rows != segment.last - segment.first + 1 or not file.schema_arrow.equals(RECORD_SCHEMA):
        raise _damaged(segment, "its content contradicts its name or format")
    return file


def _read_column(segment: Segment, name: str) -> pa.ChunkedArray:
    try:
        return _open(segment).read([name], use_threads=False).column(name)
    except _UNREADABLE as error:
        raise _damaged(segment, str(error)) from error


def _read_table(segment: Segment, load: Callable[[Segment], bytes] = load_file) -> pa.Table:
    file = _open(segment, load)
    try:
        table = file.read(use_threads=False).replace_schema_metadata(None)
    except _UNREADABLE as error:
        raise _damaged(segment, str(error)) from error
    if table.num_rows != file.metadata.num_rows or table.column("offset")[0].as_py() != segment.first:
        raise _damaged(segment, "its content contradicts its name")
    return table


def _damaged(segment: Segment, reason: str) -> CorruptionError:
    return CorruptionError(
        f"the segment is damaged: {reason}",
        where=str(segment.path),
        hint="check the disk, and restore the file from a backup",
    )
