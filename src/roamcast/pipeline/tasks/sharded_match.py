"""The partitioned plan in Spark: events are routed to the workers that may hold a match, and matched there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from roamcast.journal.records import EVENT, with_homes
from roamcast.match.port import Events
from roamcast.pipeline.schemas import ROUTED_SCHEMA, SIFTED_SCHEMA, spark_schema
from roamcast.pipeline.state.lookups import Found, Integers, Lookups
from roamcast.pipeline.state.shards import Partition
from roamcast.pipeline.tasks.event_columns import Facts
from roamcast.pipeline.tasks.match import Sieve, as_json, fetched, has_all_it_needs, lists, match, rows_with, sift

__all__ = ["gathered", "match_share", "route", "sifted_by"]

Batches = Iterator[pa.RecordBatch]

_ABSENT: Final = ("home", "entity", "seq", "time", "whole", "bindings")


def sifted_by(records: DataFrame, sieve: Sieve) -> pa.Table:
    """What the executors make of the records, in whichever plan: a row of SIFTED_SCHEMA for each event. One Spark job.

    Partitioned: what does not depend on the index is done where the events are read; those that somebody may want go on
    to the workers that hold these subscriptions.
    """
    partition = sieve.partition
    if partition is None:
        return records.mapInArrow(sift(sieve), spark_schema(SIFTED_SCHEMA)).toArrow()
    alone = sieve._replace(subscriptions=(), stack=(), moving=())
    told = records.mapInArrow(sift(alone), spark_schema(SIFTED_SCHEMA))
    messages = records.mapInArrow(route(sieve, partition), spark_schema(ROUTED_SCHEMA))
    by_worker = messages.repartitionById(len(partition.shares), "worker")
    found = by_worker.mapInArrow(match_share(sieve, partition), spark_schema(SIFTED_SCHEMA))
    return gathered(told.union(found).toArrow(), sieve.open_subscriptions())


def route(sieve: Sieve, partition: Partition) -> Callable[[Batches], Batches]:
    """A function for mapInArrow: records in, a row of ROUTED_SCHEMA for each event and worker that may hold a match."""
    needed = sieve._replace(subscriptions=(), bindings=(), stack=(), moving=(), routes=partition.routes)

    def run(batches: Batches) -> Batches:
        router = fetched(needed).router
        for records in batches:
            events = with_homes(records.filter(pc.equal(records["kind"], EVENT)))
            events = events.filter(has_all_it_needs(events))
            found = router.route(Events(events["x"].to_numpy(), events["y"].to_numpy(), events["terms"]))
            sent = events.take(pa.array(found.event))
            yield pa.RecordBatch.from_arrays([*sent.columns, pa.array(found.worker, pa.int32())], schema=ROUTED_SCHEMA)

    return run


def match_share(sieve: Sieve, partition: Partition) -> Callable[[Batches], Batches]:
    """A function for mapInArrow: rows of ROUTED_SCHEMA in; for each event that matched a row of SIFTED_SCHEMA out.

    It has `whole` absent, and handles for subscriptions: rows of a share mean nothing to others.
    """

    def run(batches: Batches) -> Batches:
        for events in batches:
            for worker in pc.unique(events["worker"]).to_pylist():
                share = partition.shares[worker]
                mine = sieve._replace(subscriptions=share.rows, bindings=(), stack=share.stack)
                yield _found(events.filter(pc.equal(events["worker"], worker)), mine)

    return run


def _found(events: pa.RecordBatch, sieve: Sieve) -> pa.RecordBatch:
    state = fetched(sieve)
    found, scanned = match(Facts(events), state, sieve.batch)
    told = np.unique(found.key)
    if not len(told):  # the work is told all the same
        told = np.arange(min(events.num_rows, 1))
    chosen = events.take(pa.array(told))
    handles = state.subscriptions.take(found.row, ("handle",))["handle"].to_numpy()
    absent = pa.nulls(len(told))
    columns = {
        **{name: chosen[name] for name in ("node", "offset")},
        **{name: absent.cast(SIFTED_SCHEMA.field(name).type) for name in _ABSENT},
        "event": pa.array(as_json(chosen), pa.string()),
        "attributes": chosen["body"],
        "subscriptions": lists(Found(np.searchsorted(told, found.key), handles), np.arange(len(told)), len(told)),
        "candidates": pa.array(([scanned] + [0] * (len(told) - 1))[: len(told)], pa.int64()),
    }
    return pa.RecordBatch.from_pydict({name: columns[name] for name in SIFTED_SCHEMA.names}, SIFTED_SCHEMA)


def gathered(told: pa.Table, subscriptions: Lookups) -> pa.Table:
    """The rows of events, with what workers found of each, as rows of `subscriptions`."""
    is_event = pc.is_valid(told["whole"])
    events, found = told.filter(is_event).combine_chunks(), told.filter(pc.invert(is_event)).combine_chunks()
    if not found.num_rows:
        return events
    at = _places_of(found, events)
    pairs = found["subscriptions"].combine_chunks()
    each = pc.list_value_length(pairs).to_numpy()
    handles, place = np.unique(pairs.flatten().to_numpy(), return_inverse=True)
    event, rows = np.repeat(at, each), rows_with(handles, subscriptions)[place]
    order = np.lexsort((rows, event))
    matched = np.flatnonzero(each)
    # An event has the text of one of those that matched it, or its own.
    source = np.arange(events.num_rows)
    source[at[matched]] = events.num_rows + matched
    columns = {
        "subscriptions": lists(Found(event[order], rows[order]), np.arange(events.num_rows), events.num_rows),
        "candidates": _added(events["candidates"].to_numpy(), at, found["candidates"].to_numpy()),
        **{
            name: pa.chunked_array([*events[name].chunks, *found[name].chunks]).take(pa.array(source))
            for name in ("event", "attributes")
        },
    }
    for name, column in columns.items():
        events = events.set_column(events.schema.get_field_index(name), SIFTED_SCHEMA.field(name), column)
    return events


def _places_of(some: pa.Table, events: pa.Table) -> Integers:
    """For each of `some` the number of the row of `events` that has its node and offset."""
    nodes, offsets = pc.unique(events["node"]), events["offset"].to_numpy()
    least = offsets.min()
    span = int(offsets.max() - least) + 1
    ours, theirs = (
        pc.index_in(table["node"], nodes).to_numpy().astype(np.int64) * span + table["offset"].to_numpy() - least
        for table in (events, some)
    )
    order = np.argsort(ours)
    places: Integers = order[np.searchsorted(ours, theirs, sorter=order)]
    return places


def _added(counts: Integers, at: Integers, more: Integers) -> pa.Array:
    total = counts.copy()
    np.add.at(total, at, more)
    return pa.array(total, pa.int64())
