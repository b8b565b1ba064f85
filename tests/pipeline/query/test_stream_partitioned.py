"""The partitioned plan through a real Spark session and a real journal."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from batches import Batch, PureStream, placed
from pyspark.sql import SparkSession
from worlds import journal, letters, run, town

from roamcast.deliver.outbox import Outbox
from roamcast.match.partitioners.categories import CategoryParameters, Distribution
from roamcast.pipeline.query.batch_state import BatchSettings
from roamcast.pipeline.query.stream import PipelineLimits
from roamcast.pipeline.state.manifests import StateFolder
from roamcast.pipeline.state.partitioning import PartitionerName, PartitioningSettings

pytestmark = pytest.mark.spark


def letters_of(result: Batch) -> list[tuple[str, int, str, str]]:
    """As `worlds.letters` shows them."""
    rows = [row for table in result.letters.values() for row in table.to_pylist()]
    bodies = [orjson.loads(row["body"]) for row in rows]
    return [
        (row["receiver"], row["number"], body["subscription"], body["event"]["id"])
        for row, body in zip(rows, bodies, strict=True)
    ]


@pytest.mark.parametrize("partitioner", ["drtcluster", "kdtree"])
def test_spark_decides_what_one_process_decides(
    spark: SparkSession, tmp_path: Path, partitioner: PartitionerName
) -> None:
    """The same letters and the same placement, from the load that tasks report, with a restart before every batch.

    Every other batch is matched in the driver.
    """
    parameters = CategoryParameters(4, new_threshold=0.3, window=8, matches=4)
    partitioning = PartitioningSettings(partitioner, 0.0, parameters, Distribution(overload=1.0))
    settings = BatchSettings(workers=3, rebalance_events=20, partitioning=partitioning)
    pure, data, first = PureStream(tmp_path / "pure", settings), tmp_path / "data", 1
    whole, expected = PureStream(tmp_path / "whole"), list[tuple[str, int, str, str]]()
    for seed in range(4):
        records = town(seed, 60, 60 * seed)
        journal(data, records)
        run(spark, data, limits=PipelineLimits(driver_events=100 * (seed % 2), batch=settings))
        pure.run(placed(records, first=first))
        expected += letters_of(whole.run(placed(records, first=first)))
        first += len(records)
    assert sorted(letters(data)) == sorted(expected)
    manifest = StateFolder(data / "pipeline" / "state").newest()
    assert manifest is not None
    assert manifest.index.sharded is not None
    assert pure.state.manifest.index.sharded is not None
    assert manifest.index.sharded.partitioning == pure.state.manifest.index.sharded.partitioning
    assert manifest.index.sharded.moved == pure.state.manifest.index.sharded.moved > 0
    status = Outbox(data / "outbox").read_status()
    assert status is not None
    assert status.partitioning is not None
    assert (status.partitioning["partitioner"], len(status.partitioning["shards"])) == (partitioner, 3)
