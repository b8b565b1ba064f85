"""Batches for measurements: on Spark as in this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from roamcast.lab.batches import Batches, event_records, write_events
from roamcast.lab.bench.match.data import MatchData
from roamcast.lab.models.matcher import ReferenceMatcher
from roamcast.match.port import Subscriptions
from roamcast.pipeline.query.batch_state import BatchSettings
from roamcast.pipeline.tasks.match_job import TooManyMatchesError, match_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_a_batch_runs_here_and_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Workers report the CPU time of matching."""
    data = MatchData(500)
    events, subscriptions = data.first_events(500), data.subscriptions(300)
    records = write_events(spark, tmp_path / "events", events)
    batches = Batches(tmp_path / "state", subscriptions, records, BatchSettings(workers=2))
    batches.run_here([], events)
    assert batches.state.manifest.counters["events"] == 500
    prepared = batches.prepare(batches.records([]))
    assert batches.count_matches(prepared) == len(ReferenceMatcher(subscriptions).match(events).event)
    seconds = batches.worker_seconds(prepared)
    assert len(seconds) == 2
    assert min(seconds) > 0
    records.unpersist()


@pytest.mark.spark
@pytest.mark.parametrize("workers", [0, 2])
def test_the_driver_stops_at_too_many_matches(spark: SparkSession, tmp_path: Path, workers: int) -> None:
    """As many as it may have are all right. If there is one more, it does not match all events first."""
    events = MatchData(1_000).first_events(1_000)
    sides = [np.full(3, limit) for limit in (-180.0, -90.0, 180.0, 90.0)]
    subscriptions = Subscriptions(*sides, pa.array([[], [], []], pa.list_(pa.string())))
    records = write_events(spark, tmp_path / "events", events)
    batches = Batches(tmp_path / "state", subscriptions, records, BatchSettings(workers=workers))
    context = batches.prepare(batches.records([])).context
    portions = event_records(events, 0).to_batches(max_chunksize=100)
    matched = match_here(portions, context, 3_000)
    assert len(matched["subscriptions"].combine_chunks().flatten()) == 3_000
    with pytest.raises(TooManyMatchesError):
        match_here(portions, context, 2_999)
    unread = iter(portions)
    with pytest.raises(TooManyMatchesError):
        match_here(unread, context, 299)
    assert len(list(unread)) == (0 if workers else 9)
    records.unpersist()
