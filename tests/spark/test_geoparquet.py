"""Geometry columns of files: GeoParquet, and Spark's and Parquet's own types, with what they say of coordinates."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sedonadb
import shapely
from py4j.protocol import Py4JJavaError
from pyspark.sql.types import BinaryType, StructField, StructType, UserDefinedType

from roamcast.errors import ConflictError, InputError
from roamcast.spark import compile, match, read_geoparquet, write_geoparquet
from roamcast.spark.files.batch import MatchRequest, match_files, match_local_files
from roamcast.spark.files.sources import Source
from roamcast.spark.files.spark_errors import spark_errors
from roamcast.spark.files.targets import Target
from roamcast.spark.geoparquet import _Files
from roamcast.spark.rows.events import EventColumnNames
from roamcast.spark.rows.subscriptions import SubscriptionColumnNames
from roamcast.spark.tasks.local import LocalSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TRIANGLE = shapely.from_wkt("POLYGON((0 0, 10 0, 0 10, 0 0))")
POINTS = {"in": shapely.Point(1, 1), "border": shapely.Point(5, 5), "out": shapely.Point(9, 9)}
CRS84 = {"id": {"authority": "OGC", "code": "CRS84"}}
EPSG_4326 = {"id": {"authority": "EPSG", "code": 4326}}
MERCATOR = {"name": "WGS 84 / Pseudo-Mercator", "id": {"authority": "EPSG", "code": 3857}}


def write(path: Path, shapes: dict[str, Any], **column: Any) -> str:
    """Write a file as other programs do. Without `column`, it has no key `geo`."""
    table = pa.table({"name": [*shapes], "shape": [shapely.to_wkb(shape) for shape in shapes.values()]})
    if column:
        key = {"version": "1.1.0", "primary_column": "shape", "columns": {"shape": {"geometry_types": [], **column}}}
        table = table.replace_schema_metadata({"geo": json.dumps(key)})
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table, path)
    return str(path)


def names(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def matched(events: DataFrame, areas: DataFrame) -> list[str]:
    with compile(areas.withColumnRenamed("name", "area"), geometry="shape", terms=None) as compiled:
        return [row[0] for row in names(match(events, compiled, geometry="shape", terms=None, columns=["name"]))]


@pytest.mark.parametrize("crs", [{}, {"crs": CRS84}, {"crs": EPSG_4326}])
def test_geoparquet_is_read(spark: SparkSession, tmp_path: Path, crs: dict[str, Any]) -> None:
    """In longitude and latitude, which is also meant if the file has no reference system."""
    events = read_geoparquet(spark, write(tmp_path / "events.parquet", POINTS, encoding="WKB", **crs))
    areas = read_geoparquet(spark, write(tmp_path / "areas.parquet", {"t": TRIANGLE}, encoding="WKB", **crs))
    assert matched(events, areas) == ["border", "in"]


@pytest.mark.parametrize(
    ("column", "message", "hint"),
    [
        ({"encoding": "WKB", "crs": MERCATOR}, "column 'shape' has the CRS EPSG:3857", "EPSG:4326"),
        ({"encoding": "WKB", "crs": {"name": "mine"}}, "column 'shape' has the CRS mine", "convert"),
        ({"encoding": "WKB", "crs": None}, "column 'shape' has the CRS unknown", "convert"),
        ({"encoding": "point"}, "column 'shape' has the encoding point", "x='shape.x'"),
        ({"encoding": "WKB", "edges": "spherical"}, "subscriptions: column 'shape' has spherical edges", "straight"),
    ],
)
def test_other_coordinates_are_refused(
    spark: SparkSession, tmp_path: Path, column: dict[str, Any], message: str, hint: str
) -> None:
    """Before a job starts; points have no edges, and a column that only passes through is not checked."""
    frame = read_geoparquet(spark, write(tmp_path / "a.parquet", {"t": TRIANGLE}, **column))
    with pytest.raises(InputError, match=message) as caught:
        compile(frame, geometry="shape", terms=None)
    assert hint in str(caught.value)
    points = read_geoparquet(spark, write(tmp_path / "b.parquet", POINTS, **column))
    if "edges" in column:
        assert matched(points, spark.createDataFrame([("t", TRIANGLE.wkb)], "name string, shape binary")) == [
            "border",
            "in",
        ]
    else:
        with pytest.raises(InputError, match=f"events: {message}"):
            match(points, boxes_of(frame), geometry="shape", terms=None)
    compile(boxes_of(frame)).close()


def boxes_of(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("shape AS area", "0 min_x", "0 min_y", "9 max_x", "9 max_y", "'' terms")


def test_files_must_agree(spark: SparkSession, tmp_path: Path) -> None:
    """On the columns of geometry, and a damaged key is an error."""
    write(tmp_path / "two" / "a.parquet", POINTS, encoding="WKB")
    write(tmp_path / "two" / "b.parquet", POINTS, encoding="WKB", crs=MERCATOR)
    with pytest.raises(InputError, match="has other geometry columns than"):
        read_geoparquet(spark, str(tmp_path / "two"))
    write(tmp_path / "two" / "b.parquet", POINTS, encoding="WKB", crs=CRS84)
    assert read_geoparquet(spark, str(tmp_path / "two")).count() == 6
    with pytest.raises(InputError, match="the key 'geo' is not GeoParquet's"):
        read_geoparquet(spark, write(tmp_path / "bad.parquet", POINTS, crs=MERCATOR))
    plain = read_geoparquet(spark, write(tmp_path / "plain.parquet", POINTS))
    assert matched(plain, spark.createDataFrame([("t", TRIANGLE.wkb)], "name string, shape binary")) == ["border", "in"]


def test_geoparquet_is_written(spark: SparkSession, tmp_path: Path) -> None:
    """Any reader finds the key in each file, and the rows are the same; a second column too, and one that is empty."""
    rows = [(name, bytearray(shape.wkb), None) for name, shape in POINTS.items()]
    frame = spark.createDataFrame(rows, "name string, shape binary, `b.c` binary").repartition(2)
    out = str(tmp_path / "out")
    write_geoparquet(frame, out, geometry=["shape", "b.c"])
    files = sorted((tmp_path / "out").glob("*.parquet"))
    assert len(files) == 2
    for file in files:
        key = json.loads(pq.read_metadata(file).metadata[b"geo"])
        about = {"encoding": "WKB", "geometry_types": []}
        assert key == {"version": "1.1.0", "primary_column": "shape", "columns": {"shape": about, "b.c": about}}
    table = pq.read_table(tmp_path / "out")
    assert sorted(zip(*(table[name].to_pylist() for name in table.column_names), strict=True)) == sorted(rows)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    again = read_geoparquet(spark, out)
    with pytest.raises(ConflictError, match="already exists"):
        write_geoparquet(again, out)
    write_geoparquet(again.where("name = 'none'"), out, mode="overwrite", crs=None)
    assert read_geoparquet(spark, out).count() == 0
    (file,) = (tmp_path / "out").glob("*.parquet")
    assert json.loads(pq.read_metadata(file).metadata[b"geo"])["columns"]["shape"] == about


@pytest.mark.filterwarnings("ignore:Failed to configure")  # PROJ and GDAL
def test_another_program_reads_and_writes_geoparquet(spark: SparkSession, tmp_path: Path) -> None:
    """SedonaDB knows our column for a geometry in longitude and latitude, and we its."""
    write_geoparquet(shapes_of(spark, POINTS, "wkb AS shape"), str(tmp_path / "ours"), geometry="shape")
    database = sedonadb.connect()
    ours = database.read_parquet([str(path) for path in (tmp_path / "ours").glob("*.parquet")])
    assert "crs84" in str(ours.schema)
    ours.to_view("ours")
    table = pa.table(database.sql("SELECT name, ST_X(shape) AS x FROM ours ORDER BY name"))
    assert table.to_pylist() == [{"name": name, "x": POINTS[name].x} for name in sorted(POINTS)]
    database.sql("SELECT name, shape FROM ours").to_parquet(str(tmp_path / "theirs.parquet"))
    theirs = read_geoparquet(spark, str(tmp_path / "theirs.parquet"))
    assert matched(theirs, shapes_of(spark, {"t": TRIANGLE}, "wkb AS shape")) == ["border", "in"]


@pytest.mark.parametrize(
    ("expression", "options", "message"),
    [
        ("'POINT(1 1)'", {"geometry": "g"}, "column 'g' is string"),
        ("X'00'", {}, "no geometry column"),
        ("X'00'", {"geometry": "h"}, "no column 'h'"),
        ("X'00'", {"geometry": []}, "no geometry column"),
        ("X'00'", {"geometry": "g", "mode": "append"}, "mode must be"),
        ("X'00'", {"geometry": "g", "crs": "EPSG:3857"}, "crs must be"),
        ("st_geomfromwkb(X'0101000000000000000000F03F0000000000000040', 3857)", {}, "the reference system SRID 3857"),
    ],
)
def test_what_cannot_be_written_is_an_error(
    spark: SparkSession, tmp_path: Path, expression: str, options: dict[str, Any], message: str
) -> None:
    """Before anything is there."""
    with pytest.raises(InputError, match=message):
        write_geoparquet(spark.sql(f"SELECT {expression} AS g"), str(tmp_path / "out"), **options)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("order", [0, 1])
def test_ewkb_is_not_written(spark: SparkSession, tmp_path: Path, order: int) -> None:
    """GeoParquet has no SRID in geometries. What was there before stays."""
    shape = shapely.set_srid(shapely.Point(1, 2), 4326)
    frame = spark.createDataFrame(
        [(bytearray(shapely.to_wkb(shape, byte_order=order, include_srid=True)),)], "g binary"
    )
    write_geoparquet(spark.sql("SELECT X'' AS g WHERE false"), str(tmp_path / "out"), geometry="g")
    before = sorted((tmp_path / "out").iterdir())
    with pytest.raises(Exception, match="has EWKB"), spark_errors():
        write_geoparquet(frame, str(tmp_path / "out"), geometry="g", mode="overwrite")
    assert sorted((tmp_path / "out").iterdir()) == before
    z = bytearray(shapely.to_wkb(shapely.Point(1, 2, 3), byte_order=order, flavor="iso"))
    write_geoparquet(spark.createDataFrame([(z,)], "g binary"), str(tmp_path / "z"), geometry="g")


def shapes_of(spark: SparkSession, shapes: dict[str, Any], *expression: str) -> DataFrame:
    rows = [(name, bytearray(shape.wkb)) for name, shape in shapes.items()]
    return spark.createDataFrame(rows, "name string, wkb binary").selectExpr("name", *expression)


GEOMETRIES: Sequence[str] = (
    "st_geomfromwkb(wkb)", "st_geomfromwkb(wkb, 4326)", "CAST(st_geomfromwkb(wkb, 4326) AS GEOMETRY(ANY))",
)  # fmt: skip


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_geometry_of_spark_is_read(spark: SparkSession, tmp_path: Path, geometry: str) -> None:
    """Also from Parquet files, in which it is Parquet's own type; and it passes through, also with bad rows."""
    events = shapes_of(spark, POINTS, f"{geometry} AS shape")
    stored = events
    if "ANY" not in geometry:  # Parquet has one reference system for a column
        events.write.parquet(str(tmp_path / "events"))
        stored = spark.read.parquet(str(tmp_path / "events"))
    assert stored.schema["shape"].dataType == events.schema["shape"].dataType
    areas = shapes_of(spark, {"t": TRIANGLE}, f"{geometry} AS shape")
    assert matched(events, areas) == matched(stored, areas) == ["border", "in"]
    with compile(areas, geometry="shape", terms=None, columns=["shape"]) as compiled:
        mixed = stored.union(
            events.selectExpr("'bad'", f"CAST(NULL AS {events.schema['shape'].dataType.simpleString()})")
        )
        rows = match(mixed, compiled, geometry="shape", terms=None, on_bad_rows="collect").collect()
    assert {(row.name, row.problem) for row in rows} == {("in", None), ("border", None), ("bad", "shape is missing")}
    assert {bytes(row.subscription_shape.getBytes()) for row in rows if row.problem is None} == {TRIANGLE.wkb}
    assert next(row for row in rows if row.name == "in").event_shape.getBytes() == POINTS["in"].wkb


