"""Input that cannot be matched at all is an error in one line, and nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roamcast.errors import InputError, RoamcastError
from roamcast.spark.files.batch import MatchRequest, check_request, match_files
from roamcast.spark.files.sources import Source
from roamcast.spark.files.targets import Target
from roamcast.spark.rows.events import EventColumnNames
from roamcast.spark.rows.subscriptions import SubscriptionColumnNames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

GOOD = {"event_id": [1], "x": [1.0], "y": [1.0], "terms": [["a"]]}
GEOMETRY = EventColumnNames(geometry="g", id="event_id")


@pytest.mark.parametrize(
    ("events", "options", "message"),
    [
        ("file:///nowhere/x.parquet", {}, "no such file"),
        ("nothing-*.parquet", {}, "no such file"),
        ("nowhere://host/x.parquet", {}, 'No FileSystem for scheme "nowhere" .*check the URI'),
        ("s3a://bucket/x.parquet", {}, "S3AFileSystem not found .*needs the jars"),
        ("viewfs://unknown/x.parquet", {}, "Spark failed: .*[Vv]iew"),
        ("table:nothing", {}, "table or view `nothing` cannot be found"),
        ({"a.csv": ""}, {}, "no column 'x'"),
        ({"a.geojson": ""}, {}, "a.geojson: is empty"),
        ({"a.parquet": ""}, {}, "Unable to infer schema .*is it empty"),
        ({"a.parquet": "x" * 100}, {}, "reading file .*a.parquet"),
        ({"a.orc": "x" * 100}, {}, "reading file .*a.orc"),
        ({"a.txt": "x"}, {}, "unknown format"),
        ({"a.geojson": "[]"}, {}, "not a FeatureCollection"),
        ({"a.parquet": {**GOOD, "x": [[1.0]]}}, {}, r"column 'x' is array<double> \(expected numbers\)"),
        ({"a.parquet": {**GOOD, "x": [True]}}, {}, "column 'x' is boolean"),
        ({"a.parquet": {**GOOD, "terms": [7]}}, {}, "column 'terms' is bigint"),
        ({"a.parquet": {**GOOD, "event_id": [[1]]}}, {}, "column 'event_id' is array<bigint>"),
        ({"a.parquet": GOOD}, {"event_columns": GEOMETRY}, "no column 'g' .*columns: event_id, x, y, terms"),
        ({"a.parquet": {**GOOD, "g": [1.0]}}, {"event_columns": GEOMETRY}, "column 'g' is double .expected WKB, WKT"),
        ({"a.parquet": {**GOOD, "g": ["POINT(1"]}}, {"event_columns": GEOMETRY}, "not WKT: .*1 of 1 rows are bad"),
        ({"a.parquet": GOOD, "b.parquet": {**GOOD, "x": ["1"]}}, {}, "Data type mismatches"),
        ({"a.parquet": GOOD}, {"columns": ("fare",)}, "no column 'fare'"),
        ({"a.parquet": GOOD}, {"out": "geoparquet"}, "no geometry column"),
        ({"a.parquet": GOOD}, {"out": "nothing"}, "Failed to find the data source: nothing"),
    ],
)  # fmt: skip
def test_it_is_an_error(
    spark: SparkSession, tmp_path: Path, events: str | dict[str, Any], options: dict[str, Any], message: str
) -> None:
    """It says what is wrong and what to do."""
    boxes = tmp_path / "boxes.csv"
    boxes.write_text("subscription_id,min_x,min_y,max_x,max_y,terms\nq,0,0,2,2,a\n")
    location = events if isinstance(events, str) else str(tmp_path / "events")
    if isinstance(events, dict):
        (tmp_path / "events").mkdir()
        for name, content in events.items():
            if isinstance(content, str):
                (tmp_path / "events" / name).write_text(content)
            else:
                pq.write_table(pa.table(content), tmp_path / "events" / name)
        if len(events) == 1:
            location += f"/{next(iter(events))}"
    target = Target(str(tmp_path / "out"), options.pop("out", "parquet"))
    with pytest.raises(RoamcastError, match=message) as caught:
        match_files(spark, MatchRequest(Source(location), Source(str(boxes)), target, **options))
    assert str(caught.value).endswith(")")  # the hint
    assert "\n" not in str(caught.value)
    assert {path.name for path in tmp_path.iterdir()} <= {"events", "boxes.csv"}


def test_options_that_contradict_each_other(tmp_path: Path) -> None:
    """Both ids are no geometry, and features have theirs. Without Spark."""
    features = tmp_path / "areas.geojson"
    features.write_text('{"type": "FeatureCollection", "features": []}')
    request = MatchRequest(
        Source("s3a://a/events.parquet"), Source(str(features)), Target(str(tmp_path / "out")),
        EventColumnNames(id="trip"), SubscriptionColumnNames(None, None, "name", circle=("x", "y", "r")),
    )  # fmt: skip
    with pytest.raises(InputError, match=r"areas.geojson: features have geometries, not circles \(omit --circle"):
        check_request(request)
    of_ids = request._replace(out=request.out._replace(format="geoparquet"))
    with pytest.raises(InputError, match=r"no geometry column: .*--columns trip,GEOMETRY"):
        check_request(of_ids)


def test_a_table_cannot_be_geoparquet() -> None:
    """It has no files of ours. Without Spark."""
    request = MatchRequest(Source("table:a"), Source("table:b"), Target("table:c", "geoparquet"))
    with pytest.raises(InputError, match="a table cannot be GeoParquet"):
        check_request(request)
