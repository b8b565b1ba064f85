"""Event and subscription files as Spark data frames. Bad rows are reported with their location."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from roamcast.errors import InputError
from roamcast.pipeline.schemas import spark_schema
from roamcast.pipeline.tasks.memory import exclude_modules_from_collection
from roamcast.space import GEOGRAPHIC, Space
from roamcast.spark.file_formats import BLOCK_BYTES, FileBlock, plan_blocks, read_block
from roamcast.spark.file_rows import EVENTS, SUBSCRIPTIONS, FileLayout, quote_value

__all__ = ["BadRows", "FileRows", "OnError", "read_events", "read_subscriptions"]

OnError: TypeAlias = Literal["fail", "skip"]

_REPORTED: Final = 20
_TASKS_PER_CORE: Final = 8
_CHECKED: Final = pa.schema(
    [
        pa.field("block", pa.int32()),
        pa.field("row", pa.int64()),
        pa.field("id", pa.string()),
        pa.field("problem", pa.string()),
    ]
)
_NO_REPEATS: Final = pa.table({"block": pa.array([], pa.int32()), "row": pa.array([], pa.int64())})

_DroppedRows: TypeAlias = Mapping[int, npt.NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class BadRows:
    """How many rows are bad, and the location and problem of the first ones."""

    count: int
    first: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class FileRows:
    """The good rows of a file, their number, and the rows that were left out."""

    frame: DataFrame
    count: int
    bad: BadRows


def read_events(
    spark: SparkSession,
    path: Path,
    *,
    space: Space = GEOGRAPHIC,
    on_error: OnError = "fail",
    block_bytes: int = BLOCK_BYTES,
) -> FileRows:
    """Read events with the columns of EVENTS. Of rows with the same id the first one is good.

    Raises InputError for a file that cannot be read as events, and for bad rows unless `on_error` is "skip".
    """
    return _read(spark, plan_blocks(path, EVENTS, block_bytes=block_bytes), EVENTS, space, on_error)


def read_subscriptions(
    spark: SparkSession,
    path: Path,
    *,
    space: Space = GEOGRAPHIC,
    on_error: OnError = "fail",
    block_bytes: int = BLOCK_BYTES,
) -> FileRows:
    """Read subscriptions with the columns of SUBSCRIPTIONS, like `read_events`."""
    return _read(spark, plan_blocks(path, SUBSCRIPTIONS, block_bytes=block_bytes), SUBSCRIPTIONS, space, on_error)


def _read(
    spark: SparkSession, blocks: Sequence[FileBlock], layout: FileLayout, space: Space, on_error: OnError
) -> FileRows:
    checked = _per_block(spark, blocks, _checker(blocks, layout, space), _CHECKED)
    total, faulty, repeats = _count(checked)
    repeated = _repeated(checked) if repeats else _NO_REPEATS
    first = _first(checked, repeated, blocks, layout) if faulty or repeats else ()
    bad = BadRows(faulty + repeats, first)
    if bad.count and on_error == "fail":
        where, problem = bad.first[0]
        count = f"{bad.count:,} of {total:,} rows are bad"
        raise InputError(f"{problem}; {count}", where=where, hint="fix them, or use --on-error skip")
    rows = _per_block(spark, blocks, _reader(blocks, layout, space, _by_block(repeated)), layout.schema)
    return FileRows(rows, total - bad.count, bad)


def _per_block(
    spark: SparkSession,
    blocks: Sequence[FileBlock],
    function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:
    tasks = max(1, min(len(blocks), _TASKS_PER_CORE * spark.sparkContext.defaultParallelism))
    return spark.range(0, len(blocks), 1, tasks).mapInArrow(function, spark_schema(schema))


def _checker(
    blocks: Sequence[FileBlock], layout: FileLayout, space: Space
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        exclude_modules_from_collection()
        for block in _block_numbers(batches):
            for rows, columns, problems in read_block(blocks[block], layout, space):
                numbers = pa.array(np.full(len(rows), block, np.int32))
                texts = pa.array(problems, pa.string())
                yield pa.RecordBatch.from_arrays([numbers, pa.array(rows), columns[layout.id], texts], schema=_CHECKED)

    return run


def _reader(
    blocks: Sequence[FileBlock], layout: FileLayout, space: Space, dropped: _DroppedRows
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        exclude_modules_from_collection()
        for block in _block_numbers(batches):
            for rows, columns, problems in read_block(blocks[block], layout, space):
                good = np.array([problem is None for problem in problems], np.bool_)
                if block in dropped:
                    good &= ~np.isin(rows, dropped[block])
                table = pa.RecordBatch.from_arrays(
                    [columns[name] for name in layout.schema.names], schema=layout.schema
                )
                yield table if good.all() else table.filter(pa.array(good))

    return run


def _block_numbers(batches: Iterator[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _count(checked: DataFrame) -> tuple[int, int, int]:
    """Count in one pass: all rows, those with a problem, and those that repeat the id of a good row."""
    good_id = f.when(f.isnull("problem"), f.col("id")).alias("id")
    groups = checked.groupBy(good_id).agg(f.count("*").alias("rows"), f.count("problem").alias("faulty"))
    repeats = f.when(f.isnotnull("id"), f.col("rows") - 1)
    total, faulty, repeated = groups.agg(f.sum("rows"), f.sum("faulty"), f.sum(repeats)).collect()[0]
    return total or 0, faulty or 0, repeated or 0


def _repeated(checked: DataFrame) -> pa.Table:
    """The rows that repeat the id of an earlier good row, with the location of both, in order."""
    good = checked.where("problem IS NULL").select("id", f.struct("block", "row").alias("at"))
    firsts = good.groupBy("id").agg(f.min("at").alias("first"), f.count("*").alias("times")).where("times > 1")
    repeated = good.join(firsts, "id").where("at != first")
    columns = ("at.block", "at.row", "first.block AS first_block", "first.row AS first_row")
    return repeated.selectExpr("id", *columns).orderBy("block", "row").toArrow()


def _by_block(rows: pa.Table) -> _DroppedRows:
    block, row = rows["block"].to_numpy(), rows["row"].to_numpy()
    return {int(number): row[block == number] for number in np.unique(block)}


def _first(
    checked: DataFrame, repeated: pa.Table, blocks: Sequence[FileBlock], layout: FileLayout
) -> tuple[tuple[str, str], ...]:
    """The location and problem of the first bad rows, in the order of the file."""
    faulty = checked.where("problem IS NOT NULL").orderBy("block", "row").limit(_REPORTED).collect()
    bad = [((row["block"], row["row"]), row["problem"]) for row in faulty]
    for row in repeated.slice(0, _REPORTED).to_pylist():
        before = blocks[row["first_block"]].where(row["first_row"])
        bad.append(((row["block"], row["row"]), f"{layout.id} {quote_value(row['id'])} is also that of {before}"))
    return tuple((blocks[block].where(row), problem) for (block, row), problem in sorted(bad)[:_REPORTED])
