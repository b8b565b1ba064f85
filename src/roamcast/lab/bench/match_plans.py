"""Ways from a folder of Parquet events to a count of matches, all through Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from roamcast.match.index.index import Index
from roamcast.match.index.lsm import IndexStore, SegmentRef
from roamcast.match.port import Events, Subscriptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "MATCHED_SCHEMA",
    "Opening",
    "by_index",
    "by_sql",
    "identity",
    "matched",
    "matching",
    "read_events",
    "reading_by_index",
    "sql_rows",
    "with_keys",
]

MATCHED_SCHEMA: Final = pa.schema([pa.field("event", pa.int64()), pa.field("subscriptions", pa.list_(pa.int64()))])

_CELL: Final = 0.2  # degrees, of the SQL plan: as wide as the widest box, so that a box touches four cells at most
_OTHERS: Final = 3  # terms of a subscription beside its rarest
_ROWS: Final = 50_000  # of a record batch, as Spark is told for its own

Batches = Iterator[pa.RecordBatch]


def identity(events: DataFrame) -> int:
    """The limit: every column to Python and back, and nothing done with it. Counts events."""

    def run(batches: Batches) -> Batches:
        yield from batches

    return events.mapInArrow(run, events.schema).count()


class Opening(NamedTuple):
    """What an executor opens: segments in a folder."""

    folder: Path
    stack: tuple[SegmentRef, ...]


def reading_by_index(spark: SparkSession, folder: Path, opening: Opening) -> int:
    """Ours for files, as `roamcast match` does it: tasks read the row groups they match, past the JVM."""
    groups = _row_groups(folder)

    def run(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from matching(opening)(groups[number].read())

    return _pairs(spark.range(0, len(groups), 1, len(groups)), run)


def matched(folder: Path, opening: Opening) -> Batches:
    """What those tasks do, without Spark."""
    yield from matching(opening)(read_events(folder))


def read_events(folder: Path) -> Batches:
    for group in _row_groups(folder):
        yield from group.read()


class _RowGroup(NamedTuple):
    path: Path
    number: int

    def read(self) -> Batches:
        with pq.ParquetFile(self.path) as file:
            yield from file.iter_batches(_ROWS, row_groups=[self.number], use_threads=False)


def _row_groups(folder: Path) -> list[_RowGroup]:
    files = sorted(folder.glob("*.parquet"))
    return [_RowGroup(path, number) for path in files for number in range(pq.read_metadata(path).num_row_groups)]


def by_index(events: DataFrame, opening: Opening) -> int:
    """Ours for a data frame, whatever it comes from."""
    return _pairs(events, matching(opening))


def _pairs(rows: DataFrame, run: Callable[[Batches], Batches]) -> int:
    """Each event that matched, with the handles of its subscriptions. Counts the pairs."""
    from pyspark.sql import functions as f

    from roamcast.pipeline.schemas import spark_schema

    found = rows.mapInArrow(run, spark_schema(MATCHED_SCHEMA))
    return int(found.agg(f.sum(f.size("subscriptions"))).collect()[0][0] or 0)


@lru_cache(maxsize=2)
def _opened(opening: Opening) -> Index:
    """Kept from task to task; two at a time, so that what both have is opened once."""
    return IndexStore(opening.folder).open(opening.stack)


def matching(opening: Opening) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        index = _opened(opening)
        for batch in batches:
            found = index.match(Events(batch["x"].to_numpy(), batch["y"].to_numpy(), batch["terms"]))
            first = np.flatnonzero(np.diff(found.event, prepend=-1))
            offsets = pa.array(np.append(first, len(found.event)).astype(np.int32))
            lists = pa.ListArray.from_arrays(offsets, pa.array(found.subscription))
            ids = batch["event"].take(pa.array(found.event[first]))
            yield pa.RecordBatch.from_arrays([ids, lists], schema=MATCHED_SCHEMA)

    return run


def sql_rows(subscriptions: Subscriptions) -> pa.Table:
    """Subscriptions as the SQL plan wants them: a row for each cell, with the rarest term and the others apart."""
    terms = subscriptions.terms.values.dictionary_encode()
    code, first = terms.indices.to_numpy(), subscriptions.terms.offsets.to_numpy()
    each, often = np.diff(first), np.bincount(code)
    width = int(each.max())
    place = first[:-1, np.newaxis] + np.arange(width)
    there = np.arange(width) < each[:, np.newaxis]
    codes = np.where(there, code[np.minimum(place, len(code) - 1)], -1)
    # The rarest first; what is not there last.
    order = np.argsort(np.where(there, often[codes], len(code) + 1), axis=1, kind="stable")
    codes = np.take_along_axis(codes, order, axis=1)
    row, cell_x, cell_y = _cells(*(np.floor(side / _CELL).astype(np.int64) for side in subscriptions[:4]))
    boxes = {name: side[row] for name, side in zip(Subscriptions._fields, subscriptions[:4], strict=False)}
    columns = (
        pc.take(terms.dictionary, pa.array(codes[row, n], mask=codes[row, n] < 0))
        if n < width
        else pa.nulls(len(row), pa.string())
        for n in range(1 + _OTHERS)
    )
    names = ["rarest", *(f"term_{n}" for n in range(_OTHERS))]
    return pa.table({**boxes, "cell_x": cell_x, "cell_y": cell_y, **dict(zip(names, columns, strict=True))})


def _cells(
    west: npt.NDArray[np.int64], south: npt.NDArray[np.int64], east: npt.NDArray[np.int64], north: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For each cell that a box touches: the row of the box, and the cell."""
    wide, high = east - west + 1, north - south + 1
    row = np.repeat(np.arange(len(west)), wide * high)
    place = np.arange(len(row)) - np.repeat(np.cumsum(wide * high) - wide * high, wide * high)
    return row, west[row] + place // high[row], south[row] + place % high[row]


def with_keys(rows: DataFrame) -> DataFrame:
    """One 64-bit key of cell and rarest term: Spark has a fast hash table for these."""
    from pyspark.sql import functions as f

    return rows.withColumn("key", f.xxhash64("cell_x", "cell_y", "rarest")).drop("cell_x", "cell_y")


def by_sql(events: DataFrame, keyed: DataFrame, strategy: str) -> int:
    """The peer: an equi-join on cell and rarest term, then the filters. Counts the pairs."""
    from pyspark.sql import functions as f

    cells = (f.floor(f.col(side) / _CELL) for side in ("x", "y"))
    exploded = events.select("x", "y", "terms", f.explode("terms").alias("term"))
    joined = exploded.withColumn("key", f.xxhash64(*cells, "term")).join(keyed.hint(strategy), "key")
    others = (f"(term_{n} IS NULL OR array_contains(terms, term_{n}))" for n in range(_OTHERS))
    tests = ("x BETWEEN min_x AND max_x", "y BETWEEN min_y AND max_y", "term = rarest", *others)
    return joined.where(" AND ".join(tests)).count()
