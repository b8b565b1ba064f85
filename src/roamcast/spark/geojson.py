"""GeoJSON features as rows of event and subscription files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

import orjson

from roamcast.errors import InputError

__all__ = ["CONVERTERS", "read_features"]

_INSTEAD: Final = "only boxes can be matched: split it into rectangles, or give a bbox and no geometry"


def read_features(path: Path, label: str) -> list[Any]:
    """The features of a FeatureCollection, unchecked. Raises InputError if the file is not one."""
    try:
        document = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise InputError(f"not JSON: {error}", where=label, hint="a GeoJSON file is one JSON document") from error
    features = document.get("features") if isinstance(document, dict) else None
    if not isinstance(features, list) or document.get("type") != "FeatureCollection":
        raise InputError("not a FeatureCollection", where=label, hint="put the features into a FeatureCollection")
    return features


def _event(feature: Any) -> dict[str, Any]:
    properties = _properties(feature, "x", "y")
    kind, coordinates = _geometry(feature)
    if kind != "Point":
        raise ValueError(f"the geometry of an event must be a Point, not {kind}")
    if not isinstance(coordinates, list) or len(coordinates) < 2:
        raise ValueError("the Point has no coordinates")
    return {**properties, "x": coordinates[0], "y": coordinates[1]}


def _subscription(feature: Any) -> dict[str, Any]:
    properties = _properties(feature, "min_x", "min_y", "max_x", "max_y")
    sides = _bbox(feature)
    if sides is None or feature.get("geometry") is not None:
        sides = _rectangle(*_geometry(feature), sides)
    return {**properties, **dict(zip(("min_x", "min_y", "max_x", "max_y"), sides, strict=True))}


CONVERTERS: Final[Mapping[str, Callable[[Any], dict[str, Any]]]] = {"event": _event, "subscription": _subscription}
"""By the noun of a layout: returns the fields of a feature. Raises ValueError with the problem."""


def _properties(feature: Any, *reserved: str) -> dict[str, Any]:
    if not isinstance(feature, dict) or feature.get("type") != "Feature":
        raise ValueError("not a Feature")
    properties = feature.get("properties") or {}
    if not isinstance(properties, dict):
        raise ValueError("properties must be an object")
    for name in reserved:
        if name in properties:
            raise ValueError(f"unknown property {name!r}: coordinates belong in the geometry")
    return properties


def _bbox(feature: dict[str, Any]) -> Sequence[Any] | None:
    """West, south, east, north, if the feature has a bbox."""
    bbox = feature.get("bbox")
    if bbox is None:
        return None
    half = len(bbox) // 2 if isinstance(bbox, list) else 0  # six numbers include heights
    if half not in (2, 3) or len(bbox) % 2 or not {type(number) for number in bbox} <= {int, float}:
        raise ValueError("bbox must be [west, south, east, north], four numbers")
    return bbox[0], bbox[1], bbox[half], bbox[half + 1]


def _geometry(feature: dict[str, Any]) -> tuple[str, Any]:
    geometry = feature.get("geometry")
    if not isinstance(geometry, dict):
        return "none", None
    return str(geometry.get("type")), geometry.get("coordinates")


def _rectangle(kind: str, coordinates: Any, bbox: Sequence[Any] | None) -> Sequence[Any]:
    """The sides of a Polygon that is a rectangle along the axes: west, south, east, north.

    `bbox` has the same sides, if there is one. It tells a box that crosses the antimeridian from one that does not.
    """
    if kind != "Polygon":
        raise ValueError(f"the geometry of a subscription must be a rectangular Polygon, not {kind}; {_INSTEAD}")
    if isinstance(coordinates, list) and len(coordinates) > 1:
        raise ValueError(f"the Polygon has holes; {_INSTEAD}")
    try:
        points = [(point[0], point[1]) for point in coordinates[0]]
        x, y = zip(*points, strict=True)
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise ValueError("the Polygon has no coordinates") from error
    if not {type(number) for number in (*x, *y)} <= {int, float}:
        raise ValueError("the Polygon has coordinates that are not numbers")
    if points[0] != points[-1]:
        raise ValueError("the Polygon is not closed: its last point must be its first")
    corners = _corners(points[:-1])
    if len(corners) != 4 or set(corners) != set(product((min(x), max(x)), (min(y), max(y)))):
        raise ValueError(f"the Polygon is not a rectangle along the axes; {_INSTEAD}")
    if bbox is None:
        return min(x), min(y), max(x), max(y)
    west, south, east, north = bbox
    if (*sorted([west, east]), south, north) != (min(x), max(x), min(y), max(y)):
        raise ValueError("the bbox differs from the Polygon; omit one of them")
    return bbox


def _corners(ring: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """A ring without the points on straight lines along the axes; [] if it has other lines."""
    before, after = ring[-1:] + ring[:-1], ring[1:] + ring[:1]
    if any(a[0] != b[0] and a[1] != b[1] for a, b in zip(ring, after, strict=True)):
        return []
    if len(ring) == 4:  # all are corners, also of a rectangle without width or height
        return ring
    return [
        b for a, b, c in zip(before, ring, after, strict=True) if not (a[0] == b[0] == c[0] or a[1] == b[1] == c[1])
    ]
