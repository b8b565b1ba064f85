"""What tasks do: match the events of a partition, and make rows of the result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa

from roamcast.match.port import Matches
from roamcast.pipeline.tasks.memory import exclude_modules_from_collection
from roamcast.spark.rows.columns import combine
from roamcast.spark.rows.events import CheckedEvents, EventReader
from roamcast.spark.rows.problems import PROBLEM, BadRowError, OnBadRows, Problems, describe_row, problem_column
from roamcast.spark.tasks.explain import ReportAccumulator, TaskCounts, report_task
from roamcast.spark.tasks.index_files import IndexFiles, OpenIndex
from roamcast.spark.tasks.tally import Tally, TallyAccumulator

__all__ = ["EVENTS_AT_ONCE", "MatchTask", "ResultColumn"]

EVENTS_AT_ONCE: Final = 50_000
_BYTES_AT_ONCE: Final = 64 << 20
_ROWS_OUT: Final = 100_000

Batches: TypeAlias = Iterator[pa.RecordBatch]


class ResultColumn(NamedTuple):
    """A column of the result: one of the events that are passed on, or one of the rows of subscriptions."""

    name: str
    of_event: bool
    position: int


class MatchTask(NamedTuple):
    """How to match events: what reads them, the index, the columns of the result, and what to do with bad rows.

    With "collect", the result also has the events that are bad rows, and as last column the problem of each; without
    an index it has nothing else.
    """

    reader: EventReader
    files: IndexFiles | None
    columns: tuple[ResultColumn, ...]
    on_bad_rows: OnBadRows
    tally: TallyAccumulator | None = None
    reports: ReportAccumulator | None = None

    def run(self, batches: Batches) -> Batches:
        """The function for mapInArrow."""
        exclude_modules_from_collection()
        opened = self.files and self.files.open()
        with report_task(self.reports, opened and opened.subscriptions) as counts:
            yield from self._run(batches, opened, counts)

    def _run(self, batches: Batches, opened: OpenIndex | None, counts: TaskCounts) -> Batches:
        for batch in _regroup(batches):
            events = self.reader.read(batch)
            tally = Tally(batch.num_rows, len(events.problems))
            if events.problems:
                if self.on_bad_rows == "fail":
                    raise self._error(batch, events.problems)
                if self.on_bad_rows == "collect":
                    yield self._bad_rows(events, opened)
                events = events.without_bad()
            if opened is not None:
                for matches in opened.matches(events.points, events.fields):
                    tally = tally._replace(matches=tally.matches + len(matches.event))
                    yield from self._rows(events, opened, matches)
            if self.tally is not None:
                self.tally.add(tally)
            counts.add(tally, batch.nbytes)

    def _error(self, batch: pa.RecordBatch, problems: Problems) -> BadRowError:
        row = min(problems)
        content = describe_row(self.reader.names, batch.columns, row)
        hint = "fix the row, or pass on_bad_rows='skip' or 'collect'"
        return BadRowError(f"{problems[row]}: {content}", where="events", hint=hint)

    def _rows(self, events: CheckedEvents, opened: OpenIndex, matches: Matches) -> Batches:
        for first in range(0, len(matches.event), _ROWS_OUT):
            event, row = (pa.array(rows[first : first + _ROWS_OUT]) for rows in matches)
            yield self._batch(
                events.passed.column(column.position).take(event)
                if column.of_event
                else combine(opened.rows.column(column.position).take(row))
                for column in self.columns
            )

    def _bad_rows(self, events: CheckedEvents, opened: OpenIndex | None) -> pa.RecordBatch:
        bad = sorted(events.problems)
        rows = pa.array(bad, pa.int64())
        columns = [
            pa.nulls(len(bad), opened.rows.schema.field(column.position).type)
            if opened is not None and not column.of_event
            else events.passed.column(column.position).take(rows)
            for column in self.columns
        ]
        return self._batch(columns, problem_column(events.problems, bad))

    def _batch(self, columns: Iterable[pa.Array], problems: pa.Array | None = None) -> pa.RecordBatch:
        arrays, names = list(columns), [column.name for column in self.columns]
        if self.on_bad_rows == "collect":
            arrays.append(pa.nulls(len(arrays[0]), pa.string()) if problems is None else problems)
            names.append(PROBLEM)
        return pa.RecordBatch.from_arrays(arrays, names)


def _regroup(batches: Batches) -> Batches:
    """Join small batches: Spark's have 10,000 rows, and more are matched faster together."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(each.num_rows for each in held) >= EVENTS_AT_ONCE or sum(b.nbytes for b in held) >= _BYTES_AT_ONCE:
            yield from _join(held)
            held = []
    if held:
        yield from _join(held)


def _join(batches: list[pa.RecordBatch]) -> Batches:
    if len(batches) == 1:
        yield batches[0]
    else:
        yield from pa.Table.from_batches(batches).combine_chunks().to_batches()
