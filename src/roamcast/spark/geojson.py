"""GeoJSON features as rows of event and subscription files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa

from roamcast.errors import InputError
from roamcast.space import Reasons, Space
from roamcast.spark.file_rows import POLYGON, Columns, FileLayout, add_problem, from_values, parse_or_note, quote_value
from roamcast.spark.geometry import read_regions

__all__ = ["from_features", "read_features"]

_ALL_LONGITUDES: Final = (-180.0, 180.0)


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


def from_features(features: Sequence[Any], layout: FileLayout, space: Space, problems: Reasons) -> Columns:
    """Build columns from features: properties are fields, geometries are points, or boxes and polygons."""
    if not layout.has_polygons:
        rows = [parse_or_note(lambda raw: _event(raw, layout), each, at, problems) for at, each in enumerate(features)]
        return from_values(rows, layout, problems)
    rows = [parse_or_note(lambda raw: _area(raw, layout), each, at, problems) for at, each in enumerate(features)]
    geometries = [row.pop("geometry", None) for row in rows]
    texts = pa.array([None if each is None else orjson.dumps(each).decode() for each in geometries], pa.string())
    regions = read_regions(texts, space, problems)
    for at, box in enumerate(regions.box.tolist()):
        if geometries[at] is not None:
            _check_bbox(features[at], box, at, problems)
            rows[at].update(zip(layout.coordinates, box, strict=True))
    return from_values(rows, layout, problems) | {POLYGON: regions.polygons.lists()}


def _event(feature: Any, layout: FileLayout) -> dict[str, Any]:
    fields = _properties(feature, layout)
    geometry = feature.get("geometry")
    kind = geometry.get("type") if isinstance(geometry, dict) else "none"
    if kind != "Point":
        raise ValueError(f"the geometry of an event must be a Point, not {kind}")
    coordinates = geometry.get("coordinates")
    if not isinstance(coordinates, list) or len(coordinates) < 2:
        raise ValueError("the Point has no coordinates")
    return fields | dict(zip(layout.coordinates, coordinates[:2], strict=True))


def _area(feature: Any, layout: FileLayout) -> dict[str, Any]:
    """The fields, and the sides of the bbox or the `geometry`."""
    fields = _properties(feature, layout)
    sides, geometry = _bbox(feature), feature.get("geometry")
    if isinstance(geometry, dict):
        return fields | {"geometry": geometry}
    if geometry is not None:
        raise ValueError("the geometry must be an object")
    if sides is None:
        raise ValueError("the feature has neither a geometry nor a bbox")
    return fields | dict(zip(layout.coordinates, sides, strict=True))


def _properties(feature: Any, layout: FileLayout) -> dict[str, Any]:
    """The properties, with the id of the feature if they have none."""
    if not isinstance(feature, dict) or feature.get("type") != "Feature":
        raise ValueError("not a Feature")
    properties = feature.get("properties") or {}
    if not isinstance(properties, dict):
        raise ValueError("properties must be an object")
    for name in (*layout.coordinates, "geometry"):
        if name in properties:
            raise ValueError(f"unknown property {name!r}: coordinates belong in the geometry")
    number = feature.get("id")
    if number is None:
        return {**properties}
    if type(number) not in (str, int):
        raise ValueError(f"the id of the feature must be a text or an integer, not {quote_value(number)}")
    own = properties.get(layout.id)
    if own is not None and str(own) != str(number):
        raise ValueError(f"{layout.id} is {quote_value(own)}, but the id of the feature is {quote_value(number)}")
    return {**properties, layout.id: str(number) if own is None else own}


def _bbox(feature: dict[str, Any]) -> Sequence[Any] | None:
    """West, south, east, north, if the feature has a bbox."""
    bbox = feature.get("bbox")
    if bbox is None:
        return None
    half = len(bbox) // 2 if isinstance(bbox, list) else 0  # six numbers include heights
    if half not in (2, 3) or len(bbox) % 2 or not {type(number) for number in bbox} <= {int, float}:
        raise ValueError("bbox must be [west, south, east, north], four numbers")
    return bbox[0], bbox[1], bbox[half], bbox[half + 1]


def _check_bbox(feature: Any, box: Sequence[float], row: int, problems: Reasons) -> None:
    """A bbox says how the geometry is meant: one that crosses the antimeridian is of a geometry that is split there."""
    sides = _bbox(feature)
    if sides is None or tuple(sides) == tuple(box):
        return
    west, south, east, north = box
    if west > east and tuple(sides) == (_ALL_LONGITUDES[0], south, _ALL_LONGITUDES[1], north):
        return
    instead = "split the geometry at the antimeridian" if sides[0] > sides[2] else "omit it"
    add_problem(problems, row, f"the bbox differs from the geometry; {instead}, or give the bbox alone")
