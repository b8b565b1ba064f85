"""Reading GeoJSON and Parquet. Bad rows are reported with their location."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from formats import MOMENT, feature, features, point, read_all

from roamcast.errors import InputError
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


@pytest.mark.parametrize(
    ("geometry", "bbox", "expected"),
    [
        (BOX, None, (0, 0, 4, 3.5)),
        (polygon(ring(0, 0, 4, 3.5)[::-1]), None, (0, 0, 4, 3.5)),
        (polygon([[4, 3.5], [0, 3.5], [0, 0], [4, 0], [4, 3.5]]), None, (0, 0, 4, 3.5)),
        (polygon([[0, 0], [1, 0], [2, 0], [4, 0], [4, 3.5], [0, 3.5], [0, 0]]), None, (0, 0, 4, 3.5)),
        (polygon([[1, 0], [4, 0], [4, 3.5], [0, 3.5], [0, 0], [1, 0]]), None, (0, 0, 4, 3.5)),
        (polygon([[x, y, 9] for x, y in ring(0, 0, 4, 3.5)]), None, (0, 0, 4, 3.5)),
        (polygon(ring(2, 0, 2, 3)), None, (2, 0, 2, 3)),
        (polygon(ring(2, 3, 2, 3)), None, (2, 3, 2, 3)),
        (BOX, [0, 0, 4, 3.5], (0, 0, 4, 3.5)),
        (BOX, [0, 0, -50, 4, 3.5, 50], (0, 0, 4, 3.5)),
        (ACROSS, [170, -1, -170, 1], (170, -1, -170, 1)),
        (None, [170, -1, -170, 1], (170, -1, -170, 1)),
        (None, [0, 0, -50, 2, 3, 50], (0, 0, 2, 3)),
    ],
)
def test_the_box_of_a_subscription_feature(
    geometry: Any, bbox: Any, expected: tuple[float, ...], tmp_path: Path
) -> None:
    """Its rectangular Polygon, its bbox, or both if they agree."""
    path = features(tmp_path / "q.geojson", feature(geometry, bbox, subscription_id="q", terms=["a"]))
    good, bad = read_all(path, SUBSCRIPTIONS)
    assert (tuple(good[0][side] for side in ("min_x", "min_y", "max_x", "max_y")), bad) == (expected, {})


INSTEAD = "only boxes can be matched: split it into rectangles, or give a bbox and no geometry"
NOT_RECTANGULAR = f"the Polygon is not a rectangle along the axes; {INSTEAD}"
NO_BBOX = "bbox must be [west, south, east, north], four numbers"


@pytest.mark.parametrize(
    ("geometry", "bbox", "problem"),
    [
        (TRIANGLE, None, NOT_RECTANGULAR),
        (TRIANGLE, [0, 0, 4, 3.5], NOT_RECTANGULAR),
        (polygon([[0, 0], [4, 0], [4, 4], [2, 4], [2, 2], [0, 2], [0, 0]]), None, NOT_RECTANGULAR),
        (polygon([[2, 0], [4, 2], [2, 4], [0, 2], [2, 0]]), None, NOT_RECTANGULAR),
        (polygon([[0, 0], [4, 4], [4, 0], [0, 4], [0, 0]]), None, NOT_RECTANGULAR),
        (polygon([[0, 0], [4, 0], [4, 4], [0, 4.000001], [0, 0]]), None, NOT_RECTANGULAR),
        (polygon([[0, 0], [9, 0], [4, 0], [4, 4], [0, 4], [0, 0]]), None, NOT_RECTANGULAR),
        (polygon([[0, 0], [4, 0], [4, 4], [0, 0]]), None, NOT_RECTANGULAR),
        (
            polygon([[0, 0], [4, 0], [4, 4], [0, 4]]),
            None,
            "the Polygon is not closed: its last point must be its first",
        ),
        (polygon(ring(0, 0, 4, 4), ring(1, 1, 2, 2)), None, f"the Polygon has holes; {INSTEAD}"),
        (SPLIT, None, f"the geometry of a subscription must be a rectangular Polygon, not MultiPolygon; {INSTEAD}"),
        (
            SPLIT,
            [170, -1, -170, 1],
            f"the geometry of a subscription must be a rectangular Polygon, not MultiPolygon; {INSTEAD}",
        ),
        (point(1, 2), None, f"the geometry of a subscription must be a rectangular Polygon, not Point; {INSTEAD}"),
        (None, None, f"the geometry of a subscription must be a rectangular Polygon, not none; {INSTEAD}"),
        (7, [0, 0, 1, 1], f"the geometry of a subscription must be a rectangular Polygon, not none; {INSTEAD}"),
        (polygon(), None, "the Polygon has no coordinates"),
        (polygon([]), None, "the Polygon has no coordinates"),
        (polygon([[0]]), None, "the Polygon has no coordinates"),
        (polygon([[0, "a"]]), None, "the Polygon has coordinates that are not numbers"),
        (BOX, [0, 0, 4, 4], "the bbox differs from the Polygon; omit one of them"),
        (BOX, [1, 2, 3], NO_BBOX),
        (None, [1, "a", 3, 4], NO_BBOX),
    ],
)
def test_bad_subscription_features_are_reported(geometry: Any, bbox: Any, problem: str, tmp_path: Path) -> None:
    """They are not exactly a box: a bounding box in their place would match too much."""
    path = features(tmp_path / "q.geojson", feature(geometry, bbox, subscription_id="q"))
    assert read_all(path, SUBSCRIPTIONS) == ([], {"q.geojson, feature 1": problem})


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
