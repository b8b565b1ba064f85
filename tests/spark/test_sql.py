"""Matching as a table function of SQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
import shapely
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from roamcast.errors import InputError
from roamcast.spark import CompiledSubscriptions, compile, match, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def trips(spark: SparkSession) -> DataFrame:
    position = "named_struct('lon', id % 40 - 20D, 'lat', id % 17 - 8D) AS position"
    trips = spark.range(0, 3000, 1, 3).selectExpr(
        "id AS trip", position, "array(concat('t', id % 5)) AS tags", "id * 2 AS fare"
    )
    trips.createOrReplaceTempView("trips")
    return trips


@pytest.fixture(scope="module")
def compiled(spark: SparkSession) -> Iterator[CompiledSubscriptions]:
    box = ("id % 30 - 15D AS min_x", "id % 9 - 5D AS min_y", "id % 30 - 12D AS max_x", "id % 9 - 1D AS max_y")
    boxes = spark.range(500).selectExpr("concat('s', id) AS name", *box, "array(concat('t', id % 7)) AS terms")
    with compile(boxes, id="name") as compiled:
        yield compiled


FIELDS: dict[str, Any] = {"x": "position.lon", "y": "position.lat", "terms": "tags"}


def rows(frame: DataFrame) -> list[Any]:
    return sorted(frame.collect(), key=str)


def test_a_table_function_returns_the_matches(
    spark: SparkSession, trips: DataFrame, compiled: CompiledSubscriptions
) -> None:
    """Of any table that has its columns: others are ignored, and the order does not matter."""
    register("matches", trips, compiled, columns=["trip", "fare", "name"], **FIELDS)
    expected = match(trips, compiled, columns=["trip", "fare", "name"], **FIELDS)
    found = spark.sql("SELECT * FROM matches(TABLE(trips))")
    assert found.schema == expected.schema
    assert rows(found) == rows(expected)
    assert found.count() > 1000
    twice = "SELECT *, -1L AS TRIP FROM trips"  # the exact name is meant
    assert rows(spark.sql(f"SELECT * FROM matches(TABLE({twice}))")) == rows(expected)
    some = "SELECT 'x' AS more, FARE, tags, trip, position FROM trips WHERE trip < 50"
    assert rows(spark.sql(f"SELECT * FROM matches(TABLE({some}))")) == rows(expected.where("trip < 50"))
    assert spark.sql("SELECT * FROM matches(TABLE(SELECT * FROM trips WHERE trip < 0))").count() == 0


def test_matches_are_joined(spark: SparkSession, trips: DataFrame, compiled: CompiledSubscriptions) -> None:
    """With other tables, as any table is; so are those of a view."""
    register("matches", trips, compiled, columns=["trip", "name"], **FIELDS)
    match(trips, compiled, columns=["trip", "name"], **FIELDS).createOrReplaceTempView("matched")
    spark.range(500).selectExpr("concat('s', id) AS name", "concat('o', id % 3) AS owner").createOrReplaceTempView(
        "owners"
    )
    query = "SELECT owner, count(*) AS n FROM {} JOIN owners USING (name) GROUP BY owner ORDER BY owner"
    by_function = spark.sql(query.format("matches(TABLE(trips))")).collect()
    assert by_function == spark.sql(query.format("matched")).collect()
    assert [row.owner for row in by_function] == ["o0", "o1", "o2"]


def test_an_event_may_have_very_many_matches(spark: SparkSession) -> None:
    """More than go into one batch of results."""
    everywhere = spark.range(250_000).selectExpr("id AS name")
    point = spark.sql("SELECT 0 AS x, 0 AS y")
    with compile(everywhere, box=None, terms=None) as compiled:
        register("everywhere", point, compiled, terms=None, columns=["name"])
        found = spark.sql("SELECT * FROM everywhere(TABLE(SELECT 0 AS x, 0 AS y))")
        assert found.agg(f.count("*"), f.countDistinct("name")).collect() == [(250_000, 250_000)]


def test_bad_rows_are_collected(spark: SparkSession, compiled: CompiledSubscriptions) -> None:
    """As `match` does, or the query fails with the reason."""
    point = spark.sql("SELECT 'a' AS id, 0D AS x, 0D AS y, array('t0') AS terms")
    bad = "SELECT 'b' AS id, 999D AS x, 0D AS y, array('t0') AS terms"
    register("collected", point, compiled, id="id", on_bad_rows="collect")
    found = spark.sql(f"SELECT * FROM collected(TABLE({bad}))").collect()
    assert [tuple(row) for row in found] == [("b", None, "x 999 is outside -180 to 180")]
    register("failing", point, compiled, id="id")
    with pytest.raises(PySparkException, match="x 999 is outside -180 to 180"):
        spark.sql(f"SELECT * FROM failing(TABLE({bad}))").collect()


def test_wrong_columns_are_errors(spark: SparkSession, trips: DataFrame, compiled: CompiledSubscriptions) -> None:
    """Those of `events` at once, those of a table when it is read."""
    with pytest.raises(InputError, match="no column 'lon'"):
        register("matches", trips, compiled, x="lon")
    with pytest.raises(InputError, match="'a b' is not a name"):
        register("a b", trips, compiled, **FIELDS)
    with pytest.raises(InputError, match="subscriptions are not compiled"):
        register("matches", trips, trips, **FIELDS)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="on_bad_rows must be"):
        register("matches", trips, compiled, on_bad_rows="drop", **FIELDS)  # type: ignore[arg-type]
    register("matches", trips, compiled, **FIELDS)
    with pytest.raises(PySparkException, match=r"no column 'position' .columns: trip"):
        spark.sql("SELECT * FROM matches(TABLE(SELECT trip, tags, fare FROM trips))").collect()
    with pytest.raises(PySparkException, match=r"column 'tags' is string \(cast it to array<string>, or register"):
        spark.sql("SELECT * FROM matches(TABLE(SELECT trip, position, 't1' AS tags, fare FROM trips))").collect()
    with pytest.raises(PySparkException, match=r"several columns 'trip' \(rename"):
        spark.sql(
            "SELECT * FROM matches(TABLE(SELECT 1L AS Trip, 1L AS TRIP, position, tags, fare FROM trips))"
        ).collect()
    with pytest.raises(PySparkException, match=r"write TABLE"):
        spark.sql("SELECT * FROM matches(1)").collect()


def test_geometries_pass_through(spark: SparkSession) -> None:
    """Those of Spark's own type too, of both sides."""
    points = spark.sql("SELECT st_geomfromwkb(unhex('0101000000000000000000F03F000000000000F03F'), 4326) AS shape")
    areas = spark.createDataFrame([(shapely.box(0, 0, 2, 2).wkb,)], "area binary")
    areas = areas.selectExpr("st_geomfromwkb(area, 4326) AS area")
    with compile(areas, geometry="area", terms=None, columns=["area"]) as compiled:
        options: dict[str, Any] = {"geometry": "shape", "terms": None, "columns": ["shape", "area"]}
        register("shapes", points, compiled, **options)
        points.createOrReplaceTempView("points")
        (row,) = spark.sql("SELECT * FROM shapes(TABLE(points))").collect()
        assert [row] == match(points, compiled, **options).collect()
    assert (row.shape.getSrid(), shapely.from_wkb(bytes(row.area.getBytes())).bounds) == (4326, (0, 0, 2, 2))
