"""Named places: polygons read from GeoJSON. Borders are inside."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import orjson
import shapely
from shapely.geometry import shape

from roamcast.errors import InputError, NotFoundError
from roamcast.model import Box
from roamcast.space import GEOGRAPHIC, Space, longitude_range

__all__ = ["Places"]

_SHAPES: Final = ("Polygon", "MultiPolygon")
_EXPECTED: Final = "expected a FeatureCollection of Polygon or MultiPolygon features, each with a 'name' property"


class Places:
    """An immutable set of named polygons in one space."""

    def __init__(self, shapes: Mapping[str, shapely.Geometry], space: Space = GEOGRAPHIC) -> None:
        self._space = space
        self._shapes = dict(shapes)
        shapely.prepare(list(self._shapes.values()))

    @classmethod
    def from_geojson(cls, source: Path | str, space: Space = GEOGRAPHIC) -> Self:
        """Read a file (Path) or a text (str). Raises InputError, which names the feature, counted from 1."""
        where = str(source) if isinstance(source, Path) else "GeoJSON"
        shapes: dict[str, shapely.Geometry] = {}
        for number, feature in enumerate(_features(source, where), start=1):
            feature_where = f"{where}, feature {number}"
            name = _name(feature, feature_where)
            if name in shapes:
                raise InputError(f"duplicate place {name!r}", where=feature_where, hint="names must be unique")
            shapes[name] = _shape(feature.get("geometry"), space, feature_where)
        return cls(shapes, space)

    @property
    def names(self) -> tuple[str, ...]:
        """Names, in the order of the input."""
        return tuple(self._shapes)

    def get(self, name: str) -> shapely.Geometry:
        """Return the polygon of a place. Raises NotFoundError, whose hint lists similar names."""
        try:
            return self._shapes[name]
        except KeyError:
            close = difflib.get_close_matches(name, self._shapes, n=3, cutoff=0.5) or list(self._shapes)[:3]
            hint = f"did you mean {' or '.join(map(repr, close))}?" if close else "no places are defined"
            raise NotFoundError(f"no place named {name!r}", where="place", hint=hint) from None

    def contains(self, name: str, x: npt.ArrayLike, y: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether a place contains points, elementwise. Borders are inside, NaN points are not."""
        inside: npt.NDArray[np.bool_] = shapely.intersects_xy(self.get(name), x, y)
        return inside

    def bounds(self, name: str) -> Box:
        """The smallest box around a place. It crosses the antimeridian if the polygon was split there."""
        place = self.get(name)
        min_x, min_y, max_x, max_y = (float(c) for c in place.bounds)
        if self._space.name == "geographic" and (min_x, max_x) == (-180.0, 180.0):
            west, _, east, _ = shapely.bounds(shapely.get_parts(place)).T
            min_x, max_x = longitude_range(west, east)
        return Box(min_x, min_y, max_x, max_y)

    def to_geojson(self) -> str:
        """A text that `from_geojson` reads as equal places."""
        features = [
            {"type": "Feature", "properties": {"name": name}, "geometry": orjson.Fragment(shapely.to_geojson(place))}
            for name, place in self._shapes.items()
        ]
        return orjson.dumps({"type": "FeatureCollection", "features": features}).decode()

    def at(self, x: float, y: float) -> list[str]:
        """The names of the places that contain a point, in the order of the input."""
        return [name for name, place in self._shapes.items() if shapely.intersects_xy(place, x, y)]


def _features(source: Path | str, where: str) -> list[dict[str, Any]]:
    try:
        text = source.read_bytes() if isinstance(source, Path) else source
        document = orjson.loads(text)
    except OSError as error:
        raise InputError(f"cannot read the file: {error.strerror}", where=where, hint="check the path") from error
    except orjson.JSONDecodeError as error:
        raise InputError(f"invalid JSON: {error}", where=where, hint=_EXPECTED) from error
    features = document.get("features") if isinstance(document, dict) else None
    if not isinstance(features, list) or document.get("type") != "FeatureCollection":
        raise InputError("not a FeatureCollection", where=where, hint=_EXPECTED)
    for number, feature in enumerate(features, start=1):
        if not isinstance(feature, dict) or feature.get("type") != "Feature":
            raise InputError("not a Feature", where=f"{where}, feature {number}", hint=_EXPECTED)
    return features


def _name(feature: Mapping[str, Any], where: str) -> str:
    properties = feature.get("properties")
    name = properties.get("name") if isinstance(properties, dict) else None
    if not isinstance(name, str) or not name:
        raise InputError("the place has no name", where=where, hint="add a non-empty string property 'name'")
    return name


def _shape(geometry: Any, space: Space, where: str) -> shapely.Geometry:
    kind = geometry.get("type") if isinstance(geometry, dict) else None
    if kind not in _SHAPES:
        raise InputError(f"unsupported geometry: {kind or 'missing'}", where=where, hint=_EXPECTED)
    try:
        place = shapely.force_2d(shape(geometry))
    except (shapely.GEOSException, ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        hint = "a Polygon is a list of rings; a ring has at least four points, and the last equals the first"
        raise InputError(f"invalid coordinates of a {kind}: {error}", where=where, hint=hint) from error
    if place.is_empty:
        raise InputError("the geometry is empty", where=where, hint="remove the feature, or add coordinates")
    points = shapely.get_coordinates(place)
    for reason in filter(None, space.bad_points(points[:, 0], points[:, 1])):
        raise InputError(reason, where=where, hint=f"coordinates are {space.name}, in the order x, y")
    if not place.is_valid:
        reason = shapely.is_valid_reason(place)
        raise InputError(f"invalid polygon: {reason}", where=where, hint="rings must not cross themselves")
    return place
