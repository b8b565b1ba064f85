"""The schemas of the pipeline: what Spark reads, what tasks return, and the tables of the state.

All times are microseconds since 1970.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = [
    "ADDRESSED_SCHEMA", "BINDINGS", "CATEGORIES", "CORRELATED", "EXPIRED_BINDINGS", "KEY_HASH", "LAST_SENT",
    "MATCHED_SCHEMA", "MEMBERS", "PARTITIONING_TABLES", "PENDING_SCHEMA", "POSITIONS", "RECEIVERS",
    "SHARDED_TABLES", "SOURCES", "SUBSCRIPTIONS", "TABLES", "TEXT", "StateTable", "spark_schema",
]  # fmt: skip


def spark_schema(schema: pa.Schema) -> StructType:
    """Convert a schema for Spark. Tasks do not need this, so it imports Spark only when called."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


# The type of long texts: those of a task, or of a shard, may have more than 2 GiB together.
TEXT: Final = pa.large_string()

# What tasks return for each event. `kind` is that of its record. `home` is the node at which the source `entity` is
# registered, `node` the one that accepted the event. Only a `complete` event is matched. `event` (JSON) and
# `attributes` are set for events that matched, and for the newest event of each source. `subscriptions` and `bindings`
# are the rows that matched, numbered as in `TableLookup`. `postings_scanned` counts the postings of the index that were
# compared; one row has the sum of many. So has `load`, see `state.load`.
MATCHED_SCHEMA: Final = pa.schema(
    [
        pa.field("node", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("kind", pa.string()),
        pa.field("home", pa.string()),
        pa.field("entity", pa.string()),
        pa.field("seq", pa.int64()),
        pa.field("time", pa.int64()),
        pa.field("complete", pa.bool_()),
        pa.field("event", TEXT),
        pa.field("attributes", TEXT),
        pa.field("subscriptions", pa.list_(pa.int64())),
        pa.field("bindings", pa.list_(pa.int64())),
        pa.field("postings_scanned", pa.int64()),
        pa.field(
            "load",
            pa.list_(
                pa.struct([pa.field(name, pa.int64()) for name in ("worker", "unit", "messages", "checks", "matches")])
            ),
        ),
    ]
)

# Letters without a number. (node, offset) is that of the event, or that of the binding that brought an earlier event.
# Letters to a link have an office of their own, no subscription, and the kind of the record that its node makes of the
# event as `why`; only they have the `attributes` of the source. Letters that are `first` come before the others of
# their receiver: they bring an earlier event.
PENDING_SCHEMA: Final = pa.schema(
    [
        pa.field("node", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("time", pa.int64()),
        pa.field("event", TEXT),
        pa.field("attributes", TEXT),
        pa.field("office", pa.string()),
        pa.field("receiver", pa.string()),
        pa.field("subscription", pa.string()),
        pa.field("every", pa.int64()),
        pa.field("why", TEXT),
        pa.field("first", pa.bool_()),
    ]
)

# Events on their way to the shards of their receivers: the columns of PENDING_SCHEMA for a letter, or, with a null
# `receiver`, an event and all of its matches that concern receivers of the `shard`. Those of links are in a row of
# their own, and very many are in several rows, each with its own `bucket`. If a receiver is in several of these, what
# is numbered first is in the lowest.
ADDRESSED_SCHEMA: Final = pa.schema(
    [
        pa.field("shard", pa.int32()),
        pa.field("bucket", pa.int32()),
        pa.field("subscriptions", pa.list_(pa.int64())),
        pa.field("bindings", pa.list_(pa.int64())),
        *PENDING_SCHEMA,
    ]
)

# Positions of subscribers with moving regions, in the order of each node's journal. `begin` and `end` are those of the
# `PositionBody`, null if there is none.
POSITIONS: Final = pa.schema(
    [
        pa.field("node", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("entity", pa.string()),
        pa.field("time", pa.int64()),
        pa.field("x", pa.float64()),
        pa.field("y", pa.float64()),
        pa.field("begin", pa.int64()),
        pa.field("end", pa.int64()),
    ]
)


KEY_HASH: Final = "key_hash"


class StateTable(NamedTuple):
    """A table of the state. A row replaces earlier rows with the same key.

    `order` names a column of integers by which the rows of a part are sorted. Each key has its own value in it, so a
    row is found by binary search, without an index. A table with `shard_by` is divided by the hash of these columns:
    each shard is a stack of parts of its own. Its parts have the hash of the key as well and are sorted by it, so that
    a lookup reads no more of them than it needs.
    """

    name: str
    keys: tuple[str, ...]
    schema: pa.Schema
    order: str | None = None
    shard_by: tuple[str, ...] = ()

    @property
    def stored(self) -> pa.Schema:
        """The schema of its parts."""
        return self.schema.append(pa.field(KEY_HASH, pa.uint64())) if self.shard_by else self.schema


# The type of columns in which many rows have the same text. A part stores each text once.
SHARED: Final = pa.dictionary(pa.int32(), pa.string())

# (node, since) is the offset of the record that created the subscription, so an id that is removed and created again
# has two rows. A removed row still counts in the batch `removed_in`, for events of that node before the offset `until`.
# For forwarded events with a time before `forwarded_until` (null: with any time) it counts up to the batch
# `drained_in`, in which it leaves the index; null if links are not drained yet.
# The index finds box and terms, and knows a row by its `handle`. Tested afterwards are a `circle` (x, y, radius) in
# `space` or the `area` (GeoJSON) of a `place`, the condition `source` on attributes of the source, and the condition
# `on`. Conditions are JSON, see `bodies.encode_condition`; null if there is none. A row with a `moving_radius` has no
# box, see `moving_regions`.
SUBSCRIPTIONS: Final = StateTable(
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
            pa.field("moving_radius", pa.float64()),
            pa.field("until", pa.int64()),
            pa.field("removed_in", pa.int64()),
            pa.field("forwarded_until", pa.int64()),
            pa.field("drained_in", pa.int64()),
        ]
    ),
    order="handle",
)

# The subscription `id` is one of `node`; `source` is the id of a source, which is registered at node `home`. `since`
# and `until` are the offsets of the records that bound and unbound, `begin` and `end` their times. If `home` is another
# node, only times show what came first. An `initial` one also gets the last event
# of its source before it. Ended bindings are kept for a while, for late events. A `final` one, which is to a source of
# the same node and whose subscription was removed, matches no event after `until`, whatever its time.
BINDINGS: Final = StateTable(
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
            pa.field("initial", pa.bool_()),
            pa.field("until", pa.int64()),
            pa.field("end", pa.int64()),
            pa.field("final", pa.bool_()),
        ]
    ),
)

