"""Letters of the past for a new subscription: those that it would have received before it was accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from roamcast.archive.reader import Archive, Coverage, CoverageError, Tracks
from roamcast.backtest.covered import archive_end
from roamcast.backtest.evaluate import FOUND_SCHEMA, find, make_letters, prepare, scan
from roamcast.backtest.request import Request, Subscriber
from roamcast.backtest.stream import open_stream
from roamcast.deliver.outbox import LETTERS_SCHEMA
from roamcast.errors import CapacityError
from roamcast.lacl import parse
from roamcast.lacl.syntax import RangLoc
from roamcast.pipeline.query.histories import History

__all__ = ["evaluate_history"]

_MOST: Final = 100_000  # events; the batch waits meanwhile


def evaluate_history(archive: Archive, history: History) -> pa.Table:
    """The letters (LETTERS_SCHEMA) of a history, as far back as the archive goes. See `pipeline.query.histories`.

    They are of records before that of the subscription; the stream makes those of records after it. Of other nodes, the
    stream takes events from the batch of that record on. Raises CoverageError if the archive has nothing of use, and
    CapacityError if too many events match.
    """
    coverage = archive.coverage()
    end = archive_end(coverage) + 2
    begin = max(history.accepted - history.period, _covered_since(coverage))
    tracks = _tracks(archive, history.node, begin, end)
    begin = max(begin, int(pc.max(tracks.snapshot["written"].cast(pa.int64())).as_py()) + 1)
    asked = _asked(archive.histories(history.node, begin), history)
    if asked is None or begin >= end:
        return LETTERS_SCHEMA.empty_table()
    query = parse(history.lacl)
    depends = query.life_control is not None or isinstance(query.location, RangLoc)
    subscriber = Subscriber(history.subscriber if depends else None, node=history.node)  # it may have been unknown then
    prepared = prepare(archive, Request(history.lacl, begin, end, subscriber, history.id), tracks, to_last_record=True)
    with open_stream(prepared.plan.node, prepared.order.records) as stream:
        found, count = [], 0
        for batch in find(stream, prepared.order, scan(archive, prepared.plan.scans)):
            found.append(batch.filter(_are_before(batch, history, asked)))
            count += found[-1].num_rows
            if count > _MOST:
                raise CapacityError(f"more than {_MOST:,} events match", where="since", hint="ask for a shorter time")
        letters = make_letters(stream, prepared, pa.Table.from_batches(found, FOUND_SCHEMA))[0]
        receivers = pa.repeat(pa.scalar(history.subscriber, pa.string()), letters.num_rows)
        return letters.set_column(0, LETTERS_SCHEMA.field(0), receivers)


def _are_before(found: pa.RecordBatch, history: History, asked: int) -> pa.BooleanArray:
    """Which events come before the subscription. If it is not in the batch that asked, it begins the next one."""
    is_own = pc.equal(found["journal"], history.node)
    if history.begins is None:
        return pc.less_equal(found["batch"], asked)
    return pc.if_else(is_own, pc.less(found["journal_offset"], history.begins), pc.less(found["batch"], asked))


def _covered_since(coverage: Mapping[str, Sequence[Coverage]]) -> int:
    """From when on nothing is missing. The records of one time may be on both sides of a gap."""
    gaps = [ranges[-1].begin + 1 for ranges in coverage.values() if ranges[-1].first_offset > 1 or len(ranges) > 1]
    return max(gaps, default=0)


def _tracks(archive: Archive, node: str, begin: int, end: int) -> Tracks:
    """Those from `begin` on, or from the first snapshot after it."""
    try:
        return archive.tracks(node, begin, end)
    except CoverageError:
        later = archive.first_snapshot(node, begin)
        if later is None:
            raise
        return archive.tracks(node, later + 1, end)


def _asked(rows: pa.Table, history: History) -> int | None:
    """The batch of the record that asks for the history; None if it is a copy of an earlier one."""
    rows = rows.filter(pc.equal(rows["offset"], history.offset))
    return int(rows["batch"][0].as_py()) if rows.num_rows else None
