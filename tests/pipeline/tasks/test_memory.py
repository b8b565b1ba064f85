"""Tasks of Spark's Python processes exclude modules from garbage collection."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import ModuleType

import pyarrow as pa
from pyspark.sql import SparkSession

from roamcast.pipeline.tasks.memory import exclude_modules_from_collection


def count_excluded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For mapInArrow: how many objects are excluded at first, after a call with more objects, and with a new module."""
    exclude_modules_from_collection()
    counts = [gc.get_freeze_count()]
    kept = [[number] for number in range(1_000)]
    exclude_modules_from_collection()
    counts.append(gc.get_freeze_count())
    sys.modules["another"] = ModuleType("another")
    exclude_modules_from_collection()
    counts.append(gc.get_freeze_count())
    del sys.modules["another"], kept
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"excluded": counts})


def test_what_a_task_has_loaded_is_excluded_once_for_each_new_module(spark: SparkSession) -> None:
    rows = spark.range(1, numPartitions=1).mapInArrow(count_excluded, "excluded long").collect()
    first, same_modules, new_module = (row["excluded"] for row in rows)
    assert first > 10_000
    assert same_modules == first
    assert new_module >= first + 1_000


def test_nothing_is_excluded_in_other_processes() -> None:
    before = gc.get_freeze_count()
    exclude_modules_from_collection()
    assert gc.get_freeze_count() == before
