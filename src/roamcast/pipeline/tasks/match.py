"""Matching in the tasks: events are matched with the subscriptions and bindings of a match context."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Final

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.errors import CorruptionError
from roamcast.journal.records import FORWARDED, LAST_KNOWN, add_home_column, are_events
from roamcast.match.index.index import Candidates
from roamcast.match.port import Events
from roamcast.model import EARLIEST, LATEST, NO_END
from roamcast.pipeline.schemas import MATCHED_SCHEMA, TEXT
from roamcast.pipeline.state.lookups import EndLimits, Integers, KeyRows, TableLookup, Truths
from roamcast.pipeline.state.parts import RESTORE_HINT
from roamcast.pipeline.tasks.context import MatchContext, OpenContext
from roamcast.pipeline.tasks.event_columns import EventColumns, satisfy_on, satisfy_subscriptions
from roamcast.pipeline.tasks.memory import exclude_modules_from_collection

__all__ = [
    "events_to_json", "find_by_handle", "in_first_row", "is_complete", "match_bindings", "match_records",
    "match_subscriptions", "to_lists",
]  # fmt: skip

_LIFE: Final = ("since", "until", "removed_in", "forwarded_until", "drained_in")
_COLUMNS: Final = ("node", *_LIFE, "circle", "area", "source", "on", "space", "moving_radius")
_END_OF_BATCH: Final = NO_END


def match_records(context: MatchContext) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for mapInArrow: it takes records, and returns a row of MATCHED_SCHEMA for each event."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        exclude_modules_from_collection()
        opened = context.open()
        for records in batches:
            yield _match_batch(add_home_column(records.filter(are_events(records["kind"]))), opened, context)

    return run


def _match_batch(records: pa.RecordBatch, opened: OpenContext, context: MatchContext) -> pa.RecordBatch:
    complete = is_complete(records)
    rows = np.flatnonzero(complete.to_numpy(zero_copy_only=False))
    events = records.take(pa.array(rows))
    columns = EventColumns(events)
    subscriptions, scanned = match_subscriptions(columns, opened, context.batch)
    bindings = match_bindings(columns, opened.bindings)
    last_known = pc.equal(events["kind"], LAST_KNOWN).to_numpy(zero_copy_only=False)
    subscriptions, bindings = (pairs.without(last_known) for pairs in (subscriptions, bindings))
    needed = np.unique(
        np.concatenate(
            (
                subscriptions.key,
                bindings.key,
                np.flatnonzero(last_known),
                _newest(events),
                _events_of(events, context.initial_sources),
            )
        )
    )
    json: npt.NDArray[np.object_] = np.full(records.num_rows, None, dtype=np.object_)
    json[rows[needed]] = events_to_json(events.take(pa.array(needed)))
    event = pa.array(json, TEXT)
    values = {
        **{name: records[name] for name in ("node", "offset", "kind", "home", "entity", "seq")},
        "time": records["time"].cast(pa.int64()),
        "complete": complete,
        "event": event,
        "attributes": pc.if_else(pc.is_valid(event), records["body"].cast(TEXT), None),
        "subscriptions": to_lists(subscriptions, rows, records.num_rows),
        "bindings": to_lists(bindings, rows, records.num_rows),
        "postings_scanned": in_first_row(scanned, records.num_rows),
        "load": pa.nulls(records.num_rows, MATCHED_SCHEMA.field("load").type),
    }
    return pa.RecordBatch.from_pydict(values, MATCHED_SCHEMA)


def is_complete(records: pa.RecordBatch) -> pa.Array:
    """Which events have a source, a sequence number, an id, a time between the years 1 and 9999, and a finite point."""
    time = records["time"].cast(pa.int64())
    tests = (
        pc.is_valid(records["entity"]),
        pc.is_valid(records["id"]),
        pc.greater_equal(records["seq"], 1),
        pc.and_(pc.greater_equal(time, EARLIEST), pc.less_equal(time, LATEST)),
        pc.and_(pc.is_finite(records["x"]), pc.is_finite(records["y"])),
    )
    return pc.fill_null(reduce(pc.and_kleene, tests), False)


def match_subscriptions(columns: EventColumns, opened: OpenContext, batch: int) -> tuple[KeyRows, int]:
    """Plan match: pairs of an event and a row of subscriptions, ordered by event; and the postings scanned.

    The `key` of a pair is the index of its event.
    """
    events = columns.events
    points = Events(events["x"].to_numpy(), events["y"].to_numpy(), events["terms"])
    chunks, scanned = [], 0
    for candidates in opened.index.candidates(points):
        chunks.append(_test_candidates(candidates, points, columns, opened, batch))
        scanned += candidates.scanned
    key, row = (np.concatenate(arrays) for arrays in zip(*chunks, strict=True))
    return KeyRows(key, row), scanned


def _test_candidates(
    candidates: Candidates, points: Events, columns: EventColumns, opened: OpenContext, batch: int
) -> KeyRows:
    """The candidates that match."""
    handles, inverse = np.unique(candidates.subscription, return_inverse=True)
    numbers = find_by_handle(handles, opened.subscriptions)
    rows = opened.subscriptions.take(numbers, _COLUMNS)
    offsets = _offsets_at(columns.events, candidates.event, rows["node"].take(pa.array(inverse)))
    # Only these columns are expanded to pairs: conditions and areas may be long.
    life = rows.select(_LIFE).take(pa.array(inverse))
    live = _are_live(columns.events, candidates.event, offsets, life, batch)
    moving = np.flatnonzero(live & pc.is_valid(rows["moving_radius"]).to_numpy()[inverse])
    if len(moving):
        times = _times_at(columns.events, candidates.event[moving])
        pairs = candidates.event[moving], candidates.subscription[moving], offsets[moving], times
        live[moving] = np.logical_or.reduce([is_inside(points, *pairs) for is_inside in opened.moving])
    kept = np.flatnonzero(live)
    kept = kept[satisfy_subscriptions(columns, candidates.event[kept], rows, inverse[kept])]
    return KeyRows(candidates.event[kept], numbers[inverse[kept]])


def find_by_handle(handles: Integers, subscriptions: TableLookup) -> Integers:
    """The rows with these distinct handles, in this order. Raises CorruptionError if one is missing."""
    rows = subscriptions.find(("handle",), [pa.array(handles)]).row
    if len(rows) != len(handles):
        raise CorruptionError("the index has subscriptions that are not in the state", hint=RESTORE_HINT)
    return rows


def _offsets_at(events: pa.RecordBatch, event: Integers, node: pa.ChunkedArray) -> Integers:
    """The offset of each event in the journal of the node beside it.

    Records are ordered within a node only. Events of other nodes count as the end of the batch.
    """
    same_node = pc.equal(node, events["node"].take(pa.array(event))).to_numpy()
    return np.where(same_node, events["offset"].to_numpy()[event], _END_OF_BATCH)


def _times_at(events: pa.RecordBatch, event: Integers) -> Integers:
    """The time of each event that was forwarded; for the others the last position of a moving region counts."""
    is_forwarded = pc.equal(events["kind"], FORWARDED).to_numpy(zero_copy_only=False)[event]
    return np.where(is_forwarded, events["time"].cast(pa.int64()).to_numpy()[event], NO_END)


def _are_live(events: pa.RecordBatch, event: Integers, offsets: Integers, rows: pa.Table, batch: int) -> Truths:
    """Whether each subscription exists for the event beside it, at the offset beside it.

    Events of other nodes match a subscription in every batch in which it existed. Forwarded ones may have been
    published before it was removed: they match until links are drained.
    """
    since = rows["since"].to_numpy()
    ends = (pc.fill_null(rows[name], NO_END).to_numpy() for name in _LIFE[1:])
    until, removed_in, forwarded_until, drained_in = ends
    is_here: Truths = (removed_in >= batch) & ((offsets == _END_OF_BATCH) | ((since < offsets) & (offsets < until)))
    if (forwarded_until == NO_END).all():
        return is_here
    is_forwarded = pc.equal(events["kind"], FORWARDED).to_numpy(zero_copy_only=False)[event]
    time = events["time"].cast(pa.int64()).to_numpy()[event]
    live: Truths = np.where(is_forwarded, (drained_in >= batch) & (time < forwarded_until), is_here)
    return live


def match_bindings(columns: EventColumns, bindings: TableLookup) -> KeyRows:
    """Plan bind: pairs of an event and a row of bindings, ordered by event. The `key` is the index of the event.

    An event sees what its node journalled before it. Of that, a binding counts if it had begun at the time of the
    event and had not ended, and if its `On` holds. The records alone decide this, so the result does not depend on
    where batches are cut. Of records of other nodes, an event sees those up to its batch.
    """
    events = columns.events
    limits = EndLimits(events["offset"].to_numpy(), events["time"].cast(pa.int64()).to_numpy())
    pairs = bindings.find(("home", "source"), (events["home"], events["entity"]), limits)
    if not len(pairs.key):
        return pairs
    rows = bindings.take(pairs.row, ("node", "since", "begin", "on", "until", "end", "final"))
    offset, time = limits.offset[pairs.key], limits.time[pairs.key]
    since, begin = rows["since"].to_numpy(), rows["begin"].to_numpy()
    until, end = (pc.fill_null(rows[name], NO_END).to_numpy() for name in ("until", "end"))
    is_over = pc.fill_null(rows["final"], False).to_numpy() | (time >= end)
    same_node = pc.equal(rows["node"], events["node"].take(pa.array(pairs.key))).to_numpy()
    is_visible = np.where(same_node, (since < offset) & ((offset < until) | ~is_over), ~is_over)
    kept = np.flatnonzero(is_visible & (begin <= time))
    kept = kept[satisfy_on(columns, pairs.key[kept], rows["on"].take(pa.array(kept)))]
    return KeyRows(pairs.key[kept], pairs.row[kept])


def _newest(events: pa.RecordBatch) -> Integers:
    """The event of each source with the highest sequence number, and of duplicates the first by node and offset.

    If that is itself a duplicate of an event of an earlier batch, there is nothing newer here.
    """
    nodes, names = (events[name].dictionary_encode() for name in ("home", "entity"))
    source = nodes.indices.to_numpy() * np.int64(len(names.dictionary)) + names.indices.to_numpy()
    seq, offset = events["seq"].to_numpy(), events["offset"].to_numpy()
    _, node = np.unique(events["node"].to_numpy(zero_copy_only=False), return_inverse=True)
    order = np.lexsort((-offset, -node, seq, source))
    last: Integers = order[np.append(np.diff(source[order]) != 0, True)] if len(order) else order
    return last


def _events_of(events: pa.RecordBatch, sources: frozenset[tuple[str, str]]) -> Integers:
    if not sources:
        return np.empty(0, np.int64)
    pairs = zip(events["home"].to_pylist(), events["entity"].to_pylist(), strict=True)
    return np.flatnonzero([pair in sources for pair in pairs])


def events_to_json(events: pa.RecordBatch) -> list[str]:
    """Each event as receivers read it."""
    columns = (events[name].to_pylist() for name in ("id", "entity", "seq", "time", "x", "y", "terms", "readings"))
    return [
        orjson.dumps(
            {
                "id": id, "source": source, "seq": seq, "time": time, "x": x, "y": y,
                "terms": terms or [], "readings": dict(readings or ()),
            }
        ).decode()
        for id, source, seq, time, x, y, terms, readings in zip(*columns, strict=True)
    ]  # fmt: skip


def in_first_row(total: int, rows: int) -> pa.Array:
    """A column with a total in its first row and 0 in the others."""
    return pa.array(([total] + [0] * (rows - 1))[:rows], pa.int64())


def to_lists(pairs: KeyRows, event_rows: Integers, count: int) -> pa.ListArray:
    """For each of `count` records the list of its rows. `event_rows[e]` is the record of event e = `pairs.key`."""
    lengths = np.bincount(event_rows[pairs.key], minlength=count)
    starts = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    return pa.ListArray.from_arrays(starts, pa.array(pairs.row, pa.int64()))
