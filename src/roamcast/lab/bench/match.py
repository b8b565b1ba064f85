"""`roamcast bench match`: events a second against very many subscriptions, through Spark, beside two others.

The same Parquet files of events with terms as strings, matched to a counted result by tasks of Spark. By our index,
which every worker maps (replicated): once as `roamcast match` does it, tasks reading the files themselves, and once
over a data frame (frame). By the best plain Spark SQL we know. And not at all: identity `mapInArrow` on the same
columns, which is the limit of anything that matches a data frame in Python. Building and compiling are apart.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from roamcast.lab.bench.match_books import Batches, write_events
from roamcast.lab.bench.match_changes import measure_changes, measure_moving
from roamcast.lab.bench.match_data import World
from roamcast.lab.bench.match_plans import (
    Opening,
    by_index,
    by_sql,
    identity,
    matched,
    reading_by_index,
    sql_rows,
    with_keys,
)
from roamcast.lab.bench.match_profile import profile_match
from roamcast.lab.bench.match_shares import measure_shares
from roamcast.match.index.lsm import IndexStore, build_index
from roamcast.match.index.rows import index_rows
from roamcast.match.port import Events, Subscriptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["bench_match", "bench_shares", "measure_match", "measure_partitioned"]

Say = Callable[[str], None]
T = TypeVar("T")

_FILES: Final = 8
_TIMES: Final = 3
_BATCH: Final = 200_000  # events of a batch while subscriptions come and go, and regions move
_LARGEST_BROADCAST: Final = 2_000_000  # subscriptions; beyond, Spark's table exceeds what it can broadcast
_SESSION: Final = {
    "spark.driver.memory": "8g",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.files.maxPartitionBytes": "16m",
}


@dataclass(frozen=True)
class _Bench:
    """One run: a session, and a folder with the events."""

    spark: SparkSession
    folder: Path
    world: World
    events: int
    say: Say

    @property
    def frame(self) -> DataFrame:
        return self.spark.read.parquet(str(self.folder / "events"))

    def row(self, subscriptions: int, plan: str, seconds: float, **more: Any) -> dict[str, Any]:
        rate = round(self.events / seconds)
        self.say(f"{subscriptions} subscriptions, {plan}: {rate} events/s")
        return {"subscriptions": subscriptions, "plan": plan, "events_per_s": rate, **more}


def bench_match(sizes: Sequence[int], say: Say) -> dict[str, Any]:
    """As `measure_match` has it, in a session and a folder of its own."""
    from roamcast.pipeline.query.session import session

    with tempfile.TemporaryDirectory(prefix="roamcast-bench-") as name:
        spark = session("roamcast-bench", options=_SESSION, log=Path(name) / "spark.log")
        try:
            return measure_match(spark, Path(name), sizes, say)
        finally:
            spark.stop()


def bench_shares(sizes: Sequence[int], workers: Sequence[int], say: Say) -> dict[str, Any]:
    """As `measure_partitioned` has it, in a session and a folder of its own."""
    from roamcast.pipeline.query.session import session

    with tempfile.TemporaryDirectory(prefix="roamcast-bench-") as name:
        spark = session("roamcast-bench", options=_SESSION, log=Path(name) / "spark.log")
        try:
            return measure_partitioned(spark, Path(name), sizes, workers, say)
        finally:
            spark.stop()


def measure_partitioned(
    spark: SparkSession,
    folder: Path,
    sizes: Sequence[int],
    workers: Sequence[int],
    say: Say,
    *,
    events: int = 2_000_000,
) -> dict[str, Any]:
    """As `measure_shares` has it, for each size and number of workers. `wrong` must be 0."""
    bench = _Bench(spark, folder, World(events), events, say)
    _write_events(bench)
    _compile(bench.world)
    return {"rows": measure_shares(spark, folder, events, bench.world, sizes, workers, say)}


def measure_match(
    spark: SparkSession,
    folder: Path,
    sizes: Sequence[int],
    say: Say,
    *,
    events: int = 2_000_000,
    changed: int = 100_000,
    moving: int = 100_000,
    batches: int = 8,
) -> dict[str, Any]:
    """A row for each size and plan, and for the size nearest to a million what changes cost. `wrong` must be 0."""
    say(f"making {events} events")
    bench = _Bench(spark, folder, World(events), events, say)
    _write_events(bench)
    compiled, _ = _timed(lambda: _compile(bench.world))
    figures: dict[str, Any] = {"rows": [], "ratios": [], "compile_s": round(compiled, 1)}
    for size in sizes:
        opening, rows = _measure(bench, size)
        figures["rows"] += rows
        figures["ratios"].append(_ratios(size, rows, say))
        if size == min(sizes, key=lambda each: abs(each - 1_000_000)):
            figures["bytes_per_subscription"] = rows[1]["bytes_per_subscription"]
            records = write_events(spark, folder / "records", bench.world, min(events, _BATCH))
            books = Batches(folder / "state", bench.world.subscriptions(size), records)
            figures["changes"] = measure_changes(books, bench.world, changed, say)
            figures["moving"] = measure_moving(books, bench.world, moving, batches, say)
            records.unpersist()
            figures["profile"] = profile_match(partial(_exhaust, bench.folder / "events", opening), say)
        shutil.rmtree(opening.folder)
    return figures


def _write_events(bench: _Bench) -> None:
    (bench.folder / "events").mkdir()
    bounds = np.linspace(0, bench.events, _FILES + 1).astype(int)
    for first, end in pairwise(bounds.tolist()):
        pq.write_table(
            pa.Table.from_batches([bench.world.events(first, end)]), bench.folder / f"events/{first}.parquet"
        )


def _compile(world: World) -> None:
    """Every kernel that is measured, once; from here on workers take them from numba's cache."""
    batch = world.events(0, 1_000)
    events = Events(batch["x"].to_numpy(), batch["y"].to_numpy(), batch["terms"])
    build_index(world.subscriptions(1_000)).match(events)


