"""A program for spark-submit: matches events that Spark makes, and prints what it finds as JSON."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import roamcast.spark


def main() -> None:
    spark = SparkSession.builder.getOrCreate()
    columns = ["id", "id % 7 - 1D AS x", "id % 5D AS y", "array(concat('t', id % 3)) AS terms"]
    events = spark.range(0, 1200, 1, 6).selectExpr(*columns)
    boxes = spark.createDataFrame(
        [("box", 0.0, 0.0, 3.0, 3.0, "t1"), ("point", 2.0, 2.0, 2.0, 2.0, "")],
        "name string, min_x double, min_y double, max_x double, max_y double, terms string",
    )
    areas = spark.createDataFrame(
        [("triangle", "POLYGON((0 0, 4 0, 0 4, 0 0))", "t0")], "name string, area string, terms string"
    )
    found: dict[str, object] = {}
    with (
        roamcast.spark.compile(boxes, id="name") as first,
        roamcast.spark.compile(areas, geometry="area", id="name") as second,
    ):
        for compiled in (first, second):
            matches = roamcast.spark.match(events, compiled, id="id")
            rows = matches.groupBy("name").agg(f.count("*"), f.sum("id")).collect()
            found |= {name: figures for name, *figures in rows}
        roamcast.spark.register("matches", events, first, id="id")
        events.createOrReplaceTempView("events")
        found["sql"] = spark.sql("SELECT count(*) FROM matches(TABLE(events))").head()[0]  # type: ignore[index]
    workers = events.mapInArrow(_where, "path string").distinct().collect()
    found["package"] = [roamcast.spark.__file__, *(row.path for row in workers)]
    sys.stdout.write(json.dumps(found))


def _where(batches):  # type: ignore[no-untyped-def]
    """Where the package is that tasks import."""
    import pyarrow as pa

    import roamcast.spark

    for batch in batches:
        yield pa.RecordBatch.from_pydict({"path": [roamcast.spark.__file__] * batch.num_rows})


if __name__ == "__main__":
    main()
