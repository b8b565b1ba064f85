"""Reading GeoJSON and Parquet. Bad rows are reported with their location."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from formats import MOMENT, feature, features, point, read_all
from shapely.geometry import shape

from roamcast.errors import InputError
from roamcast.match.index.polygons import Polygons
from roamcast.space import GEOGRAPHIC
from roamcast.spark.file_formats import plan_blocks, read_block
from roamcast.spark.file_rows import EVENTS, SUBSCRIPTIONS


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (7, "not a Feature"),
        (feature(None, event_id="e"), "the geometry of an event must be a Point, not none"),
        (feature({"type": "Polygon", "coordinates": []}), "the geometry of an event must be a Point, not Polygon"),
        (feature({"type": "Point", "coordinates": [1]}), "the Point has no coordinates"),
        (feature(point("1", 2), event_id="e", source="s", time=0), "x must be a number, not '1'"),
        (
            feature(point(1, 2), event_id="e", source="s", time=0, x=3),
            "unknown property 'x': coordinates belong in the geometry",
        ),
        (feature(point(1, 2), event_id="e", source="s"), "time is missing"),
    ],
)
def test_bad_event_features_are_reported(row: Any, problem: str, tmp_path: Path) -> None:
    """Features are counted from 1."""
    valid = feature(point(1, 2), event_id="e", source="s", time=0)
    good, bad = read_all(features(tmp_path / "e.geojson", valid, row))
    assert (len(good), bad) == (1, {"e.geojson, feature 2": problem})


def polygon(*rings: Any) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": list(rings)}


def ring(west: float, south: float, east: float, north: float) -> list[list[float]]:
    return [[west, south], [east, south], [east, north], [west, north], [west, south]]


BOX = polygon(ring(0, 0, 4, 3.5))
ACROSS = polygon(ring(170, -1, -170, 1))
TRIANGLE = polygon([[0, 0], [4, 1], [2, 3.5], [0, 0]])
SPLIT = {"type": "MultiPolygon", "coordinates": [[ring(170, -1, 180, 1)], [ring(-180, -1, -170, 1)]]}
CORNERS = polygon([[0, 0], [1, 0], [2, 0], [4, 0], [4, 3.5], [0, 3.5], [0, 0]])
HOLE = polygon(ring(0, 0, 4, 4), ring(1, 1, 2, 2))


def read_subscription(path: Path, geometry: Any, bbox: Any = None) -> tuple[Any, Any, dict[str, str]]:
    """The box and the polygon of a feature, and its problem."""
    path = features(path / "q.geojson", feature(geometry, bbox, subscription_id="q", terms=["a"]))
    good, bad = read_all(path, SUBSCRIPTIONS)
    return *((tuple(row[side] for side in SUBSCRIPTIONS.coordinates), row["polygon"]) for row in good), bad


@pytest.mark.parametrize(
    ("geometry", "bbox", "expected"),
    [
        (BOX, None, (0, 0, 4, 3.5)),
        (polygon(ring(0, 0, 4, 3.5)[::-1]), None, (0, 0, 4, 3.5)),
        (polygon([[4, 3.5], [0, 3.5], [0, 0], [4, 0], [4, 3.5]]), None, (0, 0, 4, 3.5)),
        (polygon([[x, y, 9] for x, y in ring(0, 0, 4, 3.5)]), None, (0, 0, 4, 3.5)),
        (BOX, [0, 0, 4, 3.5], (0, 0, 4, 3.5)),
        (BOX, [0, 0, -50, 4, 3.5, 50], (0, 0, 4, 3.5)),
        (ACROSS, None, (-170, -1, 170, 1)),
        (None, [170, -1, -170, 1], (170, -1, -170, 1)),
        (None, [0, 0, -50, 2, 3, 50], (0, 0, 2, 3)),
        (None, [2, 0, 2, 3], (2, 0, 2, 3)),
    ],
)
def test_a_rectangle_is_a_box(geometry: Any, bbox: Any, expected: tuple[float, ...], tmp_path: Path) -> None:
    """A Polygon along the axes, a bbox, or both if they agree."""
    (box, rings), bad = read_subscription(tmp_path, geometry, bbox)
    assert (box, not rings, bad) == (expected, True, {})


@pytest.mark.parametrize(
    ("geometry", "bbox", "expected"),
    [
        (TRIANGLE, None, (0, 0, 4, 3.5)),
        (TRIANGLE, [0, 0, 4, 3.5], (0, 0, 4, 3.5)),
        (CORNERS, None, (0, 0, 4, 3.5)),
        (HOLE, None, (0, 0, 4, 4)),
        (SPLIT, None, (170, -1, -170, 1)),
        (SPLIT, [170, -1, -170, 1], (170, -1, -170, 1)),
        (SPLIT, [-180, -1, 180, 1], (170, -1, -170, 1)),
    ],
)
def test_other_areas_are_polygons(geometry: Any, bbox: Any, expected: tuple[float, ...], tmp_path: Path) -> None:
    """In their box, which crosses the antimeridian if they are split there."""
    (box, rings), bad = read_subscription(tmp_path, geometry, bbox)
    polygons = Polygons.from_lists(pa.array([rings], pa.list_(pa.float64())))
    assert (box, bad) == (expected, {})
    assert np.array_equal(polygons.arrays.coordinate, Polygons.of(np.array([shape(geometry)])).arrays.coordinate, True)


NO_BBOX = "bbox must be [west, south, east, north], four numbers"
DIFFERS = "the bbox differs from the geometry; omit it, or give the bbox alone"
BEYOND = "x 190 is outside -180 to 180, at point 2; split the geometry at the antimeridian"
NOT_SPLIT = "the bbox differs from the geometry; split the geometry at the antimeridian, or give the bbox alone"


@pytest.mark.parametrize(
    ("geometry", "bbox", "problem"),
    [
        (polygon([[0, 0], [4, 4], [4, 0], [0, 4], [0, 0]]), None, "the geometry is not valid: Self-intersection[2 2]"),
        (polygon(ring(2, 0, 2, 3)), None, "the geometry is not valid: Too few points in geometry component[2 0]"),
        (polygon([[0, 0], [4, 0], [4, 4], [0, 4]]), None, "a ring is not closed: its last point must be its first"),
        (polygon(ring(170, -1, 190, 1)), None, BEYOND),
        (point(1, 2), None, "the geometry must be a Polygon or MultiPolygon, not Point"),
        (None, None, "the feature has neither a geometry nor a bbox"),
        (7, [0, 0, 1, 1], "the geometry must be an object"),
        ({}, None, "the geometry must be a Polygon or MultiPolygon, not none"),
        ({"type": "Polygon"}, None, "not GeoJSON: key 'coordinates' not found"),
        (polygon(), None, "the geometry is empty"),
        (polygon([]), None, "the geometry is empty"),
        (polygon([[0]]), None, "not GeoJSON: Expected two or three coordinates found one"),
        (polygon([[0, "a"]]), None, "not GeoJSON: type must be number, but is string"),
        (BOX, [0, 0, 4, 4], DIFFERS),
        (TRIANGLE, [0, 0, 4, 4], DIFFERS),
        (ACROSS, [170, -1, -170, 1], NOT_SPLIT),
        (SPLIT, [-170, -1, 170, 1], DIFFERS),
        (BOX, [1, 2, 3], NO_BBOX),
        (None, [1, "a", 3, 4], NO_BBOX),
    ],
)
def test_bad_subscription_features_are_reported(geometry: Any, bbox: Any, problem: str, tmp_path: Path) -> None:
    """With what is wrong, and where."""
    assert read_subscription(tmp_path, geometry, bbox) == ({"q.geojson, feature 1": problem},)


@pytest.mark.parametrize(
    ("number", "own", "expected"),
    [("q", None, "q"), (17, None, "17"), ("q", "q", "q"), (17, "17", "17"), (None, "q", "q")],
)
def test_the_id_of_a_feature_is_that_of_its_row(number: Any, own: Any, expected: str, tmp_path: Path) -> None:
    """If the properties have none, or the same one; of events and of subscriptions."""
    event = feature(point(1, 2), source="s", time=0, event_id=own) | {"id": number}
    subscription = feature(BOX, subscription_id=own) | {"id": number}
    for layout, row in ((EVENTS, event), (SUBSCRIPTIONS, subscription)):
        good, bad = read_all(features(tmp_path / "rows.geojson", row), layout)
        assert ([each[layout.id] for each in good], bad) == ([expected], {})


@pytest.mark.parametrize(
    ("number", "own", "problem"),
    [
        ("q", "r", "subscription_id is 'r', but the id of the feature is 'q'"),
        (1.5, None, "the id of the feature must be a text or an integer, not 1.5"),
        (True, "q", "the id of the feature must be a text or an integer, not True"),
        ("", None, "subscription_id is empty"),
        (None, None, "subscription_id is missing"),
        (7, 7, "subscription_id must be a text, not 7"),
    ],
)
def test_bad_ids_of_features_are_reported(number: Any, own: Any, problem: str, tmp_path: Path) -> None:
    """Two different ones, and those that cannot be one."""
    row = feature(BOX, subscription_id=own) | {"id": number}
    assert read_all(features(tmp_path / "q.geojson", row), SUBSCRIPTIONS) == ([], {"q.geojson, feature 1": problem})


@pytest.mark.parametrize("suffix", ["ndjson", "csv", "parquet"])
def test_other_formats_have_no_geometries(suffix: str, tmp_path: Path) -> None:
    """A column with one is refused, not ignored."""
    path = tmp_path / f"q.{suffix}"
    row = {
        "subscription_id": "q",
        "min_x": 0,
        "min_y": 0,
        "max_x": 4,
        "max_y": 4,
        "terms": "a",
        "geometry": "POINT(1 2)",
    }
    if suffix == "ndjson":
        path.write_text(json.dumps(row | {"terms": ["a"], "geometry": TRIANGLE}))
        assert "geometry" in read_all(path, SUBSCRIPTIONS)[1]["q.ndjson, line 1"]
        return
    if suffix == "csv":
        path.write_text(",".join(row) + "\n" + ",".join(map(str, row.values())))
    else:
        pq.write_table(pa.Table.from_pylist([row | {"terms": ["a"]}]), path)
    with pytest.raises(InputError, match="unknown column 'geometry'"):
        plan_blocks(path, SUBSCRIPTIONS)


def events_table(**changes: Any) -> pa.Table:
    columns: dict[str, Any] = {
        "event_id": ["a", "b", "c"],
        "source": ["s", "s", "s"],
        "time": pa.array([MOMENT] * 3, pa.timestamp("us", "UTC")),
        "x": [1.0, 2.0, 3.0],
        "y": [1.0, 2.0, 3.0],
        "terms": pa.array([["t"], None, []], pa.list_(pa.string())),
    }
    return pa.table({name: column for name, column in (columns | changes).items() if column is not None})


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"event_id": ["a", None, "c"]}, "event_id is missing"),
        ({"x": [1.0, math.nan, 1.0]}, "x is not a number"),
        ({"y": [1.0, None, 1.0]}, "y is missing"),
        ({"terms": [["t"], ["t", None], []]}, "terms has a null"),
        ({"terms": [["t"], ["t", ""], []]}, "terms has an empty text"),
        ({"seq": [1, -4, None]}, "seq is below 1"),
        ({"time": ["2026-03-01", "soon", "2026-03-01"]}, "time must be ISO 8601 or seconds since 1970, not 'soon'"),
        ({"time": pa.array([0, 2**60, 0], pa.timestamp("us"))}, "time is not between the years 1 and 9999"),
        ({"readings": [{"a": 1.0}, {"a": math.inf}, None]}, "readings has a value that is not a finite number"),
    ],
)
def test_bad_parquet_rows_are_reported(changes: dict[str, Any], problem: str, tmp_path: Path) -> None:
    """Rows are counted from 1."""
    pq.write_table(events_table(**changes), tmp_path / "e.parquet")
    good, bad = read_all(tmp_path / "e.parquet")
    assert (len(good), bad) == (2, {"e.parquet, row 2": problem})


@pytest.mark.parametrize(
    "changes",
    [
        {"terms": pa.nulls(3)},
        {"terms": pa.array([[], [], []], pa.list_(pa.null()))},
        {"seq": pa.nulls(3), "readings": pa.nulls(3)},
        {"time": [0, 1.5, 2]},
        {"event_id": pa.array(["a", "b", "c"]).dictionary_encode()},
        {"x": pa.array([1, 2, 3], pa.float32())},
    ],
)
def test_compatible_parquet_types_are_accepted(changes: dict[str, Any], tmp_path: Path) -> None:
    """Narrow numbers, dictionaries, large lists and columns of nulls are cast."""
    pq.write_table(events_table(**changes), tmp_path / "e.parquet")
    good, bad = read_all(tmp_path / "e.parquet")
    assert (len(good), bad) == (3, {})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": None}, "missing column 'x'"),
        ({"terms": None}, "missing column 'terms'"),
        ({"colour": ["r", "g", "b"]}, "unknown column 'colour'"),
        ({"x": ["1", "2", "3"]}, "column 'x' is string"),
        ({"event_id": [1, 2, 3]}, "column 'event_id' is int64"),
        ({"terms": ["a", "b", "c"]}, "column 'terms' is string"),
        ({"seq": [1.0, 2.0, 3.0]}, "column 'seq' is double"),
        ({"readings": [[1], [2], [3]]}, "column 'readings' is list"),
    ],
)
def test_parquet_with_wrong_columns_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    """For a missing or unknown column, or one of a wrong type."""
    pq.write_table(events_table(**changes), tmp_path / "e.parquet")
    with pytest.raises(InputError, match=message) as caught:
        plan_blocks(tmp_path / "e.parquet", EVENTS)
    assert caught.value.hint


def test_empty_collections_and_tables_have_no_rows(tmp_path: Path) -> None:
    """They are valid."""
    pq.write_table(events_table().slice(0, 0), tmp_path / "e.parquet")
    assert read_all(features(tmp_path / "e.geojson")) == ([], {})
    assert read_all(tmp_path / "e.parquet") == ([], {})


def test_a_folder_of_parquet_counts_rows_file_by_file(tmp_path: Path) -> None:
    """Files are ordered by name; hidden files and markers are ignored."""
    folder = tmp_path / "events"
    folder.mkdir()
    (folder / "_SUCCESS").touch()
    (folder / ".part.parquet").touch()
    pq.write_table(events_table(), folder / "part-1.parquet")
    pq.write_table(events_table(x=[1.0, 2.0, 999.0]), folder / "part-2.parquet", row_group_size=1)
    good, bad = read_all(folder)
    assert len(good) == 5
    assert bad == {"events/part-2.parquet, row 3": "x 999 is outside -180 to 180"}


def test_parquet_is_split_at_row_groups(tmp_path: Path) -> None:
    """Rows are numbered across blocks."""
    count = 500_000
    table = pa.table(
        {
            "event_id": pa.array([str(n) for n in range(count)]),
            "source": ["s"] * count,
            "time": [0] * count,
            "x": [0.0] * (count - 1) + [999.0],
            "y": [0.0] * count,
            "terms": pa.nulls(count),
        }
    )
    pq.write_table(table, tmp_path / "e.parquet", row_group_size=30_000)
    blocks = plan_blocks(tmp_path / "e.parquet", EVENTS)
    assert [block.first for block in blocks] == [1, 210_001, 420_001]
    last = list(read_block(blocks[-1], EVENTS, GEOGRAPHIC))[-1]
    assert blocks[-1].where(int(last.rows[-1])).endswith(f"row {count}")
    assert last.problems[-1] == "x 999 is outside -180 to 180"