def test_geography_has_points_only(spark: SparkSession) -> None:
    """The edges of its areas are not those that we match."""
    events = shapes_of(spark, POINTS, "st_geogfromwkb(wkb) AS shape")
    areas = shapes_of(spark, {"t": TRIANGLE}, "wkb AS shape")
    assert matched(events, areas) == ["border", "in"]
    round = shapes_of(spark, {"t": TRIANGLE}, "st_geogfromwkb(wkb) AS shape")
    with pytest.raises(InputError, match=r"'shape' is geography\(4326\), whose edges are arcs .*st_geomfromwkb"):
        matched(events, round)
    assert matched(events, round.selectExpr("name", "st_geomfromwkb(st_asbinary(shape), 4326) AS shape")) == [
        "border",
        "in",
    ]
    with (
        compile(areas, geometry="shape", terms=None, space="planar") as flat,
        pytest.raises(InputError, match="planar"),
    ):
        match(events, flat, geometry="shape", terms=None)


def test_other_reference_systems_of_spark_are_refused(spark: SparkSession) -> None:
    """Those of a type before a job starts; those of rows are problems of these rows."""
    metres = shapes_of(spark, POINTS, "st_geomfromwkb(wkb, 3857) AS shape")
    areas = shapes_of(spark, {"t": TRIANGLE}, "wkb AS shape")
    with pytest.raises(InputError, match=r"'shape' is geometry\(3857\), not longitude and latitude"):
        matched(metres, areas)
    mixed = metres.union(shapes_of(spark, POINTS, "st_geomfromwkb(wkb, 4326) AS shape"))
    with compile(areas, geometry="shape", terms=None, columns=[]) as compiled:
        rows = match(mixed, compiled, geometry="shape", terms=None, columns=["name"], on_bad_rows="collect").collect()
    assert sorted(str(row.problem)[:23] for row in rows) == ["None", "None"] + ["SRID 3857 is not 4326: "] * 3


