"""Boxes and terms through data frames: `roamcast.spark.match`, plain Spark SQL, and an identity `mapInArrow`.

All read the same files and end in the same sink. Index and table of the SQL plan are made once; Spark builds its hash
table in each query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from roamcast.lab.bench.match.pairs import EVENT, SUBSCRIPTION, consume, count_differences, pair_keys
from roamcast.lab.bench.match.sql_job import KEYED, MATCHES
from roamcast.lab.bench.match.timing import best, timed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["measure_frames"]


def measure_frames(
    spark: SparkSession, folder: Path, events: int, subscriptions: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Return a row for each plan. The inputs are the folders `events` and `subscriptions` in `folder`."""
    import roamcast.spark

    frame = spark.read.parquet(str(folder / "events"))
    rows = spark.read.parquet(str(folder / "subscriptions"))
    frame.createOrReplaceTempView("events")
    rows.createOrReplaceTempView("subscriptions")
    spark.sql(KEYED).write.parquet(str(folder / "keyed"))
    spark.read.parquet(str(folder / "keyed")).createOrReplaceTempView("keyed")
    built, compiled = timed(lambda: roamcast.spark.compile(rows, id=SUBSCRIPTION))
    with compiled:
        plans = {
            "roamcast.spark": roamcast.spark.match(frame, compiled, id=EVENT),
            "spark-sql": spark.sql(MATCHES),
            "identity": frame.mapInArrow(_identity, frame.schema),
        }
        expected, results = pair_keys(plans["roamcast.spark"].toArrow(), subscriptions), []
        for name, plan in plans.items():
            more: dict[str, Any] = {}
            if name == "spark-sql":
                more = {"wrong": count_differences(pair_keys(plan.toArrow(), subscriptions), expected)}
            elif name == "roamcast.spark":
                more = {"matches": len(expected), "compile_s": round(built, 1)}
            ids = [column for column in (EVENT, SUBSCRIPTION) if column in plan.columns]
            seconds, _ = best(lambda plan=plan, ids=ids: consume(plan, *ids), 4)  # type: ignore[misc]
            results.append({"plan": name, "events_per_s": round(events / seconds), **more})
            say(f"data frames, {name}: {events / seconds:,.0f} events/s")
    return results


def _identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
