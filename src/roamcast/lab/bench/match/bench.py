"""`roamcast bench match --plan`: events per second against millions of subscriptions, compared with two others.

All plans match the same Parquet files of events, with terms as strings, to a counted result. `replicated` and `frame`
use the index, which every worker maps: tasks read the files themselves, as `roamcast match` does, or the events come
from a DataFrame. `spark-sql` is the best plain Spark SQL we know. `limit` is an identity `mapInArrow` on the same
columns, the limit of anything that matches a DataFrame in Python. Building and compiling are measured separately.
"""

from __future__ import annotations

import cProfile
import pstats
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from roamcast.lab.batches import Batches, write_events
from roamcast.lab.bench.match.changes import measure_changes, measure_moving
from roamcast.lab.bench.match.data import MatchData
from roamcast.lab.bench.match.partitioners import measure_partitioners
from roamcast.lab.bench.match.plans import (
    IndexFiles,
    by_index,
    by_index_from_files,
    by_sql,
    identity,
    match_folder,
    sql_rows,
    with_keys,
)
from roamcast.lab.bench.match.shards import measure_shards
from roamcast.lab.bench.match.timing import best, timed
from roamcast.match.index.lsm import IndexStore, build_index
from roamcast.match.index.rows import index_rows
from roamcast.match.port import Subscriptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from roamcast.pipeline.state.partitioning import PartitionerName

__all__ = ["bench_match", "bench_partitioners", "bench_shards", "measure_match", "measure_partitioned"]

Say = Callable[[str], None]

_FILES: Final = 8
_BATCH: Final = 200_000  # events of a batch when changes and moves are measured
_LARGEST_BROADCAST: Final = 2_000_000  # subscriptions; Spark cannot broadcast larger tables
_STEPS: Final = {  # by function
    "encode_terms": "numbering the terms",
    "_search_order": "ordering events along the curve",
    "numbers": "looking up the segment's dictionary",
    "search": "searching cells and postings",
    "_sort": "sorting matches",
}
_SESSION: Final = {
    "spark.driver.memory": "8g",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.files.maxPartitionBytes": "16m",
}


@dataclass(frozen=True)
class _MatchBench:
    """One run: a session, and a folder with the events."""

    spark: SparkSession
    folder: Path
    data: MatchData
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
    """Run `measure_match` in its own session and folder."""
    with _bench_session() as (spark, folder):
        return measure_match(spark, folder, sizes, say)


def bench_shards(sizes: Sequence[int], workers: Sequence[int], say: Say) -> dict[str, Any]:
    """Run `measure_partitioned` in its own session and folder."""
    with _bench_session() as (spark, folder):
        return measure_partitioned(spark, folder, sizes, workers, say)


def bench_partitioners(sizes: Sequence[int], partitioners: Sequence[PartitionerName], say: Say) -> dict[str, Any]:
    """Run `measure_partitioners` for each size, in its own session and folder."""
    with _bench_session() as (spark, folder):
        bench = _MatchBench(spark, folder, MatchData(_BATCH), _BATCH, say)
        _write_events(bench)
        measured = (measure_partitioners(spark, folder, bench.data, size, partitioners, say) for size in sizes)
        return {"rows": [row for rows in measured for row in rows]}


@contextmanager
def _bench_session() -> Iterator[tuple[SparkSession, Path]]:
    from roamcast.pipeline.query.session import session

    with tempfile.TemporaryDirectory(prefix="roamcast-bench-") as name:
        spark = session("roamcast-bench", options=_SESSION, log=Path(name) / "spark.log")
        try:
            yield spark, Path(name)
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
    """Run `measure_shards` for each size and number of workers. `wrong` must be 0."""
    bench = _MatchBench(spark, folder, MatchData(events), events, say)
    _write_events(bench)
    _compile(bench.data)
    return {"rows": measure_shards(spark, folder, events, bench.data, sizes, workers, say)}


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
    """Return a row for each size and plan, and the cost of changes for the size nearest to a million.

    `wrong` must be 0.
    """
    say(f"generating {events} events")
    bench = _MatchBench(spark, folder, MatchData(events), events, say)
    _write_events(bench)
    compiled, _ = timed(lambda: _compile(bench.data))
    figures: dict[str, Any] = {"rows": [], "ratios": [], "compile_s": round(compiled, 1)}
    for size in sizes:
        files, rows = _measure(bench, size)
        figures["rows"] += rows
        figures["ratios"].append(_ratios(size, rows, say))
        if size == min(sizes, key=lambda each: abs(each - 1_000_000)):
            figures["bytes_per_subscription"] = rows[1]["bytes_per_subscription"]
            records = write_events(spark, folder / "records", bench.data.first_events(min(events, _BATCH)))
            batch_runner = Batches(folder / "state", bench.data.subscriptions(size), records)
            figures["changes"] = measure_changes(batch_runner, bench.data, changed, say)
            figures["moving"] = measure_moving(batch_runner, bench.data, moving, batches, say)
            records.unpersist()
            figures["profile"] = profile_match(partial(_exhaust, bench.folder / "events", files), say)
        shutil.rmtree(files.folder)
    return figures


