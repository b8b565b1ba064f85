"""Making the letters of a batch in one Spark job, by tasks that write them. `here` does the same in the driver.

Events are addressed by shards of sources, and letters are made by shards of receivers. The driver gets no more than
what the tasks report: names of files, and sums.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.errors import PySparkException

from roamcast.deliver.outbox import LetterFiles, letter_path
from roamcast.errors import CorruptionError, StorageError
from roamcast.journal.port import RecordReader
from roamcast.journal.records import split_by_size
from roamcast.match.warm_up import warm_up
from roamcast.pipeline.letters.by_receiver import make_letters
from roamcast.pipeline.letters.by_source import address_events
from roamcast.pipeline.letters.context import LetterContext, LetterReport
from roamcast.pipeline.schemas import (
    ADDRESSED_SCHEMA,
    EXPIRED_BINDINGS,
    LAST_SENT,
    MATCHED_SCHEMA,
    RECEIVERS,
    SOURCES,
    spark_schema,
)
from roamcast.pipeline.state.control import Row
from roamcast.pipeline.state.hashing import shards_of
from roamcast.pipeline.tasks.context import MatchContext
from roamcast.pipeline.tasks.match_job import OffsetRange, gather_matches, match_rows, read_ranges
from roamcast.pipeline.tasks.memory import exclude_modules_from_collection
from roamcast.pipeline.tasks.packing import PACKED_SCHEMA, exchange, pack, unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["make_letters_by_job", "warm_up_by_job"]

Batches: TypeAlias = Iterator[pa.RecordBatch]

_ROWS: Final = 10_000
_BYTES: Final = 64 << 20
_REPORT: Final = "report"
_ADDRESSED_SCHEMA: Final = PACKED_SCHEMA.append(pa.field(_REPORT, pa.binary()))
_REPORT_SCHEMA: Final = pa.schema([pa.field(_REPORT, pa.binary())])


def make_letters_by_job(
    spark: SparkSession, journal: RecordReader, ranges: Sequence[OffsetRange], context: LetterContext, outbox: Path
) -> list[LetterReport]:
    """Match the events in these ranges of the journal, and write the letters, in one Spark job.

    Executors on other hosts put the files into the `outbox` of the driver.
    """
    rows = spark.range(0, len(ranges), 1, len(ranges))
    matched = match_rows(rows, context.match, read_ranges(journal, ranges), context.shards)
    addressed = exchange(matched, context.shards).mapInArrow(_address(context), spark_schema(_ADDRESSED_SCHEMA))
    made = exchange(addressed, context.shards).mapInArrow(_make(context, outbox), spark_schema(_REPORT_SCHEMA))
    with _errors_of_tasks(outbox):
        return [LetterReport.from_json(report) for report in made.toArrow()[_REPORT].to_pylist()]


def warm_up_by_job(spark: SparkSession) -> None:
    """Run such a job without events. It leaves Spark with Python processes that have loaded what tasks need."""
    tasks = spark.sparkContext.defaultParallelism
    context = LetterContext(MatchContext(Path(), 0), shards=tasks)
    make_letters_by_job(spark, _WarmUp(), [OffsetRange("", 0, 0)] * tasks, context, Path())


class _WarmUp:
    """A journal without records. Reading it loads the kernels of matching."""

    def read(self, node: str, after: int, through: int) -> Iterator[pa.RecordBatch]:
        _load_kernels()
        yield from ()


@cache
def _load_kernels() -> None:
    warm_up()


@contextmanager
def _errors_of_tasks(outbox: Path) -> Iterator[None]:
    """Convert what Spark says of a task that could not read or write, if the driver can do something about it."""
    try:
        yield
    except PySparkException as error:
        ours = re.findall(r"roamcast\.errors\.(\w+): (.*)", str(error))
        for kind in (StorageError, CorruptionError):
            if ours and ours[-1][0] == kind.__name__:
                raise kind(ours[-1][1]) from error
        if not ours and (message := os.strerror(errno.ENOSPC)) in str(error):
            raise StorageError(message, where=str(outbox), hint="free some disk space") from error
        raise


def _address(context: LetterContext) -> Callable[[Batches], Batches]:
    """The task of a shard of sources: rows of ADDRESSED_SCHEMA, packed by shards of receivers, and a report."""

    def run(batches: Batches) -> Batches:
        exclude_modules_from_collection()
        shard = _this_shard()
        matched = pa.Table.from_batches(unpack(batches), MATCHED_SCHEMA)
        divided = (SOURCES, EXPIRED_BINDINGS)
        with context.open_in_task(shard, divided) as tables:
            for table in divided:
                tables.merge(table)
            if context.match.sharded is not None:
                matched = gather_matches(matched, tables.subscriptions)
            addressed, report = address_events(matched, context, tables, _of_shard(context, shard))
        for rows in chain.from_iterable(split_by_size(batch, _BYTES) for batch in addressed.to_batches(_ROWS)):
            packed = pack(rows, rows["shard"].to_numpy())
            yield packed.append_column(_REPORT, pa.nulls(packed.num_rows, pa.binary()))
        row = [pa.array([shard], pa.int32()), pa.nulls(1, pa.binary()), pa.array([report.to_json()], pa.binary())]
        yield pa.RecordBatch.from_arrays(row, schema=_ADDRESSED_SCHEMA)

    return run


def _make(context: LetterContext, outbox: Path) -> Callable[[Batches], Batches]:
    """The task of a shard of receivers: it writes their letters, and passes the reports on."""

    def run(batches: Batches) -> Batches:
        exclude_modules_from_collection()
        received = list(batches)
        reports = [report for batch in received for report in batch[_REPORT].drop_null().to_pylist()]
        packed = (batch.filter(pc.is_valid(batch["block"])) for batch in received)
        addressed = pa.Table.from_batches(unpack(packed), ADDRESSED_SCHEMA)
        report = _write_letters(addressed, context, outbox)
        yield pa.RecordBatch.from_arrays([pa.array([*reports, report.to_json()], pa.binary())], schema=_REPORT_SCHEMA)

    return run


def _write_letters(addressed: pa.Table, context: LetterContext, outbox: Path) -> LetterReport:
    fetcher = context.match.fetcher
    place = nullcontext(outbox) if fetcher is None else fetcher.scratch()
    divided = (LAST_SENT, RECEIVERS)
    with place as folder, context.open_in_task(_this_shard(), divided) as tables:
        for table in divided:
            tables.merge(table)
        files = LetterFiles(folder, context.pipeline, context.match.batch, durable=fetcher is None)
        report = make_letters(addressed, context, tables, files.write)
        written = files.close()
        if fetcher is not None:
            for file in written:
                fetcher.put(f"outbox/{file.office}/letters/{file.name}", letter_path(folder, file.office, file.name))
    return report._replace(files=written)


def _of_shard(context: LetterContext, shard: int) -> Sequence[Row]:
    """The new bindings to sources of a shard."""
    if not context.initial:
        return ()
    keys = [pa.array([binding[name] for binding in context.initial], pa.string()) for name in ("home", "source")]
    shards = shards_of(keys, context.shards).tolist()
    return [binding for binding, number in zip(context.initial, shards, strict=True) if number == shard]


def _this_shard() -> int:
    task = TaskContext.get()
    if task is None:
        raise RuntimeError("not in a task")
    return task.partitionId()
