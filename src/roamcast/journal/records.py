"""The record: one row of a journal. All kinds share one schema; `kind` says which columns mean something.

| kind           | entity     | seq | id              | time       | x, y  | terms, readings | body                    |
| -------------- | ---------- | --- | --------------- | ---------- | ----- | --------------- | ----------------------- |
| `event`        | source     | yes | event id        | event time | point | yes             | the source's attributes |
| `subscription` | subscriber |     | subscription id | accepted   |       |                 | a `SubscriptionBody`    |
| `removal`      | subscriber |     | subscription id | accepted   |       |                 |                         |
| `binding`      | source     |     | subscription id | since when |       |                 | a `BindingBody`         |
| `unbinding`    | source     |     | subscription id | until when |       |                 |                         |
| `position`     | subscriber |     |                 | since when | point |                 |                         |

Bodies are JSON, see `bodies`; an event of a source without attributes has none. Offsets are dense per node and begin
with 1. A position counts for the regions around its subscriber that are in force at its place. Unknown kinds are set
aside by the pipeline, never guessed.

An event may be taken in by another node than its source's own. Its entity is then `source@domain`, see
`global_name`; so is that of a binding to a source of another node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "BINDING",
    "EVENT",
    "FORMAT",
    "POSITION",
    "RECORD_SCHEMA",
    "REMOVAL",
    "SUBSCRIPTION",
    "UNBINDING",
    "Record",
    "to_batch",
    "with_homes",
]

FORMAT = "roamcast-journal/2"

EVENT = "event"
SUBSCRIPTION = "subscription"
REMOVAL = "removal"
BINDING = "binding"
UNBINDING = "unbinding"
POSITION = "position"

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


class Record(NamedTuple):
    """A row before it has its offset."""

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


def with_homes(events: pa.RecordBatch) -> pa.RecordBatch:
    """Events with one column more: `home`, the node that their source is registered at. `entity` is its id there."""
    node, entity = events["node"], events["entity"]
    guests = pc.fill_null(pc.match_substring(entity, "@"), False)
    if not pc.any(guests).as_py():
        return events.append_column("home", node)
    parts = pc.extract_regex(entity, r"^(?P<id>[^@]*)@(?P<home>.*)$")
    home, id = (pc.struct_field(parts, name) for name in ("home", "id"))
    place = events.schema.get_field_index("entity")
    named = events.set_column(place, "entity", pc.if_else(guests, id, entity))
    return named.append_column("home", pc.if_else(guests, home, node))


def to_batch(node: str, first_offset: int, records: Sequence[Record]) -> pa.RecordBatch:
    """Rows in the order given, at dense offsets from `first_offset` on."""
    count = len(records)
    kind, entity, seq, id_, time, x, y, terms, readings, body = (
        zip(*records, strict=True) if count else ((),) * len(Record._fields)
    )
    pairs = [None if r is None else list(r.items()) for r in readings]
    columns = [
        [node] * count, range(first_offset, first_offset + count),
        kind, entity, seq, id_, time, x, y, terms, pairs, body,
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(
        [pa.array(list(c), type=f.type) for c, f in zip(columns, RECORD_SCHEMA, strict=True)],
        schema=RECORD_SCHEMA,
    )