def _write_events(bench: _MatchBench) -> None:
    (bench.folder / "events").mkdir()
    bounds = np.linspace(0, bench.events, _FILES + 1).astype(int)
    for first, end in pairwise(bounds.tolist()):
        pq.write_table(pa.Table.from_batches([bench.data.events(first, end)]), bench.folder / f"events/{first}.parquet")


def _compile(data: MatchData) -> None:
    """Compile every kernel that is measured; workers then load them from numba's cache."""
    build_index(data.subscriptions(1_000)).match(data.first_events(1_000))


def _measure(bench: _MatchBench, size: int) -> tuple[IndexFiles, list[dict[str, Any]]]:
    subscriptions = bench.data.subscriptions(size)
    folder = bench.folder / f"segments-{size}"
    folder.mkdir()
    store = IndexStore(folder)
    built, stack = timed(lambda: store.apply((), added=index_rows(np.arange(size), subscriptions)))
    files, each = IndexFiles(folder, stack), round(store.nbytes(stack) / size, 1)
    bench.say(f"{size} subscriptions: index built in {built:.1f} s, {each} bytes each")
    limit, _ = best(lambda: identity(bench.frame))
    frame, frame_matches = best(lambda: by_index(bench.frame, files))
    replicated, matches = best(lambda: by_index_from_files(bench.spark, bench.folder / "events", files))
    sql, sql_matches = _measure_sql(bench, size, subscriptions)
    wrong = int(matches != frame_matches) + int(sql_matches not in (None, matches))
    built_index = {"build_s": round(built, 2), "bytes_per_subscription": each}
    return files, [
        bench.row(size, "limit", limit),
        bench.row(size, "replicated", replicated, matches=matches, wrong=wrong, **built_index),
        bench.row(size, "frame", frame, matches=frame_matches),
        sql,
    ]


def _measure_sql(bench: _MatchBench, size: int, subscriptions: Subscriptions) -> tuple[dict[str, Any], int | None]:
    """Measure the SQL plan. Spark builds its table in each query, so a query of a few events is measured too."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    path = bench.folder / f"sql-{size}"
    pq.write_table(sql_rows(subscriptions), path.with_suffix(".parquet"))
    with_keys(bench.spark.read.parquet(str(path.with_suffix(".parquet")))).write.parquet(str(path))
    keyed = bench.spark.read.parquet(str(path))
    strategy = "broadcast" if size <= _LARGEST_BROADCAST else "merge"
    few_events = bench.frame.limit(10)
    try:
        built = best(lambda: by_sql(few_events, keyed, strategy))[0] if strategy == "broadcast" else 0.0
        whole, matches = best(lambda: by_sql(bench.frame, keyed, strategy), 2 if strategy == "broadcast" else 1)
    except (PySparkException, Py4JError) as error:
        bench.say(f"{size} subscriptions, spark-sql failed: {str(error).splitlines()[0]}")
        return {"subscriptions": size, "plan": "spark-sql", "events_per_s": None, "join": strategy}, None
    more: dict[str, Any] = {"join": strategy, "build_s": round(built, 2)}
    if whole > built:
        more["without_build_per_s"] = round(bench.events / (whole - built))
    return bench.row(size, "spark-sql", whole, matches=matches, **more), matches


def profile_match(run: Callable[[], None], say: Say) -> dict[str, float]:
    """Return the share of each step in the time of `run`, which reads events and matches them, on one core."""
    run()
    profile = cProfile.Profile()
    profile.runcall(run)
    stats = pstats.Stats(profile)
    seconds = dict.fromkeys(_STEPS, 0.0)
    for (file, _, function), (_, _, _, cumulated, _) in stats.stats.items():  # type: ignore[attr-defined]
        if function in _STEPS and "roamcast" in file:
            seconds[function] += cumulated
    total: float = stats.total_tt  # type: ignore[attr-defined]
    shares = {step: round(seconds[function] / total, 3) for function, step in _STEPS.items()}
    shares["reading and transfer"] = round(1 - sum(seconds.values()) / total, 3)
    say("where the time goes: " + ", ".join(f"{step} {share:.0%}" for step, share in shares.items()))
    return shares


def _exhaust(folder: Path, files: IndexFiles) -> None:
    for _ in match_folder(folder, files):
        pass


def _ratios(size: int, rows: Sequence[dict[str, Any]], say: Say) -> dict[str, Any]:
    limit, replicated, frame, sql = (row["events_per_s"] for row in rows)
    bare = rows[3].get("without_build_per_s")
    ratios = {
        "subscriptions": size,
        "over_limit": round(replicated / limit, 2),
        "frame_over_limit": round(frame / limit, 2),
        "over_spark_sql": round(replicated / sql, 2) if sql else None,
        "over_spark_sql_without_build": round(replicated / bare, 2) if bare else None,
    }
    say("  ".join(f"{name} {value}" for name, value in ratios.items()))
    return ratios
