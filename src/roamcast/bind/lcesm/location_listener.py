"""The location listener: reports when a subscriber enters or leaves a region of its life-controls.

In the paper a registration is (registerid, entity, location). Registrations with a region of a life-control are kept
here, and their events go to the requirement manager. Registrations of source expressions have the location `*`, every
move: those are the memberships and subscriptions of `NearestSources`, which gets each batch of moves as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.bind.nearest.arrays import grow
from roamcast.bind.nearest.kernels.layout import Int32s, Rows
from roamcast.lacl.syntax import BoxRegion, Circle, Region, Within
from roamcast.model import Box
from roamcast.places import Places
from roamcast.space import Floats, Space, contains

__all__ = ["LocationEvent", "LocationListener", "Zone", "ZoneTable", "zone_of"]

# WGS84: a radian of latitude, or of longitude times the cosine of the latitude, is nowhere shorter than this.
_SHORTEST_RADIUS: Final = 6_335_439.0
# Exceeds the errors of distances near the antipode, and where the square of an angle underflows.
_MARGIN: Final = 1.003
_ABSOLUTE_MARGIN: Final = 0.001  # metres

_NOWHERE: Final = Box(math.nan, math.nan, math.nan, math.nan)
_BOUNDS: Final = np.dtype([(side, "f8") for side in Box._fields])
_REGISTRATION: Final = np.dtype([("entity", "i4"), ("zone", "i4"), ("next", "i4"), ("inside", "?")])


@dataclass(frozen=True, slots=True)
class LocationEvent:
    """The entity of a registration has arrived at the region, or departed from it."""

    subscription: str
    region: Region
    arrived: bool


class LocationListener:
    """Registrations in an array, in a linked list for each entity, so that moves look up only their own.

    Entities are known by handles. An entity without a position is in no region. Row 0 ends a list.
    """

    def __init__(self, space: Space, places: Places) -> None:
        self._zones = ZoneTable(space, places)
        self._rows: dict[str, dict[Region, int]] = {}
        self._subscriptions = [""]  # by row
        self._free: list[int] = []
        self._table: Rows = np.zeros(1, _REGISTRATION)
        self._first: Int32s = np.zeros(0, np.int32)  # by entity

    def register(self, subscription: str, entity: int, regions: Sequence[Region], x: float, y: float) -> None:
        """Listen for an entity that is at (x, y), NaN if its position is not known. Regions must be distinct."""
        zones = self._zones.acquire(regions)
        if not zones:
            return
        rows = [self._new_row(subscription) for _ in zones]
        self._rows[subscription] = dict(zip(regions, rows, strict=True))
        self._first = grow(self._first, entity + 1)
        for row, zone in zip(rows, zones, strict=True):
            self._table[row] = entity, zone, self._first[entity], False
            self._first[entity] = row
        inside = self._zones.contain(np.array(zones), np.full(len(rows), x), np.full(len(rows), y))
        self._table["inside"][rows] = inside

    def cancel(self, subscription: str) -> None:
        """Remove the registrations of a subscription, if it has any."""
        for row in self._rows.pop(subscription, {}).values():
            self._unlink(row)
            self._zones.release(int(self._table["zone"][row]))
            self._free.append(row)

    def is_inside(self, subscription: str, region: Region) -> bool:
        """Whether the entity of this registration is inside the region."""
        row = self._rows.get(subscription, {}).get(region, 0)
        return bool(self._table["inside"][row])

    def move(self, entities: Int32s, x: Floats, y: Floats) -> list[LocationEvent]:
        """Move entities, each at most once. Returns the arrivals and departures."""
        registered = np.flatnonzero(entities < len(self._first))
        rows, movers = self._registrations_of(entities[registered])
        movers = registered[movers]
        inside = self._zones.contain(self._table["zone"][rows], x[movers], y[movers])
        changed = np.flatnonzero(inside != self._table["inside"][rows])
        self._table["inside"][rows] = inside
        events = []
        for number in changed.tolist():
            row = rows[number]
            region = self._zones.region(int(self._table["zone"][row]))
            events.append(LocationEvent(self._subscriptions[row], region, bool(inside[number])))
        return events

    def _registrations_of(self, entities: Int32s) -> tuple[Int32s, npt.NDArray[np.intp]]:
        """All registrations of entities, and for each the index of its entity."""
        row, mover = self._first[entities], np.arange(len(entities))
        rows, movers = [row[:0]], [mover[:0]]
        while len(with_row := np.flatnonzero(row)):
            row, mover = row[with_row], mover[with_row]
            rows.append(row)
            movers.append(mover)
            row = self._table["next"][row]
        return np.concatenate(rows), np.concatenate(movers)

    def _new_row(self, subscription: str) -> int:
        if not self._free:
            self._free.append(len(self._subscriptions))
            self._subscriptions.append("")
            self._table = grow(self._table, len(self._subscriptions))
        row = self._free.pop()
        self._subscriptions[row] = subscription
        return row

    def _unlink(self, row: int) -> None:
        after = self._table["next"]
        entity = self._table["entity"][row]
        if self._first[entity] == row:
            self._first[entity] = after[row]
            return
        before = self._first[entity]
        while after[before] != row:
            before = after[before]
        after[before] = after[row]


class Zone(NamedTuple):
    """A region with a bounding box. `contains` decides for points inside the box; None if all of them are inside."""

    bounds: Box
    contains: Callable[[Floats, Floats], npt.NDArray[np.bool_]] | None


@dataclass(slots=True)
class _ZoneUse:
    region: Region
    zone: Zone
    count: int = 0


def zone_of(region: Region, space: Space, places: Places) -> Zone:
    """The zone of a region. An unknown place contains nothing."""
    match region:
        case BoxRegion(box):
            return Zone(box, None)
        case Within(place) if place not in places.names:
            return Zone(_NOWHERE, None)
        case Within(place):
            return Zone(places.bounds(place), lambda x, y: places.contains(place, x, y))
        case Circle(x, y, radius):
            bounds = _geographic_bounds(x, y, radius) if space.name == "geographic" else _planar_bounds(x, y, radius)
            return Zone(bounds, lambda xs, ys: np.less_equal(space.distance(x, y, xs, ys), radius))
        case _:
            raise ValueError("a region relative to the subscriber has no zone")


class ZoneTable:
    """Zones by number, one for each region in use."""

    def __init__(self, space: Space, places: Places) -> None:
        self._space = space
        self._places = places
        self._numbers: dict[Region, int] = {}
        self._uses: list[_ZoneUse] = []
        self._free: list[int] = []
        self._bounds: Rows = np.zeros(0, _BOUNDS)

    def region(self, number: int) -> Region:
        return self._uses[number].region

    def acquire(self, regions: Iterable[Region]) -> list[int]:
        """The numbers of regions. Release each as often as it was acquired."""
        numbers = []
        for region in regions:
            if region not in self._numbers:
                self._add(region)
            numbers.append(self._numbers[region])
            self._uses[numbers[-1]].count += 1
        return numbers

    def release(self, number: int) -> None:
        use = self._uses[number]
        use.count -= 1
        if not use.count:
            del self._numbers[use.region]
            self._free.append(number)

    def contain(self, numbers: Int32s, x: Floats, y: Floats) -> npt.NDArray[np.bool_]:
        """Whether zones contain points, pair by pair. No zone contains a NaN point."""
        bounds = self._bounds[numbers]
        inside = contains(bounds["min_x"], bounds["min_y"], bounds["max_x"], bounds["max_y"], x, y)
        near = np.flatnonzero(inside)
        near = near[np.argsort(numbers[near], kind="stable")]
        edges = np.flatnonzero(np.diff(numbers[near])) + 1
        for pairs in np.split(near, edges) if len(near) else ():
            zone = self._uses[numbers[pairs[0]]].zone
            if zone.contains is not None:
                inside[pairs] = zone.contains(x[pairs], y[pairs])
        return inside

    def _add(self, region: Region) -> None:
        use = _ZoneUse(region, zone_of(region, self._space, self._places))
        if not self._free:
            self._free.append(len(self._uses))
            self._uses.append(use)
        number = self._numbers[region] = self._free.pop()
        self._bounds = grow(self._bounds, number + 1)
        self._uses[number] = use
        self._bounds[number] = use.zone.bounds


def _planar_bounds(x: float, y: float, radius: float) -> Box:
    """Slightly wider than the circle, for rounding errors."""
    reach = radius + 1e-9 * max(abs(x), abs(y), radius)
    return Box(x - reach, y - reach, x + reach, y + reach)


def _geographic_bounds(x: float, y: float, radius: float) -> Box:
    angle = _MARGIN * (radius + _ABSOLUTE_MARGIN) / _SHORTEST_RADIUS
    south, north = y - math.degrees(angle), y + math.degrees(angle)
    if south <= -90 or north >= 90:
        return Box(-180.0, max(south, -90.0), 180.0, min(north, 90.0))
    # Where the meridians touch the circle, by the sine rule.
    width = math.degrees(math.asin(min(1.0, math.sin(angle) / math.cos(math.radians(y))))) * _MARGIN
    west, east = x - width, x + width
    return Box(west + 360 if west < -180 else west, south, east - 360 if east > 180 else east, north)
