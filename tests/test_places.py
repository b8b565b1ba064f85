"""Named places: reading GeoJSON and point queries."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roamcast.errors import InputError, NotFoundError
from roamcast.model import Box
from roamcast.places import Places
from roamcast.space import PLANAR


def ring(min_x: float, min_y: float, max_x: float, max_y: float) -> list[list[float]]:
    return [[min_x, min_y], [max_x, min_y], [max_x, max_y], [min_x, max_y], [min_x, min_y]]


def feature(name: Any, geometry: Any) -> dict[str, Any]:
    return {"type": "Feature", "properties": {"name": name}, "geometry": geometry}


def polygon(*rings: Any) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": list(rings)}


def text(*features: Any) -> str:
    return json.dumps({"type": "FeatureCollection", "features": list(features)})


HALL = feature("hall", polygon(ring(0, 0, 10, 10), ring(4, 4, 6, 6)))
GARDEN = feature("garden", polygon(ring(10, 0, 20, 10)))
FIJI = feature(
    "fiji",
    {"type": "MultiPolygon", "coordinates": [[ring(177, -19, 180, -16)], [ring(-180, -19, -178, -15)]]},
)


@pytest.fixture
def places() -> Places:
    return Places.from_geojson(text(HALL, GARDEN, FIJI))


def test_names_keep_their_order(places: Places) -> None:
    """Names are in the order of the file."""
    assert places.names == ("hall", "garden", "fiji")


def test_a_file_is_read_like_a_text(tmp_path: Path) -> None:
    """A Path names a GeoJSON file."""
    path = tmp_path / "places.geojson"
    path.write_text(text(GARDEN))
    assert Places.from_geojson(path).names == ("garden",)


def test_borders_are_inside_and_holes_are_outside(places: Places) -> None:
    """Outer and inner borders are inside; holes and NaN are not."""
    x, y = [1, 0, 10, 4, 5, 11, math.nan], [1, 0, 5, 5, 5, 5, 5]
    assert places.contains("hall", x, y).tolist() == [True, True, True, True, False, False, False]


def test_contains_takes_arrays(places: Places) -> None:
    """The result has the shape of the points."""
    assert places.contains("garden", np.full((2, 3), 15.0), np.ones((2, 3))).shape == (2, 3)


def test_at_returns_every_place_that_contains_the_point(places: Places) -> None:
    """A point on a common border is in both places."""
    assert (places.at(10, 5), places.at(1, 1), places.at(50, 50)) == (["hall", "garden"], ["hall"], [])


def test_bounds_is_the_smallest_box(places: Places) -> None:
    """A polygon that is not split has ordinary bounds."""
    assert places.bounds("garden") == Box(10, 0, 20, 10)


def test_the_bounds_of_a_place_split_at_the_antimeridian_cross_it(places: Places) -> None:
    """The box has min_x > max_x and does not span all longitudes."""
    assert places.bounds("fiji") == Box(177, -19, -178, -15)


def test_planar_bounds_never_cross() -> None:
    """In planar space 180 has no special meaning."""
    assert Places.from_geojson(text(FIJI), PLANAR).bounds("fiji") == Box(-180, -19, 180, -15)


def test_a_place_with_all_longitudes_keeps_its_bounds() -> None:
    """A polygon from -180 to 180 has no gap."""
    belt = feature("belt", polygon(ring(-180, -5, 180, 5)))
    assert Places.from_geojson(text(belt)).bounds("belt") == Box(-180, -5, 180, 5)


def test_an_unknown_name_gets_a_hint_with_similar_names(places: Places) -> None:
    """For misspelt names."""
    with pytest.raises(NotFoundError) as caught:
        places.get("gardn")
    assert "'garden'" in (caught.value.hint or "")


def test_an_empty_collection_has_no_places() -> None:
    """An empty collection is valid."""
    assert Places.from_geojson(text()).names == ()


CROSSED = polygon([[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{", "GeoJSON: invalid JSON"),
        ("[]", "not a FeatureCollection"),
        ('{"type": "Feature"}', "not a FeatureCollection"),
        (text(1), "feature 1: not a Feature"),
        (text(HALL, {"type": "Feature", "properties": None, "geometry": None}), "feature 2: the place has no name"),
        (text(feature("", polygon(ring(0, 0, 1, 1)))), "feature 1: the place has no name"),
        (text(feature(7, polygon(ring(0, 0, 1, 1)))), "feature 1: the place has no name"),
        (text(HALL, GARDEN, HALL), "feature 3: duplicate place 'hall'"),
        (text(feature("p", {"type": "Point", "coordinates": [0, 0]})), "unsupported geometry: Point"),
        (text(feature("p", None)), "unsupported geometry: missing"),
        (text(feature("p", polygon([[0, 0], [1, 1]]))), "invalid coordinates of a Polygon"),
        (text(feature("p", polygon([[0, "a"]] * 4))), "invalid coordinates of a Polygon"),
        (text(feature("p", {"type": "Polygon"})), "invalid coordinates of a Polygon"),
        (text(feature("p", {"type": "Polygon", "coordinates": []})), "the geometry is empty"),
        (text(feature("p", CROSSED)), "invalid polygon: Self-intersection"),
        (text(feature("p", polygon(ring(0, 0, 200, 1)))), "x 200 is outside -180 to 180"),
    ],
)
def test_bad_geojson_is_refused(source: str, message: str) -> None:
    """The error names the feature and has a hint."""
    with pytest.raises(InputError) as caught:
        Places.from_geojson(source)
    assert message in str(caught.value)
    assert caught.value.hint


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    """With an InputError."""
    with pytest.raises(InputError, match="cannot read the file"):
        Places.from_geojson(tmp_path / "none.geojson")
