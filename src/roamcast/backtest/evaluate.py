"""A backtest from beginning to end: plan, find events, make letters, and say whether they are exact."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from roamcast.archive.reader import Archive, Tracks
from roamcast.backtest.covered import archive_end, check_covered
from roamcast.backtest.exactness import Facts, reasons
from roamcast.backtest.order import ORIGIN, Order
from roamcast.backtest.plan import Plan, Scan, SourceKey, make_plan
from roamcast.backtest.request import Request
from roamcast.backtest.stream import Stream, open_stream
from roamcast.journal.records import EVENT, FORWARDED, RECORD_SCHEMA
from roamcast.model import split_name
from roamcast.pipeline.schemas import MATCHED_SCHEMA

__all__ = [
    "COLUMNS", "FOUND_SCHEMA", "Backtest", "Prepared", "backtest", "find", "find_earlier", "last_events",
    "make_letters", "prepare", "scan",
]  # fmt: skip

FOUND_SCHEMA: Final = pa.schema([*MATCHED_SCHEMA, *ORIGIN])
"""Events that may make letters: what matching says of them, and which records of the archive they are."""

COLUMNS: Final = (*RECORD_SCHEMA.names, "batch", "written")
"""The columns of the archive that a backtest reads."""

_DAY: Final = 24 * 3600 * 1_000_000
_ROWS: Final = 10_000  # matched at a time
_KINDS: Final = pa.array([EVENT, FORWARDED])


class Backtest(NamedTuple):
    """The letters (LETTERS_SCHEMA) in the order of their numbers; and why they may differ from those of the stream.

    Without a reason to differ they are the letters that the stream would have made until `end`: the end of the request,
    or that of the archive. `events` counts those that were compared with the subscription.
    """

    letters: pa.Table
    approximate: tuple[str, ...]
    events: int
    end: int


def backtest(archive: Archive, request: Request) -> Backtest:
    """The letters that a subscription would have made. Raises as `prepare`."""
    prepared = prepare(archive, request)
    counted = _Counted(scan(archive, prepared.plan.scans))
    with open_stream(prepared.plan.node, prepared.order.records) as stream:
        found = [*find(stream, prepared.order, counted), *find_earlier(archive, stream, prepared)]
        letters, approximate = make_letters(stream, prepared, pa.Table.from_batches(found, FOUND_SCHEMA), archive)
    return Backtest(letters, approximate, counted.rows, prepared.request.end)


class Prepared(NamedTuple):
    """A backtest before any event is read. The request ends where the archive ends, at the latest."""

    request: Request
    plan: Plan
    order: Order
    facts: Facts


def prepare(
    archive: Archive, request: Request, tracks: Tracks | None = None, *, to_last_record: bool = False
) -> Prepared:
    """Make the plan. `tracks` are those of the node from the beginning of the request on, if they are known.

    The archive may end amid the records of one time, which are left out, if not `to_last_record`.

    Raises CoverageError if the archive does not have the beginning, or has gaps; and as `make_plan`.
    """
    facts = Facts.of(archive)
    end = min(request.end, archive_end(facts.coverage) + (2 if to_last_record else 1))
    check_covered(facts.coverage, request.begin, end)
    request = replace(request, end=end)
    plan = make_plan(archive, request, tracks)
    others = [each for node, ranges in facts.coverage.items() if node != plan.node for each in ranges]
    order = Order(plan.node, plan.caused, sum(each.last_offset - each.first_offset + 1 for each in others))
    return Prepared(request, plan, order, facts)


def make_letters(
    stream: Stream, prepared: Prepared, found: pa.Table, archive: Archive | None = None
) -> tuple[pa.Table, tuple[str, ...]]:
    """The letters of all events that were found, and why they may differ from those of the stream: see `reasons`."""
    settled = prepared.order.settle(found)
    why = reasons(prepared.facts, prepared.request, prepared.plan, stream, found, settled, archive)
    return stream.letters(settled), tuple(why)


def scan(archive: Archive, scans: Iterable[Scan]) -> Iterator[pa.RecordBatch]:
    """The events of the archive that may matter."""
    for begin, end, box, sources in scans:
        yield from archive.events(begin, end, box=box, sources=sources, columns=COLUMNS)


def find_earlier(archive: Archive, stream: Stream, prepared: Prepared) -> Iterator[pa.RecordBatch]:
    """As `find`, for the last events before the subscription that a first binding may bring."""
    if prepared.plan.initial:
        last = last_events(archive, prepared.plan.initial, prepared.request.begin)
        yield from find(stream, prepared.order, last.to_batches(), earlier=True)


def last_events(archive: Archive, sources: Collection[SourceKey], before: int) -> pa.Table:
    """The event of each source that has the highest number of those written before a time; perhaps others as well.

    The archive looks at the last day of a source. Had its events of that day happened before it, an earlier day may
    have a higher number.
    """
    rows = archive.newest_events(sources, before)
    tables = [rows]
    days = (rows["written"].cast(pa.int64()).to_numpy() // _DAY * _DAY).tolist()
    columns = (rows[name].to_pylist() for name in ("node", "entity"))
    times = rows["time"].cast(pa.int64()).to_pylist()
    for node, entity, time, day in zip(*columns, times, days, strict=True):
        if time < day:
            id, home = split_name(entity)
            tables.append(last_events(archive, [(home or node, id)], day))
    return pa.concat_tables(tables)


def find(
    stream: Stream, order: Order, batches: Iterable[pa.RecordBatch], *, earlier: bool = False
) -> Iterator[pa.RecordBatch]:
    """Rows of FOUND_SCHEMA for those of these events that match, or are of a source whose last event may be needed.

    `earlier` events come before the subscription.
    """
    portions = deque[pa.RecordBatch]()

    def rehomed() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            events = batch.filter(pc.is_in(batch["kind"], _KINDS))
            for first in range(0, events.num_rows, _ROWS):
                portions.append(events.slice(first, _ROWS))
                yield order.rehome(portions[-1], earlier=earlier)

    sources = pa.array([f"{binding['home']}@{binding['source']}" for binding in stream.initial], pa.string())
    for matched in stream.match(rehomed()):
        rows = portions.popleft()
        matches = pc.add(*(pc.list_value_length(matched[name]) for name in ("subscriptions", "bindings")))
        is_kept = pc.greater(matches, 0)
        if len(sources):
            names = pc.binary_join_element_wise(matched["home"], matched["entity"], "@")
            is_kept = pc.or_(is_kept, pc.is_in(names, sources))
        columns = [*matched.columns, rows["node"], rows["offset"], rows["batch"], rows["written"].cast(pa.int64())]
        found = pa.RecordBatch.from_arrays(columns, schema=FOUND_SCHEMA).filter(is_kept)
        if found.num_rows:
            yield found


class _Counted:
    """Counts the rows of batches."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.rows += batch.num_rows
            yield batch
