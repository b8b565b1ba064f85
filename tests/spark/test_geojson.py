"""Features of GeoJSON become rows, and problems name the feature."""

from __future__ import annotations

import json
from typing import Any

import pytest

from roamcast.errors import InputError
from roamcast.spark.files.geojson import lines_of_features

SIDES = ("min_x", "min_y", "max_x", "max_y")


def feature(geometry: Any, bbox: Any = None, **properties: Any) -> dict[str, Any]:
    return {"type": "Feature", "geometry": geometry, "properties": properties} | ({"bbox": bbox} if bbox else {})


def point(x: Any, y: Any, *z: Any) -> dict[str, Any]:
    return {"type": "Point", "coordinates": [x, y, *z]}


def polygon(*rings: Any) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": list(rings)}


def ring(west: float, south: float, east: float, north: float) -> list[list[float]]:
    return [[west, south], [east, south], [east, north], [west, north], [west, south]]


def lines(noun: Any, *features: Any) -> list[Any]:
    text = json.dumps({"type": "FeatureCollection", "features": features})
    return [json.loads(line) for line in lines_of_features(text, "e.geojson", noun, f"{noun}_id")]


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


SQUARE = polygon(ring(0, 0, 4, 4))


@pytest.mark.parametrize(
    ("geometry", "bbox", "sides"),
    [
        (SQUARE, None, (None, None, None, None)),
        (SQUARE, [0, 0, 4, 4], (0, 0, 4, 4)),
        (None, [170, -1, -170, 1], (170, -1, -170, 1)),
        (None, [0, 0, -50, 2, 3, 50], (0, 0, 2, 3)),
        ({}, None, (None, None, None, None)),
    ],
)
def test_a_subscription_has_a_geometry_or_a_bbox(geometry: Any, bbox: Any, sides: tuple[Any, ...]) -> None:
    """Or both. The geometry is a text, which is read later."""
    (row,) = lines("subscription", feature(geometry, bbox, subscription_id="q", terms=["a"]))
    text = row.pop("geometry")
    assert row == {"subscription_id": "q", "terms": ["a"], **dict(zip(SIDES, sides, strict=True))}
    assert text == (None if geometry is None else json.dumps(geometry).replace(" ", ""))


NO_BBOX = "bbox must be [west, south, east, north], four numbers"


@pytest.mark.parametrize(
    ("geometry", "bbox", "problem"),
    [
        (None, None, "the feature has neither a geometry nor a bbox"),
        (7, [0, 0, 1, 1], "the geometry must be an object"),
        (SQUARE, [1, 2, 3], NO_BBOX),
        (None, [1, "a", 3, 4], NO_BBOX),
    ],
)
def test_bad_subscription_features_are_reported(geometry: Any, bbox: Any, problem: str) -> None:
    """With what is wrong."""
    assert lines("subscription", feature(geometry, bbox, subscription_id="q")) == [[f"feature 1: {problem}"]]


@pytest.mark.parametrize(
    ("number", "own", "expected"),
    [("q", None, "q"), (17, None, "17"), ("q", "q", "q"), (17, "17", "17"), (None, "q", "q")],
)
def test_the_id_of_a_feature_is_that_of_its_row(number: Any, own: Any, expected: str) -> None:
    """If the properties have none, or the same one; of events and of subscriptions."""
    for noun, geometry in (("event", point(1, 2)), ("subscription", SQUARE)):
        (row,) = lines(noun, feature(geometry, **{f"{noun}_id": own}) | {"id": number})
        assert row[f"{noun}_id"] == expected


@pytest.mark.parametrize(
    ("number", "problem"),
    [
        ("q", "event_id is 'r', but the id of the feature is 'q'"),
        (1.5, "the id of the feature must be a text or an integer, not 1.5"),
        (True, "the id of the feature must be a text or an integer, not True"),
    ],
)
def test_bad_ids_of_features_are_reported(number: Any, problem: str) -> None:
    """Two different ones, and those that cannot be one."""
    assert lines("event", feature(point(1, 2), event_id="r") | {"id": number}) == [[f"feature 1: {problem}"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not JSON"), ('{"type": "Feature"}', "not a FeatureCollection"), ("[]", "not a Feature")],
)
def test_other_documents_are_refused(text: str, message: str) -> None:
    """With a hint."""
    with pytest.raises(InputError, match=rf"e\.geojson: {message}") as caught:
        lines_of_features(text, "e.geojson", "event", "id")
    assert caught.value.hint


def test_an_empty_collection_has_no_rows() -> None:
    """A byte order mark is ignored."""
    assert lines_of_features('\ufeff{"type": "FeatureCollection", "features": []}', "e.geojson", "event", "id") == []
