"""Coordinate systems: validation of coordinates and distances in metres. Geographic (WGS84) or planar."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from roamcast.coordinates import GEOGRAPHIC_LIMITS, PLANAR_LIMITS, CoordinateLimits
from roamcast.model import Box

__all__ = [
    "GEOGRAPHIC",
    "PLANAR",
    "SPACES",
    "Floats",
    "Geographic",
    "Planar",
    "Reasons",
    "Space",
    "contains",
    "longitude_range",
]

Floats: TypeAlias = npt.NDArray[np.float64]
Reasons: TypeAlias = npt.NDArray[np.object_]
"""For each row, what is wrong with it (a str), or None."""


class Space(Protocol):
    """A coordinate system. Points and boxes are checked on input, and are assumed valid after that."""

    @property
    def name(self) -> str: ...

    def check_point(self, x: float, y: float) -> None:
        """Raise InputError, which names the coordinate, if a point is not valid."""

    def check_box(self, box: Box, *, crosses_antimeridian: bool | None = None) -> None:
        """Raise InputError, which names the coordinate, if a box is not valid."""

    def valid_points(self, x: npt.ArrayLike, y: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether `check_point` accepts each row."""

    def bad_points(self, x: npt.ArrayLike, y: npt.ArrayLike) -> Reasons:
        """The message of `check_point` for each row."""

    def bad_boxes(
        self, min_x: npt.ArrayLike, min_y: npt.ArrayLike, max_x: npt.ArrayLike, max_y: npt.ArrayLike
    ) -> Reasons:
        """The message of `check_box` for each row."""

    def distance(self, x1: npt.ArrayLike, y1: npt.ArrayLike, x2: npt.ArrayLike, y2: npt.ArrayLike) -> Floats:
        """Distances between points in metres, elementwise with broadcasting. NaN if a coordinate is NaN."""

    def box_around(self, x: float, y: float, radius: float) -> Box:
        """A box that contains every point within `radius` metres of a point, and is only slightly larger."""


def contains(
    min_x: npt.ArrayLike,
    min_y: npt.ArrayLike,
    max_x: npt.ArrayLike,
    max_y: npt.ArrayLike,
    x: npt.ArrayLike,
    y: npt.ArrayLike,
) -> npt.NDArray[np.bool_]:
    """Whether closed boxes contain points, elementwise with broadcasting. No box contains a NaN point.

    A box with min_x > max_x crosses the antimeridian: it contains x >= min_x and x <= max_x. Longitudes are compared as
    numbers: 180 and -180 are the same meridian, but only a box that crosses it, or spans all longitudes, contains both.
    """
    after, before = np.greater_equal(x, min_x), np.less_equal(x, max_x)
    across = np.where(np.greater(min_x, max_x), after | before, after & before)
    inside: npt.NDArray[np.bool_] = across & np.greater_equal(y, min_y) & np.less_equal(y, max_y)
    return inside


def longitude_range(west: Floats, east: Floats) -> tuple[float, float]:
    """The west and the east of what is left without the widest gap between ranges of longitudes.

    The first range begins at -180, the last ends at 180, and none crosses the antimeridian; the result does, unless
    there is no gap.
    """
    left_west, left_east = -180.0, 180.0
    gap, reached = 0.0, -180.0
    for begin, end in sorted(zip(west.tolist(), east.tolist(), strict=True)):
        if begin - reached > gap:
            gap, left_west, left_east = begin - reached, begin, reached
        reached = max(reached, end)
    return left_west, left_east


