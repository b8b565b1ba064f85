"""What `roamcast match --explain` shows: the plan of a run in words, and what its tasks have counted."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from pyspark import SparkFiles
from pyspark.accumulators import Accumulator, AccumulatorParam

from roamcast.match.index.index import Index
from roamcast.spark.tasks.index_files import IndexFiles
from roamcast.spark.tasks.local import LocalFrame
from roamcast.spark.tasks.tally import Tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Explanation", "ReportAccumulator", "TaskReport", "explain_run", "new_reports", "report_task"]

_COUNTS: Final = ("events", "matches", "scanned")


class TaskReport(NamedTuple):
    """What a task has done: events it got and the bytes of their columns, postings it compared, and matches.

    `executor` names the process that ran it. `seconds` includes waiting for events and for whoever takes the
    matches.
    """

    executor: str
    events: int
    input_bytes: int
    scanned: int
    matches: int
    seconds: float


Reports: TypeAlias = tuple[TaskReport, ...]


class _Concatenated(AccumulatorParam[Reports]):
    def zero(self, value: Reports) -> Reports:
        return ()

    def addInPlace(self, value1: Reports, value2: Reports) -> Reports:  # noqa: N802 - Spark's name
        return (*value1, *value2)


if TYPE_CHECKING:
    ReportAccumulator: TypeAlias = Accumulator[Reports]
else:
    ReportAccumulator = Accumulator


def new_reports(spark: SparkSession) -> ReportAccumulator:
    """Spark adds the report of each task of a job's last stage once, also if the task is repeated."""
    return spark.sparkContext.accumulator((), _Concatenated())


class TaskCounts:
    """Counts of a task, to be added to as it goes on."""

    events = 0
    input_bytes = 0
    matches = 0

    def add(self, tally: Tally, input_bytes: int) -> None:
        self.events += tally.events
        self.input_bytes += input_bytes
        self.matches += tally.matches


@contextmanager
def report_task(reports: ReportAccumulator | None, index: Index | None) -> Iterator[TaskCounts]:
    """Add the report of a task if it ends well. `index` counts what it compares, for one task at a time."""
    counts, before, started = TaskCounts(), 0 if index is None else index.scanned, time.monotonic()
    yield counts
    if reports is not None and index is not None:
        place = SparkFiles.getRootDirectory() if SparkFiles._is_running_on_worker else os.getpid()
        executor = f"{socket.gethostname()}:{place}"
        scanned, seconds = index.scanned - before, time.monotonic() - started
        reports.add((TaskReport(executor, counts.events, counts.input_bytes, scanned, counts.matches, seconds),))


class Spread(NamedTuple):
    """How a figure is spread over tasks."""

    total: float
    median: float
    max: float

    @property
    def skew(self) -> float | None:
        """The largest task in medians; None if more than half of the tasks have nothing."""
        return self.max / self.median if self.median else None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The steps of a run, in words, and its figures. Everything was counted in this run."""

    steps: tuple[str, ...]
    subscriptions: int
    segments: int
    postings: int
    index_bytes: int
    shipped_bytes: int
    input_bytes: int
    executors: int
    tasks: int
    spread: dict[str, Spread]

    @property
    def scanned_per_match(self) -> float | None:
        """Candidates: postings that were compared, for each match."""
        matches = self.spread["matches"].total
        return self.spread["scanned"].total / matches if matches else None

    def to_json(self) -> dict[str, Any]:
        figures = {name: getattr(self, name) for name in self.__slots__ if name not in ("steps", "spread")}
        spread = {name: {**each._asdict(), "skew": each.skew} for name, each in self.spread.items()}
        return {"plan": [*self.steps], **figures, "scanned_per_match": self.scanned_per_match, "per_task": spread}

    def __str__(self) -> str:
        lines = [f"{number}. {step}" for number, step in enumerate(self.steps, start=1)]
        per_match = "no matches" if self.scanned_per_match is None else f"{self.scanned_per_match:,.2f} per match"
        lines += [
            f"index: {_n(self.subscriptions, 'subscription')}, {_n(self.segments, 'segment')}, "
            f"{_n(self.postings, 'posting')}, {_n(self.index_bytes, 'byte')}",
            f"shipped: {_n(self.shipped_bytes, 'byte')} of the index to executors; "
            f"{_n(self.input_bytes, 'byte')} of events to Python",
            f"candidates: {_n(self.spread['scanned'].total, 'posting')} compared, {per_match}",
            f"{_n(self.tasks, 'task')} on {_n(self.executors, 'executor')}",
        ]
        for name, each in self.spread.items():
            skew = "" if each.skew is None else f", skew {each.skew:.2f}"
            lines.append(f"{name} by task: median {_n(each.median)}, most {_n(each.max)}{skew}")
        return "\n".join(lines)


def _n(number: float, noun: str = "") -> str:
    text = f"{number:,.0f}" if number == int(number) else f"{number:,.1f}"
    return f"{text} {noun}{'' if number == 1 else 's'}" if noun else text


def explain_run(
    events: DataFrame, files: IndexFiles, reports: Reports, sources: tuple[str, str], target: str
) -> Explanation:
    """Explain a run that has ended. `sources` and `target` name events, subscriptions and the result."""
    index, folder = files.open().subscriptions, Path(files.folder)
    size = sum((folder / name).stat().st_size for name in files.names)
    executors = {report.executor for report in reports}
    shipped = size * len(executors) if files.distributed else 0
    spread = {name: _spread([getattr(report, name) for report in reports]) for name in (*_COUNTS, "seconds")}
    if isinstance(events, LocalFrame):
        steps: tuple[str, ...] = (
            f"this process, without Spark, reads subscriptions from {sources[1]} and builds an index of them",
            f"{_n(len(reports), 'thread')} share the {_n(len(events.groups), 'row group')} of {sources[0]}",
            f"each thread looks events up in the index, and writes its matches to {target}",
        )
    else:
        plan = events._jdf.queryExecution().executedPlan().toString()
        shuffles = len(re.findall(r"\bExchange\b", plan))
        way = f"Spark sends it to {_n(len(executors), 'executor')}" if files.distributed else "executors map its files"
        steps = (
            f"the driver reads subscriptions from {sources[1]} and builds an index of them; {way}",
            f"{_n(len(reports), 'task')} for the events of {sources[0]}, {_n(shuffles, 'shuffle')} of them",
            "each task passes its events to Python as Arrow batches, and looks them up in the index",
            f"each task writes its matches to {target}; rows are not shuffled",
        )
    return Explanation(
        steps, files.size, index.segment_count, index.posting_count, size, shipped,
        sum(report.input_bytes for report in reports), len(executors), len(reports), spread,
    )  # fmt: skip


def _spread(values: Sequence[float]) -> Spread:
    return Spread(sum(values), median(values or [0]), max(values, default=0))
