"""Every schema of the pipeline: what Spark reads, what executors answer, what the state's tables hold."""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from roamcast.journal.records import RECORD_SCHEMA

__all__ = [
    "RECEIVERS",
    "RECORDS",
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

# What the driver is told of each record: its place, an event's identity and whether it has all it needs, a control
# record's content; and of an event that matched its JSON and the rows of the subscriptions it matched.
SIFTED_SCHEMA: Final = pa.schema(
    [
        pa.field("node", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("kind", pa.string()),
        pa.field("entity", pa.string()),
        pa.field("seq", pa.int64()),
        pa.field("id", pa.string()),
        pa.field("body", pa.string()),
        pa.field("whole", pa.bool_()),
        pa.field("event", pa.string()),
        pa.field("subscriptions", pa.list_(pa.int32())),
    ]
)


class Table(NamedTuple):
    """A table of the state: a row replaces earlier rows with the same key; a row with `removed_in` ends its key."""

    name: str
    keys: tuple[str, ...]
    schema: pa.Schema

    @property
    def removable(self) -> bool:
        return "removed_in" in self.schema.names


# (node, since) is the place of the record that made the subscription: an id that is removed and made again is two rows.
# A removed row still counts in the batch `removed_in`, for that node's events before `until`.
SUBSCRIPTIONS: Final = Table(
    "subscriptions",
    ("node", "since"),
    pa.schema(
        [
            pa.field("node", pa.string()),
            pa.field("since", pa.int64()),
            pa.field("id", pa.string()),
            pa.field("subscriber", pa.string()),
            pa.field("min_x", pa.float64()),
            pa.field("min_y", pa.float64()),
            pa.field("max_x", pa.float64()),
            pa.field("max_y", pa.float64()),
            pa.field("terms", pa.list_(pa.string())),
            pa.field("until", pa.int64()),
            pa.field("removed_in", pa.int64()),
        ]
    ),
)

# The numbers of each source's events that were seen, as ranges. Nodes give ids on their own.
SOURCES: Final = Table(
    "sources",
    ("node", "source"),
    pa.schema([pa.field("node", pa.string()), pa.field("source", pa.string()), pa.field("seen", pa.string())]),
)

# The last number given to a letter for each receiver.
RECEIVERS: Final = Table(
    "receivers",
    ("office", "receiver"),
    pa.schema([pa.field("office", pa.string()), pa.field("receiver", pa.string()), pa.field("last", pa.int64())]),
)

TABLES: Final = (SUBSCRIPTIONS, SOURCES, RECEIVERS)