@dataclass(frozen=True, slots=True)
class _ArrayChecks(CoordinateLimits):
    """Validation of whole columns of coordinates."""

    def valid_points(self, x: npt.ArrayLike, y: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        valid: npt.NDArray[np.bool_] = (np.abs(x) <= self.x_limit) & (np.abs(y) <= self.y_limit)
        return valid

    def bad_points(self, x: npt.ArrayLike, y: npt.ArrayLike) -> Reasons:
        x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        good = self.valid_points(x, y)
        reasons = np.full(good.shape, None, np.object_)
        for row in np.flatnonzero(~good):
            reasons[row] = str(self.point_fault(x[row], y[row]))
        return reasons

    def bad_boxes(
        self, min_x: npt.ArrayLike, min_y: npt.ArrayLike, max_x: npt.ArrayLike, max_y: npt.ArrayLike
    ) -> Reasons:
        west, south, east, north = (np.asarray(c, np.float64) for c in (min_x, min_y, max_x, max_y))
        good = (np.abs(west) <= self.x_limit) & (np.abs(east) <= self.x_limit)
        good &= (np.abs(south) <= self.y_limit) & (np.abs(north) <= self.y_limit) & (south <= north)
        if not self.wraps:
            good &= west <= east
        reasons = np.full(good.shape, None, np.object_)
        for row in np.flatnonzero(~good):
            reasons[row] = str(self.box_fault(west[row], south[row], east[row], north[row]))
        return reasons


# WGS84
_EQUATORIAL_RADIUS: Final = 6_378_137.0
_FLATTENING: Final = 1 / 298.257223563
_DISTANCE_ERROR: Final = 0.003  # upper bound of the relative error of `Geographic.distance`
_SMALLEST_RADIUS: Final = 6_335_439.0  # smallest radius of curvature: of a meridian at the equator
_ROUNDING: Final = 1e-12  # degrees; exceeds the rounding error of a distance
_NEAR_POLE: Final = 90 - 1e-9  # degrees; nearer to the pole the rounding error in longitude is larger than _ROUNDING


@dataclass(frozen=True, slots=True)
class Geographic(_ArrayChecks):
    """x is the longitude, y the latitude, in degrees on WGS84."""

    def distance(self, x1: npt.ArrayLike, y1: npt.ArrayLike, x2: npt.ArrayLike, y2: npt.ArrayLike) -> Floats:
        """Distance along the ellipsoid by Lambert's formula, which is closed and defined for every pair of points.

        The relative error is below 2e-6 from 1 km to 10,000 km, 5e-5 up to 19,000 km, and 2e-3 near the antipode, where
        the geodesic is not continuous.
        """
        # Reduced latitudes: both points on the auxiliary sphere.
        b1, b2 = (np.arctan((1 - _FLATTENING) * np.tan(np.radians(np.asarray(y, np.float64)))) for y in (y1, y2))
        half_turn = np.sin(np.radians(np.subtract(x2, x1, dtype=np.float64)) / 2) ** 2
        sin2_p, sin2_q = np.sin((b1 + b2) / 2) ** 2, np.sin((b2 - b1) / 2) ** 2
        cos2_p, cos2_q = np.cos((b1 + b2) / 2) ** 2, np.cos((b2 - b1) / 2) ** 2
        # sin² and cos² of half the angle between the points, as sums of positive terms to avoid cancellation.
        sin2 = sin2_q * (1 - half_turn) + cos2_p * half_turn
        cos2 = cos2_q * (1 - half_turn) + sin2_p * half_turn
        angle = 2 * np.arctan2(np.sqrt(sin2), np.sqrt(cos2))
        # Both quotients are in [0, 1]. Where they are 0/0 (equal points, antipodes) their factor is 0.
        far = (angle - np.sin(angle)) * _quotient(sin2_p * cos2_q, cos2)
        near = (angle + np.sin(angle)) * _quotient(cos2_p * sin2_q, sin2)
        metres: Floats = _EQUATORIAL_RADIUS * (angle - _FLATTENING / 2 * (far + near))
        return metres

    def box_around(self, x: float, y: float, radius: float) -> Box:
        # A sphere with the smallest radius of curvature gives a lower bound for distances.
        angle = radius * (1 + _DISTANCE_ERROR) / _SMALLEST_RADIUS
        high = math.degrees(angle) + _ROUNDING
        south, north = y - high, y + high
        if south <= -_NEAR_POLE or north >= _NEAR_POLE:
            return Box(-180.0, max(south, -90.0), 180.0, min(north, 90.0))
        wide = math.degrees(math.asin(min(1.0, math.sin(angle) / math.cos(math.radians(y))))) * (1 + 1e-9) + _ROUNDING
        west, east = x - wide, x + wide
        return Box(west + 360 if west <= -180 else west, south, east - 360 if east >= 180 else east, north)


def _quotient(over: Floats, under: Floats) -> Floats:
    zero = np.equal(under, 0)
    return np.where(zero, 0.0, over / np.where(zero, 1.0, under))


@dataclass(frozen=True, slots=True)
class Planar(_ArrayChecks):
    """x and y are metres on a plane."""

    def distance(self, x1: npt.ArrayLike, y1: npt.ArrayLike, x2: npt.ArrayLike, y2: npt.ArrayLike) -> Floats:
        metres: Floats = np.hypot(np.subtract(x2, x1, dtype=np.float64), np.subtract(y2, y1, dtype=np.float64))
        return metres

    def box_around(self, x: float, y: float, radius: float) -> Box:
        reach = radius * (1 + 1e-12)  # exceeds the rounding error
        low, high = (
            [max(-self.x_limit, math.nextafter(c - reach, -math.inf)) for c in (x, y)],
            [min(self.x_limit, math.nextafter(c + reach, math.inf)) for c in (x, y)],
        )
        return Box(*low, *high)


GEOGRAPHIC: Final = Geographic(*astuple(GEOGRAPHIC_LIMITS))
PLANAR: Final = Planar(*astuple(PLANAR_LIMITS))
SPACES: Final[Mapping[str, Space]] = {"geographic": GEOGRAPHIC, "planar": PLANAR}