def test_geometry_of_spark_is_written_as_geoparquet(spark: SparkSession, tmp_path: Path) -> None:
    """With the reference system of its type; of GEOGRAPHY, edges are spherical."""
    expressions = ("st_geomfromwkb(wkb, 4326) AS a", "st_geogfromwkb(wkb) AS b", "st_geomfromwkb(wkb) AS c")
    write_geoparquet(shapes_of(spark, POINTS, *expressions), str(tmp_path / "out"), crs=None)
    about = {"encoding": "WKB", "geometry_types": []}
    (file, *_) = (tmp_path / "out").glob("*.parquet")
    columns = json.loads(pq.read_metadata(file).metadata[b"geo"])["columns"]
    assert columns == {"a": about, "b": {**about, "edges": "spherical"}, "c": {**about, "crs": None}}
    assert sorted(pq.read_table(tmp_path / "out")["a"].to_pylist()) == sorted(point.wkb for point in POINTS.values())


class BoxedShape(UserDefinedType):
    """A user-defined type, as Sedona's is."""

    @classmethod
    def sqlType(cls) -> BinaryType:  # noqa: N802 - Spark's name
        return BinaryType()

    @classmethod
    def module(cls) -> str:
        return __name__

    def serialize(self, obj: Any) -> bytes:
        return bytes(obj)


