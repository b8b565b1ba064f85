"""Every schema of the pipeline: what Spark reads, what executors answer, what the state's tables hold."""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from roamcast.journal.records import RECORD_SCHEMA

__all__ = [
    "BINDINGS",
    "EARLIEST",
    "FORGOTTEN",
    "LATEST",
    "NOTIFIED",
    "POSITIONS",
    "RECEIVERS",
    "RECORDS",
    "ROUTED_SCHEMA",
    "SIFTED_SCHEMA",
    "SOURCES",
    "SUBSCRIPTIONS",
    "TABLES",
    "Table",
    "spark_schema",
]


def spark_schema(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema)


RECORDS: Final = spark_schema(RECORD_SCHEMA)

# Events, with their homes, on their way to a worker that may hold a match.
ROUTED_SCHEMA: Final = RECORD_SCHEMA.append(pa.field("home", pa.string())).append(pa.field("worker", pa.int32()))

# The times that Python has a date for, the years 1 to 9999, in microseconds since 1970.
EARLIEST: Final = -62_135_596_800_000_000
LATEST: Final = 253_402_300_799_999_999

# What the driver is told of each event: its place and identity, and whether it has all it needs. `home` is the node
# that its source `entity` is registered at, `node` the one that took the event in. Of an event that matched, or that is
# the newest of its source, also its JSON; and the subscriptions and bindings that it matched, as rows of the layers of
# their tables. `candidates` are those of the index that were looked at, told with one event for many. Times are
# microseconds since 1970, as in all tables below.
SIFTED_SCHEMA: Final = pa.schema(
    [
        pa.field("node", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("home", pa.string()),
        pa.field("entity", pa.string()),
        pa.field("seq", pa.int64()),
        pa.field("time", pa.int64()),
        pa.field("whole", pa.bool_()),
        pa.field("event", pa.string()),
        pa.field("attributes", pa.string()),
        pa.field("subscriptions", pa.list_(pa.int64())),
        pa.field("bindings", pa.list_(pa.int64())),
        pa.field("candidates", pa.int64()),
    ]
)


# Where subscribers with moving regions were told to be, each in the order of its node.
POSITIONS: Final = pa.schema(
    [
        pa.field("node", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("entity", pa.string()),
        pa.field("time", pa.int64()),
        pa.field("x", pa.float64()),
        pa.field("y", pa.float64()),
    ]
)


# Texts that many rows have. Each lies in a part once.
SHARED: Final = pa.dictionary(pa.int32(), pa.string())


class Table(NamedTuple):
    """A table of the state: a row replaces earlier rows with the same key.

    `order` is a column of numbers in whose order the rows of a part lie; it is another for each key, so that a row is
    found by it without an index.
    """

    name: str
    keys: tuple[str, ...]
    schema: pa.Schema
    order: str | None = None


# (node, since) is the place of the record that made the subscription: an id that is removed and made again is two rows.
# A removed row still counts in the batch `removed_in`, for that node's events before `until`. What is tested after box
# and terms: a `circle` (x, y, radius) in `space`, or the `area` of a `place` (GeoJSON); and the conditions on the
# `source` and `on` readings, as canonical texts. The index knows a row by its `handle`. One that is `around` its
# subscriber has no box; see `regions`.
SUBSCRIPTIONS: Final = Table(
    "subscriptions",
    ("node", "since"),
    pa.schema(
        [
            pa.field("node", pa.string()),
            pa.field("since", pa.int64()),
            pa.field("id", pa.string()),
            pa.field("subscriber", pa.string()),
            pa.field("handle", pa.int64()),
            pa.field("begin", pa.int64()),
            pa.field("min_x", pa.float64()),
            pa.field("min_y", pa.float64()),
            pa.field("max_x", pa.float64()),
            pa.field("max_y", pa.float64()),
            pa.field("terms", pa.list_(pa.string())),
            pa.field("circle", pa.list_(pa.float64())),
            pa.field("place", SHARED),
            pa.field("area", SHARED),
            pa.field("source", SHARED),
            pa.field("on", SHARED),
            pa.field("every", pa.int64()),
            pa.field("space", SHARED),
            pa.field("around", pa.float64()),
            pa.field("until", pa.int64()),
            pa.field("removed_in", pa.int64()),
        ]
    ),
    order="handle",
)

# (node, since) is the place of the record that bound, `until` that of the one that unbound; `begin` and `end` are when.
# The source is registered at node `home`, which may be another: between nodes only time tells what was first.
# Ended bindings are kept for a while, for events that come late. A `final` one, whose subscription was removed, meets
# no event after `until`, whenever that happened.
BINDINGS: Final = Table(
    "bindings",
    ("node", "since"),
    pa.schema(
        [
            pa.field("node", pa.string()),
            pa.field("since", pa.int64()),
            pa.field("id", pa.string()),
            pa.field("subscriber", pa.string()),
            pa.field("home", pa.string()),
            pa.field("source", pa.string()),
            pa.field("begin", pa.int64()),
            pa.field("on", pa.string()),
            pa.field("every", pa.int64()),
            pa.field("until", pa.int64()),
            pa.field("end", pa.int64()),
            pa.field("final", pa.bool_()),
        ]
    ),
)

# Of each source that has had bindings which are kept no more: when the last of these ended.
FORGOTTEN: Final = Table(
    "forgotten",
    ("node", "source"),
    pa.schema([pa.field("node", pa.string()), pa.field("source", pa.string()), pa.field("end", pa.int64())]),
)

# The numbers of each source's events that were seen, as ranges; and its newest event, the one with the highest number,
# with the attributes it had then. Nodes give ids on their own.
SOURCES: Final = Table(
    "sources",
    ("node", "source"),
    pa.schema(
        [
            pa.field("node", pa.string()),
            pa.field("source", pa.string()),
            pa.field("seen", pa.string()),
            pa.field("seq", pa.int64()),
            pa.field("time", pa.int64()),
            pa.field("event", pa.string()),
            pa.field("attributes", pa.string()),
        ]
    ),
)

# The time of the last event that each subscription with `Every` was notified of; none since it was removed.
NOTIFIED: Final = Table(
    "notified",
    ("node", "id"),
    pa.schema([pa.field("node", pa.string()), pa.field("id", pa.string()), pa.field("last", pa.int64())]),
)

# The last number given to a letter for each receiver.
RECEIVERS: Final = Table(
    "receivers",
    ("office", "receiver"),
    pa.schema([pa.field("office", pa.string()), pa.field("receiver", pa.string()), pa.field("last", pa.int64())]),
)

TABLES: Final = (SUBSCRIPTIONS, BINDINGS, FORGOTTEN, SOURCES, NOTIFIED, RECEIVERS)
