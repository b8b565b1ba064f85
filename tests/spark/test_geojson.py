"""Features of GeoJSON become rows, and problems name the feature."""

from __future__ import annotations

import json
from typing import Any

import pytest

from roamcast.errors import InputError
from roamcast.spark.geojson import Noun, lines_of_features

SIDES = ("min_x", "min_y", "max_x", "max_y")


def feature(geometry: Any, bbox: Any = None, **properties: Any) -> dict[str, Any]:
    return {"type": "Feature", "geometry": geometry, "properties": properties} | ({"bbox": bbox} if bbox else {})


def point(x: Any, y: Any, *z: Any) -> dict[str, Any]:
    return {"type": "Point", "coordinates": [x, y, *z]}


def polygon(*rings: Any) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": list(rings)}


def ring(west: float, south: float, east: float, north: float) -> list[list[float]]:
    return [[west, south], [east, south], [east, north], [west, north], [west, south]]


def lines(noun: Noun, *features: Any) -> list[Any]:
    text = json.dumps({"type": "FeatureCollection", "features": features})
    return [json.loads(line) for line in lines_of_features(text, "e.geojson", noun)]


def test_an_event_is_a_point_with_properties() -> None:
    """Heights are ignored; a value of a wrong type is reported later."""
    assert lines("event", feature(point(1.5, -2, 99), id="e", terms=["a"]), feature(point("1", None))) == [
        {"id": "e", "terms": ["a"], "x": 1.5, "y": -2},
        {"x": "1", "y": None},
    ]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (7, "not a Feature"),
        ({"type": "Feature", "geometry": point(1, 2), "properties": [1]}, "properties must be an object"),
        (feature(None, event_id="e"), "the geometry of an event must be a Point, not none"),
        (feature({"type": "Polygon", "coordinates": []}), "the geometry of an event must be a Point, not Polygon"),
        (feature({"type": "Point", "coordinates": [1]}), "the Point has no coordinates"),
        (feature(point(1, 2), x=3), "unknown property 'x': coordinates belong in the geometry"),
    ],
)
def test_bad_event_features_are_reported(row: Any, problem: str) -> None:
    """Features are counted from 1."""
    assert lines("event", feature(point(1, 2)), row) == [{"x": 1, "y": 2}, [f"feature 2: {problem}"]]


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
def test_the_box_of_a_subscription_feature(geometry: Any, bbox: Any, expected: tuple[float, ...]) -> None:
    """Its rectangular Polygon, its bbox, or both if they agree."""
    (row,) = lines("subscription", feature(geometry, bbox, subscription_id="q", terms=["a"]))
    assert row == {"subscription_id": "q", "terms": ["a"], **dict(zip(SIDES, expected, strict=True))}


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
def test_bad_subscription_features_are_reported(geometry: Any, bbox: Any, problem: str) -> None:
    """They are not exactly a box: a bounding box in their place would match too much."""
    assert lines("subscription", feature(geometry, bbox, subscription_id="q")) == [[f"feature 1: {problem}"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not JSON"), ('{"type": "Feature"}', "not a FeatureCollection"), ("[]", "not a Feature")],
)
def test_other_documents_are_refused(text: str, message: str) -> None:
    """With a hint."""
    with pytest.raises(InputError, match=rf"e\.geojson: {message}") as caught:
        lines_of_features(text, "e.geojson", "event")
    assert caught.value.hint


def test_an_empty_collection_has_no_rows() -> None:
    """A byte order mark is ignored."""
    assert lines_of_features('\ufeff{"type": "FeatureCollection", "features": []}', "e.geojson", "event") == []
