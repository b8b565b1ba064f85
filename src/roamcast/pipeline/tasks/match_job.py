"""Matching the events of a batch, in either physical plan: in tasks or, if the batch is small, in the driver.

If the index is partitioned, events are routed to the workers that may hold a match, and matched there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.journal.port import JournalReader, RecordReader
from roamcast.journal.records import EVENT, FORWARDED, add_home_column
from roamcast.match.port import Events
from roamcast.pipeline.schemas import MATCHED_SCHEMA, TEXT, spark_schema
from roamcast.pipeline.state.control import OffsetRanges
from roamcast.pipeline.state.hashing import shards_of
from roamcast.pipeline.state.index_state import Shard
from roamcast.pipeline.state.load import LoadRows
from roamcast.pipeline.state.lookups import Integers, KeyRows, TableLookup
from roamcast.pipeline.tasks.context import MatchContext
from roamcast.pipeline.tasks.event_columns import EventColumns
from roamcast.pipeline.tasks.load import measure_load, restrict_to_owners
from roamcast.pipeline.tasks.match import (
    events_to_json,
    find_by_handle,
    in_first_row,
    is_complete,
    match_records,
    match_subscriptions,
    to_lists,
)
from roamcast.pipeline.tasks.memory import exclude_modules_from_collection
from roamcast.pipeline.tasks.packing import PACKED_SCHEMA, exchange, pack, unpack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "OffsetRange", "TooManyMatchesError", "count_matches", "gather_matches", "match_events", "match_here", "match_rows",
    "match_shards", "read_ranges", "route_events", "split_ranges",
]  # fmt: skip

Batches: TypeAlias = Iterator[pa.RecordBatch]

# A task costs more than reading this many records or segments, so smaller batches are not split.
_RECORDS_PER_TASK: Final = 25_000
_SEGMENTS_PER_TASK: Final = 500

# What the driver matches at a time, to find out early that a batch has too many matches for it.
_ROWS_HERE: Final = 1_000

_MATCHED_KINDS: Final = pa.array([EVENT, FORWARDED])
_ABSENT: Final = ("kind", "seq", "time", "complete", "bindings")


class OffsetRange(NamedTuple):
    """The offsets of one node that one task reads: after < offset <= through."""

    node: str
    after: int
    through: int


def split_ranges(journal: JournalReader, ranges: OffsetRanges) -> list[OffsetRange]:
    """Divide the offsets of a batch among tasks."""
    split: list[OffsetRange] = []
    for node, (after, through) in ranges.items():
        begin = after or journal.first_offset(node) - 1  # a new node starts with the first record that it still has
        segments = journal.segment_count(node, begin, through)
        tasks = max(-(-max(through - begin, 0) // _RECORDS_PER_TASK), -(-segments // _SEGMENTS_PER_TASK))
        bounds = [begin + (through - begin) * task // max(tasks, 1) for task in range(tasks + 1)]
        split += [OffsetRange(node, first, last) for first, last in pairwise(bounds)]
    return split


def read_ranges(journal: RecordReader, ranges: Sequence[OffsetRange]) -> Callable[[Batches], Batches]:
    """Return a function for tasks: it reads those of the ranges whose numbers are in the rows."""

    def read(tasks: Batches) -> Batches:
        for batch in tasks:
            for task in batch["id"].to_pylist():
                yield from journal.read(*ranges[task])

    return read


def match_rows(
    rows: DataFrame, context: MatchContext, read: Callable[[Batches], Batches] = iter, shards: int = 1
) -> DataFrame:
    """Match the events of a batch: rows of MATCHED_SCHEMA, packed by the shards of their sources.

    `read` turns rows into records of the journal, in the tasks; by default, the rows are records. If the index is
    partitioned, what does not need it is done where the events are read. Only events that may match go to the workers
    that hold those subscriptions; `gather_matches` merges what these return.
    """
    schema = spark_schema(PACKED_SCHEMA)
    match = match_records(context if context.sharded is None else context.for_bindings())
    events = rows.mapInArrow(lambda batches: _by_source(match(read(batches)), shards), schema)
    if context.sharded is None:
        return events
    route, match_shard = route_events(context), match_shards(context)
    routed = exchange(rows.mapInArrow(lambda batches: route(read(batches)), schema), len(context.sharded.shards))
    return events.union(routed.mapInArrow(lambda batches: _by_source(match_shard(batches), shards), schema))


def _by_source(batches: Batches, shards: int) -> Batches:
    for rows in batches:
        yield pack(rows, shards_of([pc.fill_null(rows[name], "") for name in ("home", "entity")], shards))


def match_events(rows: DataFrame, context: MatchContext) -> pa.Table:
    """Match records in one Spark job: a row of MATCHED_SCHEMA for each event."""
    packed = match_rows(rows, context).toArrow().to_batches()
    matched = pa.Table.from_batches(unpack(packed), MATCHED_SCHEMA)
    return matched if context.sharded is None else gather_matches(matched, context.open_subscriptions())


class TooManyMatchesError(Exception):
    """A batch has more matches than the driver may hold."""


def match_here(records: Iterable[pa.RecordBatch], context: MatchContext, most: int = sys.maxsize) -> pa.Table:
    """Match the events of a batch in this process: the rows of `match_events`, from the same functions.

    Raises TooManyMatchesError as soon as there are more than `most` matches.
    """
    portions = (batch.slice(row, _ROWS_HERE) for batch in records for row in range(0, batch.num_rows, _ROWS_HERE))
    if context.sharded is None:
        return _gather(match_records(context)(portions), most)
    batches = list(portions)
    events = _gather(match_records(context.for_bindings())(iter(batches)), most)
    matches = _gather(match_shards(context)(route_events(context)(iter(batches))), most - count_matches(events))
    return gather_matches(pa.concat_tables([events, matches]), context.open_subscriptions())


def _gather(batches: Batches, most: int) -> pa.Table:
    """All rows of MATCHED_SCHEMA, unless they have more than `most` matches."""
    rows = []
    for batch in batches:
        rows.append(batch)
        most -= count_matches(batch)
        if most < 0:
            raise TooManyMatchesError
    return pa.Table.from_batches(rows, MATCHED_SCHEMA)


def count_matches(matched: pa.Table | pa.RecordBatch) -> int:
    """The number of matches of both plans in rows of MATCHED_SCHEMA."""
    columns = (matched["subscriptions"], matched["bindings"])
    return sum(pc.sum(pc.list_value_length(column)).as_py() or 0 for column in columns)


def route_events(context: MatchContext) -> Callable[[Batches], Batches]:
    """Return a function for mapInArrow: records in, events out, packed by the workers they go to."""
    routing = context.for_routing()

    def run(batches: Batches) -> Batches:
        exclude_modules_from_collection()
        router = routing.open().router
        for records in batches:
            events = add_home_column(records.filter(pc.is_in(records["kind"], _MATCHED_KINDS)))
            events = events.filter(is_complete(events))
            points = Events(events["x"].to_numpy(), events["y"].to_numpy(), events["terms"])
            routed = restrict_to_owners(routing.partitioning, points, router.route(points))
            workers = pa.array(routed.worker, pa.int32())
            copies = events.take(pa.array(routed.event)).append_column("worker", workers)
            yield pack(copies, routed.worker)

    return run


def match_shards(context: MatchContext) -> Callable[[Batches], Batches]:
    """Return a function for mapInArrow: packed events in, a row of MATCHED_SCHEMA for each event that matched.

    In these rows `complete` is null, and `subscriptions` has handles: row numbers of a shard mean nothing elsewhere.
    """
    shards: tuple[Shard, ...] = context.sharded.shards if context.sharded else ()

    def run(batches: Batches) -> Batches:
        exclude_modules_from_collection()
        for events in unpack(batches):
            for worker in pc.unique(events["worker"]).to_pylist():
                mine = events.filter(pc.equal(events["worker"], worker))
                yield _match_shard(mine, worker, context.for_shard(shards[worker]))

    return run


def _match_shard(events: pa.RecordBatch, worker: int, context: MatchContext) -> pa.RecordBatch:
    opened = context.open()
    pairs, scanned = match_subscriptions(EventColumns(events), opened, context.batch)
    matched = np.unique(pairs.key)
    if not len(matched):  # one row all the same, to report the load
        matched = np.arange(min(events.num_rows, 1))
    chosen = events.take(pa.array(matched))
    handles = opened.subscriptions.take(pairs.row, ("handle",))["handle"].to_numpy()
    absent = pa.nulls(len(matched))
    columns = {
        **{name: chosen[name] for name in ("node", "offset", "home", "entity")},
        **{name: absent.cast(MATCHED_SCHEMA.field(name).type) for name in _ABSENT},
        "event": pa.array(events_to_json(chosen), TEXT),
        "attributes": chosen["body"].cast(TEXT),
        "subscriptions": to_lists(
            KeyRows(np.searchsorted(matched, pairs.key), handles), np.arange(len(matched)), len(matched)
        ),
        "postings_scanned": in_first_row(scanned, len(matched)),
        "load": measure_load(events, worker, pairs.key, handles, scanned, opened, context).to_lists(len(matched)),
    }
    return pa.RecordBatch.from_pydict({name: columns[name] for name in MATCHED_SCHEMA.names}, MATCHED_SCHEMA)


def gather_matches(rows: pa.Table, subscriptions: TableLookup) -> pa.Table:
    """Merge the rows that workers returned for matches into the rows of their events.

    The handles become rows of `subscriptions`.
    """
    is_event = pc.is_valid(rows["complete"])
    events, matches = rows.filter(is_event).combine_chunks(), rows.filter(pc.invert(is_event)).combine_chunks()
    if not matches.num_rows:
        return events
    target = _rows_of_events(matches, events)
    pairs = matches["subscriptions"].combine_chunks()
    lengths = pc.list_value_length(pairs).to_numpy()
    handles, inverse = np.unique(pairs.flatten().to_numpy(), return_inverse=True)
    event, numbers = np.repeat(target, lengths), find_by_handle(handles, subscriptions)[inverse]
    order = np.lexsort((numbers, event))
    matched = np.flatnonzero(lengths)
    # The JSON of an event is taken from one of its matches, or from its own row.
    origin = np.arange(events.num_rows)
    origin[target[matched]] = events.num_rows + matched
    scanned = events["postings_scanned"].to_numpy().copy()
    np.add.at(scanned, target, matches["postings_scanned"].to_numpy())
    columns = {
        "subscriptions": to_lists(KeyRows(event[order], numbers[order]), np.arange(events.num_rows), events.num_rows),
        "postings_scanned": pa.array(scanned, pa.int64()),
        "load": LoadRows.of_matched(matches).to_lists(events.num_rows),
        **{
            name: pa.chunked_array([*events[name].chunks, *matches[name].chunks]).take(pa.array(origin))
            for name in ("event", "attributes")
        },
    }
    for name, column in columns.items():
        events = events.set_column(events.schema.get_field_index(name), MATCHED_SCHEMA.field(name), column)
    return events


def _rows_of_events(matches: pa.Table, events: pa.Table) -> Integers:
    """For each match the row of `events` with its node and offset."""
    nodes, offsets = pc.unique(events["node"]), events["offset"].to_numpy()
    least = offsets.min()
    span = int(offsets.max() - least) + 1
    event_key, match_key = (
        pc.index_in(table["node"], nodes).to_numpy().astype(np.int64) * span + table["offset"].to_numpy() - least
        for table in (events, matches)
    )
    order = np.argsort(event_key)
    rows: Integers = order[np.searchsorted(event_key, match_key, sorter=order)]
    return rows
