"""A stream of events has the matches of the same events in a batch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from roamcast.errors import InputError
from roamcast.spark import compile, match

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "id long, x double, y double, terms array<string>"


@pytest.fixture
def events(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """Six files: a stream reads them in three micro-batches."""
    folder = str(tmp_path / "events")
    numbers = spark.range(0, 1200, 1, 6)
    numbers.selectExpr("id", "id % 7 - 1D AS x", "id % 5D AS y", "array(concat('t', id % 3)) AS terms").write.json(
        folder
    )
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 2).json(folder)


def test_a_stream_equals_a_batch(spark: SparkSession, events: DataFrame, tmp_path: Path) -> None:
    """Into files, and by foreachBatch, in which the batch is a frame like others. It can be stopped and continued."""
    boxes = spark.createDataFrame(
        [("a", 0, 0, 3, 3, "t1"), ("b", -1, 0, 5, 4, ""), ("c", 2, 2, 2, 2, "t0;t2")],
        "name string, min_x int, min_y int, max_x int, max_y int, terms string",
    )
    with compile(boxes, id="name") as compiled:
        expected = match(spark.read.schema(SCHEMA).json(str(tmp_path / "events")), compiled, id="id").collect()
        matches = match(events, compiled, id="id").writeStream.option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        query = matches.format("parquet").trigger(availableNow=True).start(str(tmp_path / "out"))
        query.awaitTermination(120)
        assert sum(1 for progress in query.recentProgress if progress["numInputRows"]) == 3
        assert sorted(spark.read.parquet(str(tmp_path / "out")).collect()) == sorted(expected)
        batches: list[int] = []

        def keep(frame: DataFrame, number: int) -> None:
            found = match(frame, compiled, id="id").collect()
            batches.append(len(found))
            kept.extend(found)

        kept: list[object] = []
        events.writeStream.foreachBatch(keep).trigger(availableNow=True).start().awaitTermination(120)
        assert sorted(kept, key=str) == sorted(expected, key=str)
        assert len(batches) == 3
        with pytest.raises(InputError, match="no column 'lon'"):
            match(events, compiled, x="lon")
