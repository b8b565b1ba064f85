"""`--explain`: every figure is that of the run."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roamcast.match.index.index import Index
from roamcast.match.index.lsm import build_index
from roamcast.match.port import Events, Subscriptions
from roamcast.spark.files.batch import MatchRequest, match_files, match_local_files
from roamcast.spark.files.sources import Source
from roamcast.spark.files.targets import Target
from roamcast.spark.tasks.explain import Explanation
from roamcast.spark.tasks.local import LocalSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TERMS = pa.list_(pa.string())


def explain(folder: Path, events: list[int], spark: SparkSession | None = None) -> Explanation:
    """Match files of events, each with so many rows, with 900 small boxes."""
    rng = np.random.default_rng(7)
    (folder / "events").mkdir()
    for number, count in enumerate(events):
        x, y = rng.integers(0, 30, (2, count)).astype(float)
        terms = pa.array([["a", "b"]] * count, TERMS)
        table = pa.table({"event_id": [*range(count)], "x": x, "y": y, "terms": terms})
        pq.write_table(table, folder / "events" / f"{number}.parquet")
    x, y = np.divmod(np.arange(900.0), 30)
    boxes = {"min_x": x, "min_y": y, "max_x": x + 0.5, "max_y": y + 0.5, "terms": pa.array([["a"], ["c"]] * 450, TERMS)}
    pq.write_table(pa.table({"subscription_id": [*range(900)], **boxes}), folder / "boxes.parquet")
    request = MatchRequest(
        Source(str(folder / "events")), Source(str(folder / "boxes.parquet")), Target(str(folder / "out")), explain=True
    )
    counts = match_local_files(LocalSession(2), request) if spark is None else match_files(spark, request)
    assert counts is not None
    assert counts.explanation is not None
    assert counts.explanation.spread["matches"].total == counts.matches
    return counts.explanation


def test_figures_are_those_of_the_index_and_its_tasks(spark: SparkSession, tmp_path: Path) -> None:
    """Compared postings are counted by the index; events and matches are spread as the files are."""
    spark.conf.set("spark.sql.files.openCostInBytes", 128 << 20)  # a task for each file
    try:
        explained = explain(tmp_path, [100, 200, 4000], spark)
    finally:
        spark.conf.unset("spark.sql.files.openCostInBytes")
    index, scanned, matches = counted(tmp_path)
    assert (explained.tasks, explained.executors, explained.shipped_bytes) == (3, 1, 0)
    assert (explained.subscriptions, explained.segments, explained.postings) == (900, 1, index.posting_count)
    assert explained.spread["scanned"][:3] == (sum(scanned), median(scanned), max(scanned))
    assert explained.spread["matches"][:3] == (sum(matches), median(matches), max(matches))
    assert explained.spread["events"] == (4300, 200, 4000)
    assert explained.spread["events"].skew == 20
    assert explained.scanned_per_match == sum(scanned) / sum(matches) >= 1
    assert explained.index_bytes > 900 * 16
    assert explained.input_bytes > 4300 * 16
    text, figures = str(explained), explained.to_json()
    assert "events by task: median 200, most 4,000, skew 20.00" in text
    assert f"2. 3 tasks for the events of {tmp_path}/events, 0 shuffles of them" in text
    assert figures["per_task"]["events"] == {"total": 4300, "median": 200, "max": 4000, "skew": 20.0}


def counted(folder: Path) -> tuple[Index, list[int], list[int]]:
    """An index in memory, and for each file how many postings it compares and how many matches there are."""
    boxes = pq.read_table(folder / "boxes.parquet")
    columns = [boxes[name].to_numpy() for name in ("min_x", "min_y", "max_x", "max_y")]
    index = build_index(Subscriptions(*columns, boxes["terms"].combine_chunks()))
    scanned, matches = [], []
    for file in sorted((folder / "events").iterdir()):
        table = pq.read_table(file)
        events = Events(table["x"].to_numpy(), table["y"].to_numpy(), table["terms"].combine_chunks())
        scanned.append(sum(int(chunk.times.sum()) for chunk in index.scanned_postings(events)))
        matches.append(sum(len(chunk.event) for chunk in index.matches(events)))
    return index, scanned, matches


def test_a_run_without_spark_has_the_same_figures(tmp_path: Path) -> None:
    """Its tasks are the threads of this process, which share the row groups."""
    explained = explain(tmp_path, [100, 200, 4000])
    index, scanned, matches = counted(tmp_path)
    assert (explained.tasks, explained.executors, explained.shipped_bytes) == (2, 1, 0)
    assert (explained.subscriptions, explained.postings) == (900, index.posting_count)
    totals = {name: each.total for name, each in explained.spread.items() if name != "seconds"}
    assert totals == {"events": 4300, "scanned": sum(scanned), "matches": sum(matches)}
    assert explained.steps[1] == f"2 threads share the 3 row groups of {tmp_path}/events"


def test_a_run_without_matches_is_explained(spark: SparkSession, tmp_path: Path) -> None:
    """There is no ratio then."""
    explained = explain(tmp_path, [0], spark)
    assert (explained.scanned_per_match, explained.spread["events"].skew) == (None, None)
    assert "no matches" in str(explained)
