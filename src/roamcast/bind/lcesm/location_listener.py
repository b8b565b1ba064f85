"""The location listener: who is told when an entity arrives at a place or leaves it.

A registration is (registerid, entity, location). With a subscription and a region of its life-control it is kept
here, and its events go to the requirement manager. With a source expression its location is `*`, every move counts:
those are the memberships and subscriptions of the watch, which gets each batch of moves whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from roamcast.bind.lcesm.zones import Zones
from roamcast.bind.nearest.forest import grown
from roamcast.bind.nearest.kernels.layout import Integers, Rows
from roamcast.lacl.syntax import Region
from roamcast.places import Places
from roamcast.space import Floats, Space

__all__ = ["Listener", "LocationEvent"]


@dataclass(frozen=True, slots=True)
class LocationEvent:
    """The entity of a registration has arrived at the region, or departed from it."""

    subscription: str
    region: Region
    arrived: bool


_REGISTRATION: Final = np.dtype([("entity", "i4"), ("zone", "i4"), ("next", "i4"), ("inside", "?")])


class Listener:
    """Registrations in an array: those of an entity are a chain, so that a batch of moves finds its own and no others.

    Entities are known by handles. Of whom it is not known where it is, is in no region. Row 0 ends a chain.
    """

    def __init__(self, space: Space, places: Places) -> None:
        self._zones = Zones(space, places)
        self._rows: dict[str, dict[Region, int]] = {}
        self._subscriptions = [""]  # by row
        self._free: list[int] = []
        self._table: Rows = np.zeros(1, _REGISTRATION)
        self._first: Integers = np.zeros(0, np.int32)  # by entity

    def register(self, subscription: str, entity: int, regions: Sequence[Region], x: float, y: float) -> None:
        """Listen for an entity that is at (x, y) now; NaN when that is not known. Each region is given once."""
        zones = self._zones.take(regions)
        if not zones:
            return
        rows = [self._new_row(subscription) for _ in zones]
        self._rows[subscription] = dict(zip(regions, rows, strict=True))
        self._first = grown(self._first, entity + 1)
        for row, zone in zip(rows, zones, strict=True):
            self._table[row] = entity, zone, self._first[entity], False
            self._first[entity] = row
        self._table["inside"][rows] = self._zones.hold(np.array(zones), np.full(len(rows), x), np.full(len(rows), y))

    def cancel(self, subscription: str) -> None:
        """Nothing happens if it has no registrations."""
        for row in self._rows.pop(subscription, {}).values():
            self._unlink(row)
            self._zones.give_back(int(self._table["zone"][row]))
            self._free.append(row)

    def inside(self, subscription: str, region: Region) -> bool:
        """Whether the entity of this registration is inside the region."""
        row = self._rows.get(subscription, {}).get(region, 0)
        return bool(self._table["inside"][row])

    def move(self, entities: Integers, x: Floats, y: Floats) -> list[LocationEvent]:
        """Entities, each once, are here now: the arrivals and departures that brings."""
        heard = np.flatnonzero(entities < len(self._first))
        rows, at = self._chained(entities[heard])
        return self._compare(rows, x[heard[at]], y[heard[at]])

    def change_places(self, places: Places, where: Callable[[Integers], tuple[Floats, Floats]]) -> list[LocationEvent]:
        """Places have other borders now. `where` says where entities are."""
        self._zones.change_places(places)
        rows = np.array([row for regions in self._rows.values() for row in regions.values()], np.int32)
        return self._compare(rows, *where(self._table["entity"][rows]))

    def _compare(self, rows: Integers, x: Floats, y: Floats) -> list[LocationEvent]:
        inside = self._zones.hold(self._table["zone"][rows], x, y)
        changed = np.flatnonzero(inside != self._table["inside"][rows])
        self._table["inside"][rows] = inside
        events = []
        for at in changed.tolist():
            row = rows[at]
            region = self._zones.region(int(self._table["zone"][row]))
            events.append(LocationEvent(self._subscriptions[row], region, bool(inside[at])))
        return events

    def _chained(self, entities: Integers) -> tuple[Integers, npt.NDArray[np.intp]]:
        """All registrations of entities, and of which of them each is."""
        row, at = self._first[entities], np.arange(len(entities))
        rows, ats = [row[:0]], [at[:0]]
        while len(on := np.flatnonzero(row)):
            row, at = row[on], at[on]
            rows.append(row)
            ats.append(at)
            row = self._table["next"][row]
        return np.concatenate(rows), np.concatenate(ats)

    def _new_row(self, subscription: str) -> int:
        if not self._free:
            self._free.append(len(self._subscriptions))
            self._subscriptions.append("")
            self._table = grown(self._table, len(self._subscriptions))
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
