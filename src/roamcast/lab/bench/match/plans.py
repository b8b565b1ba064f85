"""Plans that match a folder of Parquet events in Spark and count the matches."""

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
    "MATCHES_SCHEMA",
    "IndexFiles",
    "by_index",
    "by_index_from_files",
    "by_sql",
    "identity",
    "match_batches",
    "match_folder",
    "read_events",
    "sql_rows",
    "with_keys",
]

MATCHES_SCHEMA: Final = pa.schema([pa.field("event", pa.int64()), pa.field("subscriptions", pa.list_(pa.int64()))])

_CELL: Final = 0.2  # degrees, of the SQL plan: as wide as the widest box, so that a box touches at most four cells
_OTHERS: Final = 3  # terms of a subscription besides the rarest
_ROWS: Final = 50_000  # of a record batch, as in the Spark session

Batches = Iterator[pa.RecordBatch]


def identity(events: DataFrame) -> int:
    """The limit: pass every column to Python and back unchanged. Counts events."""

    def run(batches: Batches) -> Batches:
        yield from batches

    return events.mapInArrow(run, events.schema).count()


class IndexFiles(NamedTuple):
    """The files of an index that an executor opens."""

    folder: Path
    stack: tuple[SegmentRef, ...]


def by_index_from_files(spark: SparkSession, folder: Path, files: IndexFiles) -> int:
    """The index over files, as in `roamcast match`: tasks read their row groups without the JVM."""
    groups = _row_groups(folder)

    def run(batches: Batches) -> Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from match_batches(files)(groups[number].read())

    return _pairs(spark.range(0, len(groups), 1, len(groups)), run)


def match_folder(folder: Path, files: IndexFiles) -> Batches:
    """Do what those tasks do, without Spark."""
    yield from match_batches(files)(read_events(folder))


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
    paths = sorted(folder.glob("*.parquet"))
    return [_RowGroup(path, number) for path in paths for number in range(pq.read_metadata(path).num_row_groups)]


def by_index(events: DataFrame, files: IndexFiles) -> int:
    """The index over a DataFrame from any source."""
    return _pairs(events, match_batches(files))


def _pairs(rows: DataFrame, run: Callable[[Batches], Batches]) -> int:
    """Count the pairs of all events."""
    from pyspark.sql import functions as f

    from roamcast.pipeline.schemas import spark_schema

    matches = rows.mapInArrow(run, spark_schema(MATCHES_SCHEMA))
    return int(matches.agg(f.sum(f.size("subscriptions"))).collect()[0][0] or 0)


@lru_cache(maxsize=2)
def _open(files: IndexFiles) -> Index:
    """Keep two indexes open from task to task, so that common files are opened once."""
    return IndexStore(files.folder).open(files.stack)


def match_batches(files: IndexFiles) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        index = _open(files)
        for batch in batches:
            matches = index.match(Events(batch["x"].to_numpy(), batch["y"].to_numpy(), batch["terms"]))
            first = np.flatnonzero(np.diff(matches.event, prepend=-1))
            offsets = pa.array(np.append(first, len(matches.event)).astype(np.int32))
            lists = pa.ListArray.from_arrays(offsets, pa.array(matches.subscription))
            ids = batch["event"].take(pa.array(matches.event[first]))
            yield pa.RecordBatch.from_arrays([ids, lists], schema=MATCHES_SCHEMA)

    return run


def sql_rows(subscriptions: Subscriptions) -> pa.Table:
    """Return the table of the SQL plan: a row for each cell of a box, with the rarest term and the others."""
    terms = subscriptions.terms.values.dictionary_encode()
    code, first = terms.indices.to_numpy(), subscriptions.terms.offsets.to_numpy()
    lengths, frequency = np.diff(first), np.bincount(code)
    width = int(lengths.max())
    place = first[:-1, np.newaxis] + np.arange(width)
    valid = np.arange(width) < lengths[:, np.newaxis]
    codes = np.where(valid, code[np.minimum(place, len(code) - 1)], -1)
    # The rarest first, padding last.
    order = np.argsort(np.where(valid, frequency[codes], len(code) + 1), axis=1, kind="stable")
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
    """Return, for each cell that a box touches, the row of the box and the cell."""
    wide, high = east - west + 1, north - south + 1
    row = np.repeat(np.arange(len(west)), wide * high)
    place = np.arange(len(row)) - np.repeat(np.cumsum(wide * high) - wide * high, wide * high)
    return row, west[row] + place // high[row], south[row] + place % high[row]


def with_keys(rows: DataFrame) -> DataFrame:
    """Add a 64-bit key of cell and rarest term, for which Spark has a fast hash table."""
    from pyspark.sql import functions as f

    return rows.withColumn("key", f.xxhash64("cell_x", "cell_y", "rarest")).drop("cell_x", "cell_y")


def by_sql(events: DataFrame, keyed: DataFrame, strategy: str) -> int:
    """The SQL plan: an equi-join on cell and rarest term, then the filters. Counts the pairs."""
    from pyspark.sql import functions as f

    cells = (f.floor(f.col(side) / _CELL) for side in ("x", "y"))
    exploded = events.select("x", "y", "terms", f.explode("terms").alias("term"))
    joined = exploded.withColumn("key", f.xxhash64(*cells, "term")).join(keyed.hint(strategy), "key")
    others = (f"(term_{n} IS NULL OR array_contains(terms, term_{n}))" for n in range(_OTHERS))
    tests = ("x BETWEEN min_x AND max_x", "y BETWEEN min_y AND max_y", "term = rarest", *others)
    return joined.where(" AND ".join(tests)).count()
