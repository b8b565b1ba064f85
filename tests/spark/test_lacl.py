"""Queries over data frames: readings, attributes and places in any form, and mistakes as errors before a job starts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import shapely

from roamcast.errors import InputError
from roamcast.spark import compile, match, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

QUERIES = {
    "box": "Select all() Where &location in box(179, -1, -179, 1)",
    "circle": "Select all() Where &location in circle(180, 0, 1 km)",
    "place": 'Select all() Where &location in within("port") and not &terms has (drill)',
    "fast": "Select all() Where &terms has fire On @speed > 50",
    "bus": "Select all() Where &location in box(-180, -90, 180, 90) and (&kind = bus or &floor = 2) On @ >= 10",
}
PLACES = '{"type":"FeatureCollection","features":[{"type":"Feature","properties":{"name":"port"},"geometry":%s}]}'
PORT = shapely.box(0, 0, 2, 2)


@pytest.fixture(scope="module")
def wanted(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([*QUERIES.items()], "name string, query string")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("places") / "places.geojson"
    file.write_text(PLACES % shapely.to_geojson(PORT))
    return file


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    rows = [
        (1, 180.0, 0.0, ["fire"], {"speed": 60.0}, "bus", 1, "speed"),
        (2, -179.995, 0.0, ["drill"], {"speed": 5.0, "noise": 12.0}, "tram", 2, "noise"),
        (3, 2.0, 1.0, ["fire"], {"speed": 50.0}, "bus", None, "noise"),
        (4, 1.0, 1.0, ["drill"], None, None, 2, None),
    ]
    columns = "id int, x double, y double, terms array<string>, readings map<string,double>, kind string, floor int, "
    frame = spark.createDataFrame(rows, columns + "context string")
    return frame.selectExpr("*", "to_json(struct(kind, floor, context)) AS attributes")


EXPECTED = [(1, "box"), (1, "bus"), (1, "circle"), (1, "fast"), (2, "box"), (2, "bus"), (2, "circle"), (3, "place")]
COLUMNS = ["id", "name"]


def pairs(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def test_queries_match_in_all_forms_of_readings_and_attributes(
    spark: SparkSession, events: DataFrame, wanted: DataFrame, places: Path
) -> None:
    """Maps, structs, JSON, and columns; places from a file or a frame."""
    of_frame = spark.createDataFrame([("port", PORT.wkt)], "name string, geometry string")
    flat = events.selectExpr("*", "readings.speed AS kmh", "readings.noise AS noise")
    nested = flat.selectExpr("*", "struct(kmh AS speed, noise) AS r", "struct(kind, floor, context) AS a")
    attributes: dict[str, Any] = {"kind": "kind", "floor": "floor", "context": "a.context"}
    with compile(wanted, lacl="query", places=places, id="name") as one:
        for form in (
            {"readings": "readings", "attributes": "attributes"},
            {"readings": "r", "attributes": "a"},
            {"readings": {"speed": "kmh", "noise": "r.noise"}, "attributes": attributes},
        ):
            assert pairs(match(nested, one, columns=COLUMNS, **form)) == EXPECTED
    with compile(wanted, lacl="query", places=of_frame, id="name") as other:
        by_name: dict[str, Any] = {"readings": ["speed", "noise"], "attributes": [*attributes]}
        assert pairs(match(flat.withColumnRenamed("kmh", "speed"), other, columns=COLUMNS, **by_name)) == EXPECTED


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, r"subscriptions test @speed, but events have no readings \(pass readings="),
        ({"terms": None}, r"subscriptions test &terms, but events have none \(pass terms=\)"),
        ({"readings": {"noise": "x"}}, r"test @speed, but events have no such reading \(readings: noise\)"),
        (
            {"readings": "readings"},
            r"subscriptions test plain @, which is named by the attribute 'context', but events h",
        ),
        ({"readings": "reedings"}, r"no column 'reedings' \(check readings=; did you mean 'readings'\?"),
        ({"readings": "kind"}, r"column 'kind' is string \(expected a map or a struct of numbers\)"),
        ({"readings": ["terms"]}, r"column 'terms' is array<string> \(expected numbers\)"),
        ({"attributes": ["kind"]}, r"test plain @, which is named by the attribute 'context', but events have no such"),
        (
            {"attributes": ["kind", "context"]},
            r"test &floor, but events have no such attribute \(attributes: kind, con",
        ),
        ({"attributes": "readings"}, r"compare &context with a text, but the column is double"),
        (
            {"attributes": {"kind": "kind", "floor": "kind", "context": "kind"}},
            "&floor with a number, but the column is s",
        ),
        (
            {"attributes": "floor"},
            r"column 'floor' is int \(expected a map or a struct of texts, numbers or booleans, or",
        ),
    ],
)
def test_what_events_do_not_have_is_an_error(
    events: DataFrame, wanted: DataFrame, places: Path, fields: dict[str, Any], message: str
) -> None:
    """Before a job starts."""
    given = fields if "readings" in fields else fields | ({"readings": "readings"} if fields else {})
    with compile(wanted, lacl="query", places=places) as compiled, pytest.raises(InputError, match=message):
        match(events, compiled, **given)


def test_queries_without_a_meaning_here_are_bad_rows(spark: SparkSession) -> None:
    """Each with a hint; equal texts are parsed once."""
    texts = [
        "Select all() Where &terms has fire",
        "Select all() Where &terms has fire Every 10 s",
        "Select all() Where &terms has fire Life-control #role = guard",
        "Select all() Where &location in rang:loc(30)",
        "Select Where &location in nearest",
        "Select anyof() Where &location in rang:loc(30)",
        "Select all() Where &location in within(port)",
        "Select all() Were &terms has fire",
        "Select all() Where &location in box(9, 53, 8, 54)",
        "Select all() Where &location in circle(0, 91, 5)",
        "",
        None,
    ]
    frame = spark.createDataFrame([(text,) for text in [*texts, texts[1]]], "query string").coalesce(1)
    with compile(frame, lacl="query", on_bad_rows="skip", columns=[]) as compiled:
        assert compiled.count == 1
        assert compiled.bad_rows["problem"].to_pylist() == [
            "query: Every needs events in the order in which they came (remove it, and thin out the matches)",
            "query: Life-control needs the positions and attributes of the subscriber (remove it)",
            "query: rang:loc(r) needs the positions of the subscriber (use circle(x, y, r))",
            *["query: it follows a source, which is chosen by positions (use roamcast.spark.bindings, with tracks of "
              "sources and subscribers)"] * 2,
            "query: line 1, column 33: no place named 'port' (no places are defined)",
            "query: line 1, column 14: unexpected 'Were', expected Where (did you mean Where?)",
            "query: line 1, column 33: min_x 9 is greater than max_x 8 (swap them; a box across the antimeridian must "
            "be less than 180 degrees wide)",
            "query: line 1, column 33: y 91 is outside -90 to 90 (x is longitude and y is latitude, in degrees; use "
            "planar space for metres)",
            "query: line 1, column 1: unexpected end of query, expected Select",
            "query is missing",
            "query: Every needs events in the order in which they came (remove it, and thin out the matches)",
        ]  # fmt: skip


def test_regions_are_given_once(events: DataFrame, wanted: DataFrame) -> None:
    """In a query, or in columns of one kind."""
    for arguments, message in (
        ({"lacl": "query", "geometry": "name"}, "lacl and geometry"),
        ({"lacl": "query", "terms": "name"}, "lacl and terms"),
        ({"circle": ("x", "y", "r"), "geometry": "g"}, "geometry and circle"),
        ({"places": "places.geojson", "terms": None}, "only queries name places"),
        ({"lacl": "text"}, "no column 'text'"),
        ({"circle": ("x", "y", "r")}, "no column 'x'"),
        ({"lacl": "query", "places": "/none.geojson"}, "cannot read the file"),
        ({"lacl": "query", "places": wanted}, "places: no column 'geometry'"),
    ):
        with pytest.raises(InputError, match=message):
            compile(wanted, **arguments)  # type: ignore[arg-type]


def test_circles_are_columns(spark: SparkSession) -> None:
    """In metres, borders included, across the antimeridian and at a pole."""
    rows = [
        ("fiji", 180.0, 0.0, 1113.2), ("pole", 0.0, 90.0, 112_000.0), ("point", 1.0, 1.0, 0.0),
        ("none", 1.0, 1.0, -1.0), ("nan", 1.0, 1.0, float("nan")), ("far", 1.0, 91.0, 1.0), ("gap", None, 1.0, 1.0),
    ]  # fmt: skip
    circles = spark.createDataFrame(rows, "name string, lon double, lat double, r double").coalesce(1)
    points = spark.createDataFrame(
        [(1, -179.99, 0.0), (2, -179.98, 0.0), (3, 77.0, 89.1), (4, -120.0, 88.9), (5, 1.0, 1.0)],
        "id int, x double, y double",
    )
    with compile(circles, circle=("lon", "lat", "r"), terms=None, id="name", on_bad_rows="skip") as compiled:
        assert pairs(match(points, compiled, terms=None, columns=COLUMNS)) == [(1, "fiji"), (3, "pole"), (5, "point")]
        assert compiled.bad_rows["problem"].to_pylist() == [
            "r must be 0 or more, not -1",
            "r must be 0 or more, not nan",
            "y 91 is outside -90 to 90",
            "lon is missing",
        ]
    flat = spark.createDataFrame([("c", 0.0, 0.0, 5.0)], "name string, lon double, lat double, r double")
    plane = spark.createDataFrame([(1, 3.0, 4.0), (2, 3.0, 4.000001)], "id int, x double, y double")
    with compile(flat, circle=("lon", "lat", "r"), terms=None, id="name", space="planar") as compiled:
        assert pairs(match(plane, compiled, terms=None, columns=COLUMNS)) == [(1, "c")]


def test_bad_rows_of_places_are_errors(spark: SparkSession, wanted: DataFrame) -> None:
    """A name that is missing or repeated, and what is not a polygon."""
    box = PORT.wkt
    for rows, message in (
        ([(None, box)], "places: name is missing"),
        ([("a", None)], "places: geometry is missing"),
        ([("a", box), ("a", box)], "name 'a' is also that of an earlier row"),
        ([("a", "POINT(1 2)")], "must be a Polygon or MultiPolygon, not Point"),
    ):
        frame = spark.createDataFrame(rows, "name string, geometry string").coalesce(1)
        with pytest.raises(InputError, match=message):
            compile(wanted, lacl="query", places=frame)


def test_rows_with_unusable_fields_are_bad_rows(spark: SparkSession, wanted: DataFrame, places: Path) -> None:
    """A text that is not a number, and one that is not a JSON object."""
    events = spark.createDataFrame(
        [(1, "60", "{}"), (2, "fast", "{}"), (3, None, "[]"), (4, "60", None), (5, "60", "{")],
        "id int, speed string, attributes string",
    ).selectExpr("*", "0.0 AS x", "0.0 AS y", "array('fire') AS terms")
    fields: dict[str, Any] = {"readings": ["speed"], "attributes": "attributes", "on_bad_rows": "collect"}
    with compile(wanted.where("name IN ('fast', 'bus')"), lacl="query", id="name", places=places) as compiled:
        found = match(events, compiled, columns=COLUMNS, **fields).select("id", "name", "problem")
        assert sorted(map(str, found.collect())) == sorted(
            [
                "Row(id=1, name='fast', problem=None)",
                "Row(id=2, name=None, problem=\"speed must be a number, not 'fast'\")",
                "Row(id=3, name=None, problem=\"attributes must be a JSON object, not '[]'\")",
                "Row(id=4, name='fast', problem=None)",
                "Row(id=5, name=None, problem=\"attributes must be a JSON object, not '{'\")",
            ]
        )


def test_empty_frames_match_nothing(events: DataFrame, wanted: DataFrame, places: Path) -> None:
    """Of subscriptions or of events."""
    fields: dict[str, Any] = {"readings": "readings", "attributes": "attributes"}
    with compile(wanted.limit(0), lacl="query") as nothing:
        assert (nothing.count, match(events, nothing).count()) == (0, 0)
    with compile(wanted, lacl="query", places=places) as compiled:
        assert match(events.limit(0), compiled, **fields).count() == 0


def test_queries_match_in_sql(spark: SparkSession, events: DataFrame, wanted: DataFrame) -> None:
    """With readings from a map."""
    with compile(wanted.where("name = 'fast'"), lacl="query", id="name") as compiled:
        register("fast", events, compiled, readings="readings", columns=COLUMNS)
        assert pairs(spark.sql("SELECT * FROM fast(TABLE({events}))", events=events)) == [(1, "fast")]