# For each source whose ended bindings were deleted: when the last of these ended. `node` is the home of the source.
EXPIRED_BINDINGS: Final = StateTable(
    "expired_bindings",
    ("node", "source"),
    pa.schema([pa.field("node", pa.string()), pa.field("source", pa.string()), pa.field("end", pa.int64())]),
    shard_by=("node", "source"),
)

# The sequence numbers seen of each source, as ranges; and its event with the highest number, with the attributes that
# the source had then. `node` is the home of the source: nodes assign ids independently.
SOURCES: Final = StateTable(
    "sources",
    ("node", "source"),
    pa.schema(
        [
            pa.field("node", pa.string()),
            pa.field("source", pa.string()),
            pa.field("seen", TEXT),
            pa.field("seq", pa.int64()),
            pa.field("time", pa.int64()),
            pa.field("event", TEXT),
            pa.field("attributes", TEXT),
        ]
    ),
    shard_by=("node", "source"),
)

# The time of the last event sent to each subscription with `Every`; null once the subscription was removed.
# `node` is the node of the subscription, `receiver` its subscriber there: all that concerns a receiver is in one shard.
LAST_SENT: Final = StateTable(
    "last_sent",
    ("node", "id", "receiver"),
    pa.schema([*(pa.field(name, pa.string()) for name in ("node", "id", "receiver")), pa.field("last", pa.int64())]),
    shard_by=("receiver",),
)

# The last letter number of each receiver.
RECEIVERS: Final = StateTable(
    "receivers",
    ("office", "receiver"),
    pa.schema([pa.field("office", pa.string()), pa.field("receiver", pa.string()), pa.field("last", pa.int64())]),
    shard_by=("receiver",),
)

# DRt-Cluster: the category of each subscription in the index; -1 once it has left.
MEMBERS: Final = StateTable(
    "members",
    ("handle",),
    pa.schema([pa.field("handle", pa.int64()), pa.field("category", pa.int64())]),
    order="handle",
)

# DRt-Cluster: the worker of each category (-1 if there is no such category any more), its load since the last
# balancing, and its bounding box, which does not shrink when members leave.
CATEGORIES: Final = StateTable(
    "categories",
    ("category",),
    pa.schema(
        [
            *(pa.field(name, pa.int64()) for name in ("category", "worker", "load")),
            *(pa.field(name, pa.float64()) for name in ("min_x", "min_y", "max_x", "max_y")),
        ]
    ),
    order="category",
)

# DRt-Cluster: subscriptions that an event matched, for the last sampled events. `line` is used again and again.
CORRELATED: Final = StateTable(
    "correlated",
    ("line",),
    pa.schema([pa.field("line", pa.int64()), pa.field("handles", pa.list_(pa.int64()))]),
    order="line",
)

TABLES: Final = (SUBSCRIPTIONS, BINDINGS, EXPIRED_BINDINGS, SOURCES, LAST_SENT, RECEIVERS)
SHARDED_TABLES: Final = tuple(table for table in TABLES if table.shard_by)
PARTITIONING_TABLES: Final = (MEMBERS, CATEGORIES, CORRELATED)
