"""`match` over data frames: columns are mapped and passed through, and mistakes are errors before a job starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
import shapely
from pyspark.errors import PythonException
from pyspark.sql import functions as f

from roamcast.errors import ConflictError, InputError
from roamcast.spark import CompiledSubscriptions, compile, match

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

EVENTS = "id string, lon double, lat double, tags array<string>, speed int"
BOXES = "name string, min_x double, min_y double, max_x double, max_y double, terms array<string>, owner string"


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    rows = [("e1", 1.0, 1.0, ["a", "b"], 7), ("e2", 5.0, 5.0, None, 8), ("e3", 9.0, 9.0, ["a"], None)]
    return spark.createDataFrame(rows, EVENTS)


@pytest.fixture(scope="module")
def boxes(spark: SparkSession) -> DataFrame:
    rows = [
        ("here", 0.0, 0.0, 2.0, 2.0, ["a"], "ben"),
        ("all", -180.0, -90.0, 180.0, 90.0, [], None),
        ("none", 0.0, 0.0, 2.0, 2.0, ["x"], "eve"),
    ]
    return spark.createDataFrame(rows, BOXES)


@pytest.fixture(scope="module")
def compiled(boxes: DataFrame) -> Iterator[CompiledSubscriptions]:
    with compile(boxes, id="name", columns=["name", "owner"]) as compiled:
        yield compiled


FIELDS: dict[str, Any] = {"x": "lon", "y": "lat", "terms": "tags"}


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=str)


def test_all_columns_pass_by_default(events: DataFrame, boxes: DataFrame) -> None:
    """Those of events, and those of subscriptions that do not say what they match."""
    matches = match(events, boxes, **FIELDS)
    assert matches.columns == ["id", "lon", "lat", "tags", "speed", "name", "owner"]
    assert rows(matches) == [
        ("e1", 1.0, 1.0, ["a", "b"], 7, "all", None),
        ("e1", 1.0, 1.0, ["a", "b"], 7, "here", "ben"),
        ("e2", 5.0, 5.0, None, 8, "all", None),
        ("e3", 9.0, 9.0, ["a"], None, "all", None),
    ]


def test_ids_alone_pass(events: DataFrame, boxes: DataFrame) -> None:
    """If they are named."""
    with compile(boxes, id="name") as compiled:
        matches = match(events, compiled, id="id", **FIELDS)
        assert (compiled.count, compiled.columns) == (3, ["name"])
        assert matches.columns == ["id", "name"]
        assert rows(matches) == [("e1", "all"), ("e1", "here"), ("e2", "all"), ("e3", "all")]


def test_columns_are_chosen_from_both_sides(events: DataFrame, compiled: CompiledSubscriptions) -> None:
    """In any order."""
    matches = match(events, compiled, columns=["owner", "speed", "name"], **FIELDS)
    assert matches.columns == ["owner", "speed", "name"]
    assert rows(matches) == [("ben", 7, "here"), (None, 7, "all"), (None, 8, "all"), (None, None, "all")]


def test_compiled_subscriptions_serve_many_calls(events: DataFrame, compiled: CompiledSubscriptions) -> None:
    """Matches can go on through other operations of Spark."""
    for id, count in (("e1", 2), ("e2", 1)):
        assert match(events.where(f.col("id") == id), compiled, **FIELDS).count() == count
    counts = match(events, compiled, **FIELDS).groupBy("name").count()
    assert rows(counts) == [("all", 3), ("here", 1)]


@pytest.mark.parametrize(
    ("x", "terms"),
    [
        ("CAST(x AS STRING)", "array('a')"),
        ("CAST(x AS FLOAT)", "'b;a'"),
        ("CAST(x AS DECIMAL(5, 2))", "array('a', 'a')"),
        ("CAST(x AS INT)", "'a'"),
        ("CAST(x AS TINYINT)", "split('a', ',')"),
    ],
)
def test_columns_may_have_any_sensible_type(spark: SparkSession, boxes: DataFrame, x: str, terms: str) -> None:
    """Numbers may be texts and terms separated by ';'; nested fields are named with a point."""
    point = spark.createDataFrame([(1.0,)], "x double").selectExpr(
        f"named_struct('lon', {x}, 'lat', 1) AS position", f"{terms} AS terms"
    )
    matches = match(point, boxes, x="position.lon", y="position.lat", columns=["name", "position.lat"])
    assert rows(matches) == [("all", 1), ("here", 1)]
    assert matches.columns == ["name", "lat"]


def test_values_of_all_types_pass(spark: SparkSession, boxes: DataFrame) -> None:
    """As they are, nested ones too, from both sides."""
    extra = (
        "CAST(1.25 AS DECIMAL(5, 2)) AS price, DATE'2026-03-01' AS day, TIMESTAMP'2026-03-01 10:00:00' AS at, "
        "X'00ff' AS bytes, map('k', array(1.5)) AS m, named_struct('a', named_struct('b', 'deep')) AS s, "
        "CAST(NULL AS BIGINT) AS nothing, true AS flag, INTERVAL '1' DAY AS span, parse_json('{\"v\": 1}') AS v"
    )
    point = spark.sql(f"SELECT 1.0D AS x, 1.0D AS y, array('a') AS terms, {extra}")
    other = boxes.where("name = 'here'").join(spark.sql(f"SELECT {extra}").selectExpr("struct(*) AS all"))
    (row,) = match(
        point, other, columns=["price", "day", "at", "bytes", "m", "s", "nothing", "flag", "span", "v", "all"]
    ).collect()
    (expected,) = spark.sql(f"SELECT {extra}").collect()
    assert str(row[:-1]) == str(tuple(expected))
    assert str(row["all"]) == str(expected)
    assert row.price == Decimal("1.25")


def test_subscriptions_may_have_no_box_or_no_terms(events: DataFrame, boxes: DataFrame) -> None:
    """They match everywhere, or all events; events without terms match only those without."""
    with compile(boxes, box=None, id="name") as anywhere:
        assert rows(match(events, anywhere, id="id", **FIELDS)) == [
            ("e1", "all"), ("e1", "here"), ("e2", "all"), ("e3", "all"), ("e3", "here"),
        ]  # fmt: skip
    with compile(boxes, terms=None, id="name") as everything:
        assert match(events, everything, **FIELDS).count() == 5
    assert match(events, boxes, x="lon", y="lat", terms=None).count() == 3


def test_geometries_are_columns(spark: SparkSession, events: DataFrame) -> None:
    """Points of events and polygons of subscriptions, as WKB or texts."""
    shapes = {"triangle": "POLYGON((0 0,6 0,0 6,0 0))", "hole": "POLYGON((0 0,9 0,9 9,0 9,0 0),(4 4,6 4,6 6,4 6,4 4))"}
    wkt = spark.createDataFrame([*shapes.items()], "name string, shape string")
    wkb = wkt.withColumn("shape", f.udf(lambda text: bytearray(shapely.from_wkt(text).wkb), "binary")("shape"))
    as_json = wkt.withColumn("shape", f.udf(lambda text: shapely.to_geojson(shapely.from_wkt(text)))("shape"))
    point = f.udf(lambda x, y: bytearray(shapely.Point(x, y).wkb), "binary")("lon", "lat")
    located = events.withColumn("point", point).drop("lon", "lat")
    for areas in (wkt, wkb, as_json):
        with compile(areas, geometry="shape", terms=None) as compiled:
            assert compiled.columns == ["name"]
            for frame, fields in ((events, {"x": "lon", "y": "lat"}), (located, {"geometry": "point"})):
                matches = match(frame, compiled, terms="tags", columns=["id", "name"], **fields)
                assert rows(matches) == [("e1", "hole"), ("e1", "triangle"), ("e3", "hole")]
    bad = located.withColumn("point", f.when(f.col("id") == "e1", f.col("point"))).coalesce(1)
    with compile(wkt, geometry="shape", terms=None) as compiled:
        collected = match(bad, compiled, geometry="point", terms=None, columns=["id", "name"], on_bad_rows="collect")
        assert rows(collected)[2:] == [("e2", None, "point is missing"), ("e3", None, "point is missing")]
    with pytest.raises(InputError, match=r"geometry is missing: .*1 of 2 rows are bad"):
        compile(
            wkt.replace("hole", "x", "name").selectExpr("name", "IF(name = 'x', NULL, shape) AS geometry"),
            geometry="geometry",
            terms=None,
        )


@pytest.mark.parametrize("empty", ["events", "subscriptions", "both"])
def test_nothing_matches_nothing(events: DataFrame, boxes: DataFrame, empty: str) -> None:
    """Without events, or without subscriptions, there are no matches."""
    some_events = events.where(f.lit(empty == "subscriptions"))
    some_boxes = boxes.where(f.lit(empty == "events"))
    assert match(some_events, some_boxes, **FIELDS).count() == 0


def test_planar_coordinates_are_metres(spark: SparkSession, boxes: DataFrame) -> None:
    """They may be large."""
    with compile(boxes.where("name = 'here'").replace(2.0, 1e6), space="planar") as compiled:
        far = spark.createDataFrame([(5e5, 5e5, ["a"])], "x double, y double, terms array<string>")
        assert match(far, compiled).count() == 1
        assert match(far, boxes, on_bad_rows="skip").count() == 0


@pytest.mark.parametrize(
    ("fields", "message", "hint"),
    [
        ({"x": "long"}, "events: no column 'long'", "pass x=; did you mean 'lon'?; columns: id, lon, lat, tags, speed"),
        ({"x": "id.lon"}, r"events: no column 'id\.lon'", "pass x="),
        ({"x": "*"}, r"events: no column '\*'", "pass x="),
        ({"x": "tags"}, "events: column 'tags' is array<string>", "expected numbers"),
        ({"terms": "speed"}, "events: column 'speed' is int", "expected an array of texts"),
        ({"terms": "none"}, "events: no column 'none'", "terms=None if events have none"),
        ({"id": "tags"}, "events: column 'tags' is array<string>", "expected numbers or texts"),
        ({"columns": []}, "no columns", "at least one"),
        ({"columns": ["sped"]}, "no column 'sped'", "did you mean 'speed'"),
        ({"columns": ["SPEED"]}, "no column 'SPEED'", "columns: id, lon"),
        ({"columns": ["speed", "speed"]}, "two columns 'speed'", "rename one"),
        ({"on_bad_rows": "ignore"}, "on_bad_rows must be 'fail' or 'skip' or 'collect', not 'ignore'", "check"),
    ],
)
def test_wrong_columns_of_events_are_errors(
    events: DataFrame, compiled: CompiledSubscriptions, fields: dict[str, Any], message: str, hint: str
) -> None:
    """At once, with what there is."""
    with pytest.raises(InputError, match=message) as caught:
        match(events, compiled, **{**FIELDS, **fields})
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"box": ("min_x", "min_y", "max_x", "top")}, "subscriptions: no column 'top'", "box=None"),
        ({"box": ("min_x", "min_y", "max_x", "terms")}, "column 'terms' is array<string>", "expected numbers"),
        ({"terms": "tags"}, "subscriptions: no column 'tags'", "terms=None if subscriptions have none"),
        ({"id": "nam"}, "subscriptions: no column 'nam'", "did you mean 'name'"),
        ({"columns": ["nam"]}, "subscriptions: no column 'nam'", "columns: name, min_x"),
        ({"columns": ["name", "name"]}, "two columns 'name'", "rename"),
        ({"space": "round"}, "space must be 'geographic' or 'planar', not 'round'", "check"),
        ({"on_bad_rows": "collect"}, "on_bad_rows must be 'fail' or 'skip'", "check"),
    ],
)
def test_wrong_columns_of_subscriptions_are_errors(
    boxes: DataFrame, options: dict[str, Any], message: str, hint: str
) -> None:
    """At once, with what there is."""
    with pytest.raises(InputError, match=message) as caught:
        compile(boxes, **options)
    assert hint in (caught.value.hint or "")


def test_a_name_on_both_sides_is_told_apart(events: DataFrame, boxes: DataFrame) -> None:
    """By its side."""
    owned = events.withColumn("owner", f.lit("me")).where("id = 'e1'")
    assert match(owned, boxes, **FIELDS).columns[-3:] == ["event_owner", "name", "subscription_owner"]
    matches = match(owned, boxes, columns=["subscription_owner", "event_owner", "name"], **FIELDS)
    assert rows(matches) == [("ben", "me", "here"), (None, "me", "all")]
    with pytest.raises(InputError, match=r"both sides have a column 'owner' .write event_owner or subscription_owner"):
        match(owned, boxes, columns=["owner"], **FIELDS)
    with pytest.raises(InputError, match="matches: two columns 'OWNER'"):
        match(events.withColumn("OWNER", f.lit("me")), boxes, **FIELDS)
    with pytest.raises(InputError, match="several columns 'id'"):
        match(events.join(events.select("id")), boxes, **FIELDS)


BAD: Sequence[tuple[tuple[Any, ...], str]] = [
    (("n", None, 0.0, None, 1), "lon is missing"),
    (("n", float("nan"), 0.0, None, 1), "x is not a number"),
    (("n", 0.0, float("inf"), None, 1), "y is infinite"),
    (("n", 180.5, 0.0, None, 1), "x 180.5 is outside -180 to 180"),
    (("n", 0.0, 0.0, ["a", None], 1), "terms has a null"),
    (("n", 0.0, 0.0, [""], 1), "terms has an empty text"),
    ((None, 0.0, 0.0, [], 1), "id is missing"),
    (("", 0.0, 0.0, [], 1), "id is empty"),
    (("n", 0.0, 0.0, ["t"] * 100_001, 1), "more than 100000 terms"),
]


def test_bad_events_are_collected_with_their_problems(
    spark: SparkSession, events: DataFrame, compiled: CompiledSubscriptions
) -> None:
    """Or skipped; matches of good ones are the same."""
    mixed = events.union(spark.createDataFrame([row for row, _ in BAD], EVENTS)).coalesce(1)
    collected = match(mixed, compiled, on_bad_rows="collect", columns=["id", "lon", "name"], id="id", **FIELDS)
    assert collected.columns == ["id", "lon", "name", "problem"]
    bad = [tuple(row) for row in collected.where("problem IS NOT NULL").collect()]
    assert str(bad) == str([(row[0], row[1], None, problem) for row, problem in BAD])
    good = collected.where("problem IS NULL").drop("problem")
    skipped = match(mixed, compiled, on_bad_rows="skip", columns=["id", "lon", "name"], id="id", **FIELDS)
    assert rows(good) == rows(skipped) == rows(match(events, compiled, columns=["id", "lon", "name"], **FIELDS))
    assert len(rows(good)) == 4


@pytest.mark.parametrize(("row", "problem"), BAD[:6])
def test_a_bad_event_fails_the_job(
    spark: SparkSession, compiled: CompiledSubscriptions, row: tuple[Any, ...], problem: str
) -> None:
    """The error has the problem and the row."""
    with pytest.raises(PythonException, match=f"events: {problem}: ") as caught:
        match(spark.createDataFrame([row], EVENTS), compiled, columns=["speed", "name"], **FIELDS).collect()
    assert "speed=1, lon=" in str(caught.value)


def test_texts_that_are_not_numbers_are_bad_rows(spark: SparkSession, boxes: DataFrame) -> None:
    """Spaces around a number do not matter."""
    texts = [" 1 ", "1e0", "one", "1_0", "0x1", "", "nan", "-inf", None]
    frame = spark.createDataFrame([(text, "1", "a") for text in texts], "x string, y string, terms string").coalesce(1)
    problems = [
        row.problem for row in match(frame, boxes, on_bad_rows="collect").where("problem IS NOT NULL").collect()
    ]
    assert problems == [
        "x must be a number, not 'one'", "x must be a number, not '1_0'", "x must be a number, not '0x1'",
        "x must be a number, not ''", "x is not a number", "x is infinite", "x is missing",
    ]  # fmt: skip
    assert match(frame, boxes, on_bad_rows="skip").count() == 4


def test_bad_subscriptions_are_an_error_or_left_out(spark: SparkSession, boxes: DataFrame) -> None:
    """Repeated ids count, and of these the first good row is kept."""
    bad = [
        ("here", 0.0, 0.0, 1.0, 1.0, [], "again"),
        ("flat", 0.0, 9.0, 1.0, 1.0, [], "x"),
        (None, 0.0, 0.0, 1.0, 1.0, [], "x"),
        ("gap", None, 0.0, 1.0, 1.0, [], "x"),
        ("new", 0.0, 0.0, 1.0, 1.0, [None], "x"),
        ("new", 0.0, 0.0, 1.0, 1.0, [], "second"),
        ("new", 0.0, 0.0, 1.0, 1.0, [], "third"),
    ]
    mixed = boxes.union(spark.createDataFrame(bad, BOXES)).coalesce(1)
    with pytest.raises(InputError, match=r"name 'here' is also that of an earlier row: name='here', .*; 6 of 10 rows"):
        compile(mixed, id="name")
    with compile(mixed, id="name", on_bad_rows="skip", columns=["owner"]) as compiled:
        problems = [(row["owner"], row["problem"]) for row in compiled.bad_rows.to_pylist()]
        assert problems == [
            ("again", "name 'here' is also that of an earlier row"),
            ("x", "min_y 9 is greater than max_y 1"),
            ("x", "name is missing"),
            ("x", "min_x is missing"),
            ("x", "terms has a null"),
            ("third", "name 'new' is also that of an earlier row"),
        ]
        point = spark.createDataFrame([(0.5, 0.5, ["a"])], "x double, y double, terms array<string>")
        assert compiled.count == 4
        assert rows(match(point, compiled, columns=["owner"])) == [("ben",), ("second",), (None,)]


def test_a_closed_index_cannot_be_used(events: DataFrame, boxes: DataFrame) -> None:
    """Its files are gone."""
    with compile(boxes) as compiled:
        pass
    with pytest.raises(ConflictError, match="closed"):
        match(events, compiled, **FIELDS)
