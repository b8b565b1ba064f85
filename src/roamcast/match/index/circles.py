"""Circles on the ground, and boxes that are certain to contain them."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.space import Floats, Space

__all__ = ["Extents", "boxes_around", "room_to_move"]

# WGS84, as in `space`.
_RADIUS: Final = 6_378_137.0
_FLATTENING: Final = 1 / 298.257223563
_MARGIN: Final = 1e-9  # radians and degrees, some millimetres: far above rounding errors
_ROUNDING: Final = 8 * float(np.finfo(np.float64).eps)


class Extents(NamedTuple):
    """Ranges that contain every point of a circle: x within `half_x` of the centre, y from min_y to max_y."""

    half_x: Floats
    min_y: Floats
    max_y: Floats

    @classmethod
    def of(cls, space: Space, x: npt.ArrayLike, y: npt.ArrayLike, radius: npt.ArrayLike) -> Extents:
        """Return the extents of all points whose `space.distance` from (x, y) is at most `radius` metres."""
        x, y, radius = (np.asarray(c, np.float64) for c in (x, y, radius))
        if space.name != "geographic":
            with np.errstate(over="ignore"):
                half_x, half_y = (radius + _ROUNDING * (np.abs(c) + radius) for c in (x, y))
                return cls(half_x, y - half_y, y + half_y)
        # Metres are at least (1 - f) times the arc between the points on the auxiliary sphere of reduced latitudes.
        arc = np.minimum(radius / ((1 - _FLATTENING) * _RADIUS) + _MARGIN, np.pi)
        latitude = np.arctan((1 - _FLATTENING) * np.tan(np.radians(y)))
        south, north = latitude - arc, latitude + arc
        has_pole = (south <= _MARGIN - np.pi / 2) | (north >= np.pi / 2 - _MARGIN)
        longitude = np.arcsin(np.minimum(np.sin(np.where(has_pole, 0.0, arc)) / np.cos(latitude), 1.0))
        half_x = np.where(has_pole, 180.0, np.degrees(longitude) + _MARGIN)
        min_y, max_y = (
            np.degrees(np.arctan(np.tan(np.clip(b, -np.pi / 2, np.pi / 2)) / (1 - _FLATTENING))) for b in (south, north)
        )
        return cls(half_x, np.maximum(min_y - _MARGIN, -90.0), np.minimum(max_y + _MARGIN, 90.0))


def boxes_around(space: Space, x: npt.ArrayLike, extents: Extents) -> Floats:
    """Return a row (min_x, min_y, max_x, max_y) for each circle around `x`. It may cross the antimeridian."""
    x = np.asarray(x, np.float64)
    with np.errstate(over="ignore"):
        west, east = x - extents.half_x, x + extents.half_x
    if space.name == "geographic":
        whole = extents.half_x >= 180.0
        # 180 and -180 degrees are the same meridian, and a circle that reaches it contains both.
        west, east = np.where(west <= -180.0, west + 360.0, west), np.where(east >= 180.0, east - 360.0, east)
        west, east = np.where(whole, -180.0, west), np.where(whole, 180.0, east)
    return np.stack([west, extents.min_y, east, extents.max_y], axis=-1)


def room_to_move(
    space: Space, x: npt.ArrayLike, y: npt.ArrayLike, radius: npt.ArrayLike, slack: npt.ArrayLike
) -> tuple[Floats, Floats]:
    """Return how far a centre may be from (x, y), in x and y, with its circle inside the extents of radius + slack."""
    x, y, radius, slack = (np.asarray(c, np.float64) for c in (x, y, radius, slack))
    wide = Extents.of(space, x, y, radius + slack)
    if space.name != "geographic":
        error = _ROUNDING * (np.maximum(np.abs(x), np.abs(y)) + radius + slack)
        room = np.maximum(slack * (1 - 1e-9) - error, 0.0)
        return room, room
    # Reduced latitudes change by at most 1 / (1 - f) times as much as latitudes, arcs by the slack over (1 - f) radii.
    room_y = np.maximum(np.degrees(slack / _RADIUS) * (1 - 1e-9) - _MARGIN, 0.0)
    ends = [Extents.of(space, x, np.clip(y + way * room_y, -90.0, 90.0), radius).half_x for way in (-1, 1)]
    # A box around a pole covers all longitudes.
    room_x = np.where(wide.half_x >= 180.0, 360.0, np.maximum(wide.half_x - np.maximum(*ends), 0.0))
    return room_x, room_y
