"""The plain Spark job finds the matches of the world."""

from __future__ import annotations

from pathlib import Path

import pytest

from roamcast.lab.bench.saturation.peers.port import PeerLoad
from roamcast.lab.bench.saturation.peers.spark_sql import SPARK_SQL
from roamcast.lab.bench.saturation.world import SaturationLoad, World, event_batches


@pytest.mark.e2e
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_spark_job_finds_all_matches_and_no_others(tmp_path: Path) -> None:
    """Of all files that have arrived. Fewer events match than not."""
    world = World.of(300, 0.3)
    batches = event_batches(world, SaturationLoad(300, 0.3))
    figures = SPARK_SQL.measure(PeerLoad(world, batches, 0.0, 1.0, tmp_path))
    assert figures["wrong"] == 0
    assert figures["events"] % sum(len(batch.cells) for batch in batches) == 0
    assert 0 < figures["matches"] < figures["events"] / 2
    assert figures["events_per_s"] > 0