def test_user_defined_types_are_refused(spark: SparkSession) -> None:
    """Their bytes are not WKB. The error says what to do."""
    schema = StructType([StructField("shape", BoxedShape())])
    frame = spark.createDataFrame([], schema)
    with pytest.raises(InputError, match=r"of the user-defined type BoxedShape .*ST_AsBinary"):
        compile(frame, geometry="shape", terms=None)


def test_files_are_matched_to_geoparquet(spark: SparkSession, tmp_path: Path) -> None:
    """Those columns are geometries that were read as such; at a local URI, and by another file system of Hadoop's."""
    events = write(tmp_path / "events.parquet", POINTS, encoding="WKB", crs=EPSG_4326)
    areas = write(tmp_path / "areas.parquet", {"t": TRIANGLE}, encoding="WKB")
    names = {
        "event_columns": EventColumnNames(terms=None, id="name", geometry="shape"),
        "subscription_columns": SubscriptionColumnNames(None, None, "name", "shape"),
        "columns": ("event_name", "event_shape", "subscription_shape"),
    }
    (tmp_path / "mounted").mkdir()
    spark._jsc.hadoopConfiguration().set(  # type: ignore[attr-defined]
        "fs.viewfs.mounttable.geo.link./mounted", (tmp_path / "mounted").as_uri()
    )
    for location in (f"file://{tmp_path}/out", "viewfs://geo/mounted/out"):
        target = Target(location, "geoparquet")
        request = MatchRequest(Source(events), Source(areas), target, **names)  # type: ignore[arg-type]
        assert match_files(spark, request).matches == 2
        with pytest.raises(ConflictError):
            match_files(spark, request)
        match_files(spark, request._replace(out=target._replace(overwrite=True)))
    assert {path.name for path in (tmp_path / "mounted").iterdir()} == {"out"}
    for out in (tmp_path / "out", tmp_path / "mounted" / "out"):
        rows = read_geoparquet(spark, str(out)).collect()
        shapes = {row.event_name: (bytes(row.event_shape), bytes(row.subscription_shape)) for row in rows}
        assert shapes == {name: (POINTS[name].wkb, TRIANGLE.wkb) for name in ("in", "border")}
        (file, *_) = out.glob("*.parquet")
        about = {"encoding": "WKB", "geometry_types": []}
        columns = json.loads(pq.read_metadata(file).metadata[b"geo"])["columns"]
        assert columns == {"event_shape": about, "subscription_shape": about}


