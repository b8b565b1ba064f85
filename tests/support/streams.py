"""A pipeline inside the test process, on the Spark session that tests share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from roamcast.pipeline.query.identity import open_pipeline
from roamcast.pipeline.query.stream import PipelineLimits, PipelineQuery


@contextmanager
def running_stream(spark: SparkSession, data: Path, limits: PipelineLimits | None = None) -> Iterator[StreamingQuery]:
    """Run the pipeline of a data folder. Starting a process and a JVM is saved; everything else is the real thing."""
    pipeline = open_pipeline(data, new=False)
    try:
        query = PipelineQuery(spark, pipeline, data, limits or PipelineLimits()).start()
        try:
            yield query
            query.processAllAvailable()  # raises what stopped the query, if something did
        finally:
            query.stop()
    finally:
        pipeline.close()
