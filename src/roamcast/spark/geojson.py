"""GeoJSON features as rows of event and subscription files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from roamcast.errors import InputError

__all__ = ["CONVERTERS", "read_features"]


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
    bbox = feature.get("bbox")
    if bbox is None:
        bbox = _rectangle(*_geometry(feature))
    if not isinstance(bbox, list) or len(bbox) not in (4, 6):
        raise ValueError("bbox must be [west, south, east, north]")
    half = len(bbox) // 2  # six numbers include heights
    return {**properties, "min_x": bbox[0], "min_y": bbox[1], "max_x": bbox[half], "max_y": bbox[half + 1]}


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


def _geometry(feature: dict[str, Any]) -> tuple[str, Any]:
    geometry = feature.get("geometry")
    if not isinstance(geometry, dict):
        return "none", None
    return str(geometry.get("type")), geometry.get("coordinates")


def _rectangle(kind: str, coordinates: Any) -> list[float]:
    """The bounding rectangle of a Polygon. An area that is split at the antimeridian needs a bbox instead."""
    if kind != "Polygon":
        raise ValueError(f"the geometry of a subscription must be a Polygon, not {kind}, unless it has a bbox")
    try:
        x, y = zip(*((point[0], point[1]) for point in coordinates[0]), strict=True)
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise ValueError("the Polygon has no coordinates") from error
    if not {type(number) for number in (*x, *y)} <= {int, float}:
        raise ValueError("the Polygon has coordinates that are not numbers")
    return [min(x), min(y), max(x), max(y)]
