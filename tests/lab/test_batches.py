"""Batches for measurements: on Spark as in this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from roamcast.lab.batches import Batches, write_events
from roamcast.lab.bench.match.data import MatchData
from roamcast.lab.models.matcher import ReferenceMatcher
from roamcast.pipeline.query.batch_state import BatchSettings

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
