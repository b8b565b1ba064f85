"""Zones: the regions of life-controls, each with a box around it that is cheap to test."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.bind.nearest.forest import grown
from roamcast.bind.nearest.kernels.layout import Integers, Rows
from roamcast.lacl.syntax import BoxRegion, Circle, Region, Within
from roamcast.model import Box as Bounds
from roamcast.places import Places
from roamcast.space import Floats, Space, contains

__all__ = ["Zone", "Zones", "zone_of"]

# WGS84: nowhere is a radian of latitude, or of longitude times the cosine of the latitude, shorter than this.
_SHORTEST_RADIUS: Final = 6_335_439.0
# Distances are off by less: near the antipode, and where the square of an angle is too small for a number.
_MARGIN: Final = 1.003
_HAIR: Final = 0.001  # metres

_NOWHERE: Final = Bounds(math.nan, math.nan, math.nan, math.nan)
_BOUNDS: Final = np.dtype([(side, "f8") for side in Bounds._fields])


class Zone(NamedTuple):
    """`holds` decides for points inside the bounds; None when all of them are in the zone."""

    bounds: Bounds
    holds: Callable[[Floats, Floats], npt.NDArray[np.bool_]] | None


@dataclass(slots=True)
class _Use:
    region: Region
    zone: Zone
    count: int = 0


def zone_of(region: Region, space: Space, places: Places) -> Zone:
    """A place that nobody knows (any more) holds nothing."""
    match region:
        case BoxRegion(box):
            return Zone(box, None)
        case Within(place) if place not in places.names:
            return Zone(_NOWHERE, None)
        case Within(place):
            return Zone(places.bounds(place), lambda x, y: places.contains(place, x, y))
        case Circle(x, y, radius):
            bounds = _on_globe(x, y, radius) if space.name == "geographic" else _on_plane(x, y, radius)
            return Zone(bounds, lambda xs, ys: np.less_equal(space.distance(x, y, xs, ys), radius))
        case _:
            raise ValueError("relative to the subscriber itself")


class Zones:
    """The zones in use, by number: each region once, for as long as somebody uses it."""

    def __init__(self, space: Space, places: Places) -> None:
        self._space = space
        self._places = places
        self._numbers: dict[Region, int] = {}
        self._used: list[_Use] = []
        self._free: list[int] = []
        self._bounds: Rows = np.zeros(0, _BOUNDS)

    def region(self, number: int) -> Region:
        return self._used[number].region

    def take(self, regions: Iterable[Region]) -> list[int]:
        """Their numbers; each is to be given back as often as it was taken."""
        numbers = []
        for region in regions:
            if region not in self._numbers:
                self._add(region)
            numbers.append(self._numbers[region])
            self._used[numbers[-1]].count += 1
        return numbers

    def give_back(self, number: int) -> None:
        use = self._used[number]
        use.count -= 1
        if not use.count:
            del self._numbers[use.region]
            self._free.append(number)

    def change_places(self, places: Places) -> None:
        self._places = places
        for region, number in self._numbers.items():
            zone = self._used[number].zone = zone_of(region, self._space, places)
            self._bounds[number] = zone.bounds

    def hold(self, numbers: Integers, x: Floats, y: Floats) -> npt.NDArray[np.bool_]:
        """Whether zones hold points, pair by pair; none holds a NaN point."""
        bounds = self._bounds[numbers]
        inside = contains(bounds["min_x"], bounds["min_y"], bounds["max_x"], bounds["max_y"], x, y)
        near = np.flatnonzero(inside)
        near = near[np.argsort(numbers[near], kind="stable")]
        edges = np.flatnonzero(np.diff(numbers[near])) + 1
        for pairs in np.split(near, edges) if len(near) else ():
            zone = self._used[numbers[pairs[0]]].zone
            if zone.holds is not None:
                inside[pairs] = zone.holds(x[pairs], y[pairs])
        return inside

    def _add(self, region: Region) -> None:
        use = _Use(region, zone_of(region, self._space, self._places))
        if not self._free:
            self._free.append(len(self._used))
            self._used.append(use)
        number = self._numbers[region] = self._free.pop()
        self._bounds = grown(self._bounds, number + 1)
        self._used[number] = use
        self._bounds[number] = use.zone.bounds


def _on_plane(x: float, y: float, radius: float) -> Bounds:
    """A hair wider than the circle: sums are rounded."""
    reach = radius + 1e-9 * max(abs(x), abs(y), radius)
    return Bounds(x - reach, y - reach, x + reach, y + reach)


def _on_globe(x: float, y: float, radius: float) -> Bounds:
    angle = _MARGIN * (radius + _HAIR) / _SHORTEST_RADIUS
    south, north = y - math.degrees(angle), y + math.degrees(angle)
    if south <= -90 or north >= 90:
        return Bounds(-180.0, max(south, -90.0), 180.0, min(north, 90.0))
    # Where the meridians touch the circle, by the sine rule.
    width = math.degrees(math.asin(min(1.0, math.sin(angle) / math.cos(math.radians(y))))) * _MARGIN
    west, east = x - width, x + width
    return Bounds(west + 360 if west < -180 else west, south, east - 360 if east > 180 else east, north)