def test_files_are_checked_without_spark_too(spark: SparkSession, tmp_path: Path) -> None:
    """`roamcast match` reads plain local files itself, and leaves errors and types of Parquet's own to Spark."""
    areas = write(tmp_path / "areas.parquet", {"t": TRIANGLE}, encoding="WKB")
    good = write(tmp_path / "good.parquet", POINTS, encoding="WKB", crs=EPSG_4326)
    metres = write(tmp_path / "metres.parquet", POINTS, encoding="WKB", crs=MERCATOR)
    for srid in (4326, 3857):
        shapes = shapes_of(spark, POINTS, f"st_geomfromwkb(wkb, {srid}) AS shape")
        shapes.write.parquet(str(tmp_path / f"own-{srid}"))
    own, wrong = str(tmp_path / "own-4326"), str(tmp_path / "own-3857")
    for number, (events, local, message) in enumerate(
        [(good, True, ""), (own, False, ""), (metres, False, "the CRS EPSG:3857"), (wrong, False, "geometry.3857.")]
    ):
        request = MatchRequest(
            Source(events), Source(areas), Target(str(tmp_path / f"out-{number}")),
            EventColumnNames(terms=None, id="name", geometry="shape"),
            SubscriptionColumnNames(None, None, "name", "shape"),
        )  # fmt: skip
        counts = match_local_files(LocalSession(1), request)
        assert (counts is not None) == local
        if message:
            with pytest.raises(InputError, match=message):
                match_files(spark, request)
            continue
        counts = counts or match_files(spark, request)
        assert counts.matches == 2


def test_a_copy_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Neither a file that is open nor a half of the result: Java refuses to write a key that is no text."""
    for number in range(2):
        with pytest.raises(Py4JJavaError, match="ClassCastException"):
            _Files(spark).write(spark.range(0, 9, 1, 3), f"file://{tmp_path}/out", 7, bool(number))  # type: ignore[arg-type]
        assert not [*tmp_path.iterdir()]


def test_bad_rows_with_geometries_are_written(spark: SparkSession, tmp_path: Path) -> None:
    """JSON has no GEOMETRY: it is WKB there, in Base64."""
    shapes_of(spark, {"line": shapely.LineString([(0, 0), (1, 1)])}, "st_geomfromwkb(wkb) AS shape").write.parquet(
        str(tmp_path / "events")
    )
    areas = write(tmp_path / "areas.parquet", {"t": TRIANGLE}, encoding="WKB")
    request = MatchRequest(
        Source(str(tmp_path / "events")), Source(areas), Target(str(tmp_path / "out")),
        EventColumnNames(terms=None, id="name", geometry="shape"),
        SubscriptionColumnNames(None, None, "name", "shape"), bad_rows=Target(str(tmp_path / "bad"), "json"),
    )  # fmt: skip
    assert match_files(spark, request).bad_events.count == 1
    (line,) = [line for file in (tmp_path / "bad" / "events").glob("*.json") for line in file.read_text().splitlines()]
    row = json.loads(line)
    assert row["problem"] == "the geometry must be a Point, not LineString"
    assert shapely.from_wkb(base64.b64decode(row["shape"])).geom_type == "LineString"
