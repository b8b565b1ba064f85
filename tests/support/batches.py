"""The pipeline's batches without Spark: a batch state, driven as the query drives it."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from roamcast.journal.records import EVENT, FORWARDED, LAST_KNOWN, RECORD_SCHEMA, Record, to_batch
from roamcast.pipeline.letters.here import make_letters_here
from roamcast.pipeline.query.batch_state import BatchResult, BatchSettings, BatchState
from roamcast.pipeline.schemas import MATCHED_SCHEMA
from roamcast.pipeline.state.control import ControlRecords, DeadLetter
from roamcast.pipeline.state.manifests import StateFolder
from roamcast.pipeline.tasks.context import MatchContext
from roamcast.pipeline.tasks.match import match_records
from roamcast.pipeline.tasks.match_job import gather_matches, match_shards, route_events

EVENT_KINDS = (EVENT, FORWARDED, LAST_KNOWN)


class Placed(NamedTuple):
    """A record with its offset in a journal."""

    node: str
    offset: int
    record: Record


def placed(records: Sequence[Record], node: str = "local", first: int = 1) -> list[Placed]:
    """Records at consecutive offsets of one node."""
    return [Placed(node, offset, record) for offset, record in enumerate(records, first)]


def is_complete(record: Record) -> bool:
    """Whether an event has everything it needs."""
    point = record.x is not None and record.y is not None and math.isfinite(record.x) and math.isfinite(record.y)
    named = None not in (record.entity, record.id, record.time)
    return point and named and record.seq is not None and record.seq >= 1


def arrow_batches(rows: Sequence[Placed], size: int = 8) -> Iterator[pa.RecordBatch]:
    """In the given order. Up to `size` records at consecutive offsets are together in an Arrow batch, others alone."""
    for _, run in itertools.groupby(enumerate(rows), lambda item: (item[1].node, item[1].offset - item[0])):
        together = [row for _, row in run]
        for first in range(0, len(together), size):
            part = together[first : first + size]
            yield to_batch(part[0].node, part[0].offset, [row.record for row in part])


def unmatched(rows: Sequence[Placed]) -> pa.Table:
    """What tasks return for these events, one at a time, if there are no subscriptions."""
    run = match_records(MatchContext(Path(), 0))
    return pa.Table.from_batches(list(run(arrow_batches(rows, 1))), MATCHED_SCHEMA)


def control(rows: Sequence[Placed]) -> ControlRecords:
    """The control records among these and the terms of events, as the driver reads them."""
    ordered = sorted(rows, key=lambda row: (row.node, row.offset))
    batches = list(arrow_batches([row for row in ordered if row.record.kind not in EVENT_KINDS]))
    terms = [list(row.record.terms or ()) for row in ordered if row.record.kind in EVENT_KINDS]
    sample = pa.array(terms, pa.list_(pa.string()))
    return ControlRecords(pa.Table.from_batches(batches, RECORD_SCHEMA), len(terms), [sample])


def match_rows(context: MatchContext, rows: Sequence[Placed]) -> pa.Table:
    """What tasks return for these records, in either plan."""
    if context.sharded is None:
        return pa.Table.from_batches(list(match_records(context)(arrow_batches(rows))), MATCHED_SCHEMA)
    matches = match_shards(context)(route_events(context)(arrow_batches(rows)))
    events = match_records(context.for_bindings())(arrow_batches(rows))
    return gather_matches(pa.Table.from_batches([*events, *matches], MATCHED_SCHEMA), context.open_subscriptions())


class Batch(NamedTuple):
    """What a batch made: letters by office (LETTERS_SCHEMA)."""

    letters: Mapping[str, pa.Table]
    dead_letters: Sequence[DeadLetter]
    result: BatchResult


class PureStream:
    """Runs batch after batch on a state in `folder`, like the query, without Spark and outbox."""

    def __init__(self, folder: Path, settings: BatchSettings | None = None) -> None:
        self.folder = StateFolder(folder)
        self.settings = settings or BatchSettings()
        self.folder.create("pure", {})
        self.restart()

    def restart(self) -> None:
        """Read the state again."""
        manifest = self.folder.newest()
        assert manifest is not None
        self.state = BatchState(self.folder, manifest, self.settings)

    def run(self, rows: Sequence[Placed]) -> Batch:
        """Process the next batch, its records in the given order."""
        batch = self.attempt(rows)
        self.state.commit(batch.result)
        return batch

    def attempt(self, rows: Sequence[Placed]) -> Batch:
        """Process the next batch, but do not commit it."""
        prepared = self.state.prepare(control(rows), self.state.manifest.batch + 1)
        letters: dict[str, list[pa.Table]] = defaultdict(list)
        matched = match_rows(prepared.context, rows)
        reports = make_letters_here(matched, prepared.letters, lambda office, table: letters[office].append(table))
        result = self.state.compute_result(prepared, reports)
        by_office = {office: pa.concat_tables(tables) for office, tables in letters.items()}
        return Batch(by_office, result.dead_letters, result)
