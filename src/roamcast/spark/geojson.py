"""GeoJSON features as rows of event and subscription files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import orjson
import pyarrow as pa

from roamcast.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Noun", "feature_lines", "lines_of_features"]

Noun: TypeAlias = Literal["event", "subscription"]

_LINES_OUT: Final = 10_000
_INSTEAD: Final = "only boxes can be matched: split it into rectangles, or give a bbox and no geometry"


def feature_lines(texts: DataFrame, where: str, noun: Noun) -> DataFrame:
    """Features of FeatureCollections, each a text, as lines of JSON: see `lines_of_features`."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for text in batch.column(0):
                lines = lines_of_features(text.as_py(), where, noun)
                for first in range(0, len(lines), _LINES_OUT):
                    yield pa.RecordBatch.from_pydict({"value": lines[first : first + _LINES_OUT]})

    return texts.mapInArrow(run, "value string")


def lines_of_features(text: str, where: str, noun: Noun) -> list[str]:
    """Each feature of a FeatureCollection as a line of JSON: an object with the properties and coordinates.

    A feature that is not an event or a subscription becomes an array with the problem. Raises InputError if the text
    is not a FeatureCollection.
    """
    try:
        document = orjson.loads(text.removeprefix("\ufeff"))
    except orjson.JSONDecodeError as error:
        raise InputError(f"not JSON: {error}", where=where, hint="a GeoJSON file is one JSON document") from error
    features = document.get("features") if isinstance(document, dict) else None
    if not isinstance(features, list) or document.get("type") != "FeatureCollection":
        raise InputError("not a FeatureCollection", where=where, hint="put the features into a FeatureCollection")
    return [_line(feature, number, noun) for number, feature in enumerate(features, start=1)]


def _line(feature: Any, number: int, noun: Noun) -> str:
    try:
        return orjson.dumps(_CONVERTERS[noun](feature)).decode()
    except ValueError as error:
        return orjson.dumps([f"feature {number}: {error}"]).decode()


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


_CONVERTERS: Final[Mapping[Noun, Callable[[Any], dict[str, Any]]]] = {"event": _event, "subscription": _subscription}
"""Each returns the fields of a feature, or raises ValueError with the problem."""


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