def _measure(bench: _Bench, size: int) -> tuple[Opening, list[dict[str, Any]]]:
    subscriptions = bench.world.subscriptions(size)
    folder = bench.folder / f"segments-{size}"
    folder.mkdir()
    layers = IndexStore(folder)
    built, stack = _timed(lambda: layers.apply((), added=index_rows(np.arange(size), subscriptions)))
    opening, each = Opening(folder, stack), round(layers.nbytes(stack) / size, 1)
    bench.say(f"{size} subscriptions: index built in {built:.1f} s, {each} bytes each")
    limit, _ = _best(lambda: identity(bench.frame))
    frame, found_in_frame = _best(lambda: by_index(bench.frame, opening))
    ours, found = _best(lambda: reading_by_index(bench.spark, bench.folder / "events", opening))
    peer, found_by_peer = _peer(bench, size, subscriptions)
    wrong = int(found != found_in_frame) + int(found_by_peer not in (None, found))
    built_ours = {"build_s": round(built, 2), "bytes_per_subscription": each}
    return opening, [
        bench.row(size, "limit", limit),
        bench.row(size, "replicated", ours, matches=found, wrong=wrong, **built_ours),
        bench.row(size, "frame", frame, matches=found_in_frame),
        peer,
    ]


def _peer(bench: _Bench, size: int, subscriptions: Subscriptions) -> tuple[dict[str, Any], int | None]:
    """The SQL plan. Spark builds its table anew in each query; what a query of hardly any events takes is told too."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    path = bench.folder / f"sql-{size}"
    pq.write_table(sql_rows(subscriptions), path.with_suffix(".parquet"))
    with_keys(bench.spark.read.parquet(str(path.with_suffix(".parquet")))).write.parquet(str(path))
    keyed = bench.spark.read.parquet(str(path))
    strategy = "broadcast" if size <= _LARGEST_BROADCAST else "merge"
    hardly_any = bench.frame.limit(10)
    try:
        built = _best(lambda: by_sql(hardly_any, keyed, strategy))[0] if strategy == "broadcast" else 0.0
        whole, found = _best(lambda: by_sql(bench.frame, keyed, strategy), 2 if strategy == "broadcast" else 1)
    except (PySparkException, Py4JError) as error:
        bench.say(f"{size} subscriptions, spark-sql: does not run here: {str(error).splitlines()[0]}")
        return {"subscriptions": size, "plan": "spark-sql", "events_per_s": None, "join": strategy}, None
    more: dict[str, Any] = {"join": strategy, "build_s": round(built, 2)}
    if whole > built:
        more["without_build_per_s"] = round(bench.events / (whole - built))
    return bench.row(size, "spark-sql", whole, matches=found, **more), found


def _exhaust(folder: Path, opening: Opening) -> None:
    for _ in matched(folder, opening):
        pass


def _ratios(size: int, rows: Sequence[dict[str, Any]], say: Say) -> dict[str, Any]:
    limit, ours, frame, peer = (row["events_per_s"] for row in rows)
    bare = rows[3].get("without_build_per_s")
    ratios = {
        "subscriptions": size,
        "over_limit": round(ours / limit, 2),
        "frame_over_limit": round(frame / limit, 2),
        "over_spark_sql": round(ours / peer, 2) if peer else None,
        "over_spark_sql_without_build": round(ours / bare, 2) if bare else None,
    }
    say("  ".join(f"{name} {value}" for name, value in ratios.items()))
    return ratios


def _best(work: Callable[[], int], times: int = _TIMES) -> tuple[float, int]:
    """The shortest of several times, after one that counts not: it starts workers and fills caches."""
    if times > 1:
        work()
    return min(_timed(work) for _ in range(times))


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result
