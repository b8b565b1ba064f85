"""A record is one row of a journal. All kinds share one schema; `kind` says which columns are used.

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

The first three kinds are events. A `forwarded` one comes from its home over a link; a `last_known` one too, as the
newest event of a source that has just become wanted. The other kinds are control records. Bodies are JSON, see
`bodies`; an event of a source without attributes has none. Offsets are dense for each node and start at 1. A position
applies to the moving regions of its subscriber that exist at its offset. Records of unknown kinds become dead letters
in the pipeline.

A subscription that is removed still gets the forwarded events that were on their way, see `RemovalBody`. Those that
were on their way when a subscriber moved are matched with its position before, see `PositionBody`. `drained`: all
events that were published before the record with the offset `seq` of this journal, at any peer, have been journalled,
or are no longer waited for.

An event may be published at another node than its source's home. Its entity is then `source@domain`, see
`model.global_name`. The same holds for a binding to a source of another node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "BINDING", "DRAINED", "EVENT", "FORMAT", "FORWARDED", "LAST_KNOWN", "POSITION", "RECORD_SCHEMA", "REMOVAL",
    "ROW_SCHEMA", "SUBSCRIPTION", "UNBINDING", "Record", "Records", "add_home_column", "are_events", "at_offsets",
    "to_batch", "to_records", "to_rows",
]  # fmt: skip

FORMAT = "roamcast-journal/4"

EVENT = "event"
FORWARDED = "forwarded"
LAST_KNOWN = "last_known"
SUBSCRIPTION = "subscription"
REMOVAL = "removal"
BINDING = "binding"
UNBINDING = "unbinding"
POSITION = "position"
DRAINED = "drained"

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
