"""Regions that move: circles around subscribers, indexed by boxes with slack.

A region is in the index with a box that holds its circle and more. While the circle stays within, a move only changes
a position in an array; when it leaves, the box is made anew. What the index finds is decided by the circle itself,
around the position that is current, or was at a given place of the order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from roamcast.errors import ConflictError, InputError, NotFoundError
from roamcast.match.index.circles import Extents, boxes_around, room_to_move
from roamcast.match.index.segments import Arrays, Opened, SegmentFolder
from roamcast.match.port import Events
from roamcast.space import Floats, Space

__all__ = ["NEVER", "CircleTest", "MovingRegions", "RegionBoxes"]

Integers = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]

_SLACK: Final = 0.5  # of the radius
_STEPS: Final = 8  # or so many steps like the last two, if that is more
NEVER: Final = np.iinfo(np.int64).min
"""Before all times and places."""


class RegionBoxes(NamedTuple):
    """Regions whose box in the index must be replaced: handles, and a row (min_x, min_y, max_x, max_y) for each.

    The box of a region whose position is not known is not a number: it holds no point.
    """

    handle: Integers
    box: Floats


# By region, ordered by handle. Within `room` of its anchor a region's circle is held by its box in the index. `step` is
# how far it went before it was anchored; the box of a `wide` one reaches back there, and is far larger than it need be.
_REGION: Final = np.dtype(
    [
        ("handle", "i8"),
        ("time", "i8"),
        *((name, "f8") for name in ("x", "y", "radius", "anchor_x", "anchor_y", "room_x", "room_y", "step")),
        ("wide", "?"),
    ]
)


class MovingRegions:
    """Where moving regions are, and what the index knows of it. Points have been checked by the space.

    A version of it is a file, from which it is opened again, and which `CircleTest` reads.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self._regions: npt.NDArray[Any] = np.empty(0, _REGION)

    @classmethod
    def open(cls, space: Space, folder: Path, version: str) -> Self:
        """Raises CorruptionError for a file that is missing or damaged."""
        regions = cls(space)
        arrays = SegmentFolder(folder).open(version).arrays
        regions._regions = np.empty(len(arrays["handle"]), _REGION)
        for name in _REGION.names or ():
            regions._regions[name] = arrays[name]
        return regions

    def save(self, folder: Path) -> str:
        """Write a version, durably; returns its name."""
        return SegmentFolder(folder).write({name: self._regions[name] for name in _REGION.names or ()})

    def copy(self) -> Self:
        """Another, that changes without this one."""
        other = type(self)(self.space)
        other._regions = self._regions.copy()
        return other

    def __len__(self) -> int:
        return len(self._regions)

    @property
    def handles(self) -> Integers:
        """Ascending."""
        handles: Integers = self._regions["handle"]
        return handles

    @property
    def is_settled(self) -> bool:
        """Whether no box is far larger than it need be."""
        return not self._regions["wide"].any()

    def has(self, handle: Integers) -> Truths:
        """Whether these are handles of regions."""
        return self._places(handle)[1]

    def where(self, handle: npt.ArrayLike) -> tuple[Floats, Floats, Integers]:
        """x and y, not a number where it is not known, and since when. Raises NotFoundError."""
        places, regions = self._known(handle), self._regions
        return regions["x"][places], regions["y"][places], regions["time"][places]

    def add(self, handle: npt.ArrayLike, x: npt.ArrayLike, y: npt.ArrayLike, radius: npt.ArrayLike) -> RegionBoxes:
        """New regions; their boxes are to be put into the index. Raises ConflictError if a handle is taken.

        Where a region is that is nowhere yet is not a number: it holds nothing until it moves.
        """
        handles = np.atleast_1d(np.asarray(handle, np.int64))
        new = np.zeros(len(handles), _REGION)
        new["handle"], new["x"], new["y"], new["radius"], new["time"] = handles, x, y, radius, NEVER
        if not (new["radius"] >= 0).all():
            raise InputError("a radius is below 0 or not a number", where="radius", hint="give metres")
        if self._places(handles)[1].any() or len(np.unique(handles)) < len(handles):
            raise ConflictError("a moving region has this handle", where="handle", hint="remove that one first")
        regions = np.concatenate([self._regions, new])
        self._regions = regions[np.argsort(regions["handle"])]
        return self._anchored(self._places(handles)[0], np.zeros(len(handles)))

    def remove(self, handle: npt.ArrayLike) -> None:
        """Raises NotFoundError for a handle of no region."""
        self._regions = np.delete(self._regions, self._known(handle))

    def move(
        self, handle: npt.ArrayLike, x: npt.ArrayLike, y: npt.ArrayLike, time: npt.ArrayLike = NEVER
    ) -> RegionBoxes:
        """Regions go to these places, one after another where a region has several; the last is where it is then.

        Until the next call the box of each holds its circle at all of these places and where it was before. Boxes that
        had to reach far for that are made smaller now, also of regions that do not move. Raises NotFoundError for a
        handle of no region, and changes nothing.
        """
        places, regions = self._known(handle), self._regions
        new_x, new_y = (np.atleast_1d(np.asarray(c, np.float64)) for c in (x, y))
        times = np.broadcast_to(np.asarray(time, np.int64), places.shape)
        if not (np.diff(places) > 0).all():
            order = np.argsort(places, kind="stable")
            places, new_x, new_y, times = places[order], new_x[order], new_y[order], times[order]
        first = np.flatnonzero(np.diff(places, prepend=-1))
        last = np.append(first[1:], len(places))[: len(first)] - 1
        movers = places[last]
        held = self._within(places, new_x, new_y)
        held = np.logical_and.reduceat(held, first) if len(first) else held
        left = ~held | regions["wide"][movers]
        step = self._steps(places, new_x, new_y, first, last, left)
        idle = np.setdiff1d(np.flatnonzero(regions["wide"]), movers, assume_unique=True)
        regions["x"][movers], regions["y"][movers], regions["time"][movers] = new_x[last], new_y[last], times[last]
        gone, steps = np.concatenate([movers[left], idle]), np.concatenate([step, np.zeros(len(idle))])
        order = np.argsort(gone)
        return self._anchored(gone[order], steps[order])

    def _steps(self, places: Integers, x: Floats, y: Floats, first: Integers, last: Integers, left: Truths) -> Floats:
        """For each region that `left`: how far where it was before, or on its way, is from where it is in the end."""
        count = (last - first + 1)[left]
        if not len(count):
            return np.empty(0)
        rows = np.repeat(first[left] - np.cumsum(count) + count, count) + np.arange(count.sum())
        ends = np.repeat(last[left], count)
        starts = np.cumsum(count) - count
        regions, movers = self._regions, places[last[left]]
        with np.errstate(over="ignore", invalid="ignore"):
            on_its_way = np.maximum.reduceat(self.space.distance(x[ends], y[ends], x[rows], y[rows]), starts)
            before = regions["x"][movers], regions["y"][movers]
            # Where it was before is not a number if it was nowhere.
            return np.fmax(on_its_way, self.space.distance(*before, x[last[left]], y[last[left]]))

    def _within(self, places: Integers, x: Floats, y: Floats) -> Truths:
        """Whether the boxes in the index hold the circles around these points."""
        regions = self._regions
        with np.errstate(over="ignore"):
            away = np.abs(x - regions["anchor_x"][places])
            if self.space.name == "geographic":
                away = np.minimum(away, 360.0 - away)
            held: Truths = away <= regions["room_x"][places]
            held &= np.abs(y - regions["anchor_y"][places]) <= regions["room_y"][places]
        return held

    def _anchored(self, places: Integers, step: Floats) -> RegionBoxes:
        """Give regions a box around where they are that holds all within `step`, and some slack.

        Slack is for more of the same: a single jump does not make a region fast.
        """
        regions = self._regions
        x, y, radius = (regions[name][places] for name in ("x", "y", "radius"))
        with np.errstate(over="ignore", invalid="ignore"):
            slack = np.maximum(_SLACK * radius, _STEPS * np.minimum(step, regions["step"][places]))
            extents = Extents.of(self.space, x, y, radius + step + slack)
            room = room_to_move(self.space, x, y, radius, step + slack)
        regions["anchor_x"][places], regions["anchor_y"][places] = x, y
        regions["room_x"][places], regions["room_y"][places] = room
        regions["step"][places], regions["wide"][places] = step, step > slack
        return RegionBoxes(regions["handle"][places], boxes_around(self.space, x, extents))

    def _places(self, handle: Integers) -> tuple[Integers, Truths]:
        return _found(self._regions["handle"], handle)

    def _known(self, handle: npt.ArrayLike) -> Integers:
        handles = np.atleast_1d(np.asarray(handle, np.int64))
        places, known = self._places(handles)
        if not known.all():
            raise NotFoundError(f"no moving region {handles[~known][0]}", where="handle", hint="add it first")
        return places


class CircleTest:
    """The exact test of moving regions, in one version. Borders belong to circles.

    A `trail` is a file that tells where some regions were by and by: `handle`, `since`, `x`, `y`, ordered by handle and
    since; the first row of each handle is since NEVER.
    """

    def __init__(self, space: Space, folder: Path, version: str, trail: str | None = None) -> None:
        self._space = space
        self._opened: Opened = SegmentFolder(folder).open(version)
        self._trail: Opened | None = None if trail is None else SegmentFolder(folder).open(trail)

    def __call__(self, events: Events, event: Integers, subscription: Integers, at: Integers | None = None) -> Truths:
        """Whether each event is in the circle beside it, by the last position since before `at`; without, the last.

        False for what is no moving region, or is nowhere.
        """
        arrays = self._opened.arrays
        place, known = _found(arrays["handle"], subscription)
        if not known.any():
            return known
        x, y, radius = (arrays[name][place] for name in ("x", "y", "radius"))
        if self._trail is not None and at is not None:
            _overlay(self._trail.arrays, subscription, at, x, y)
        inside: Truths = self._space.distance(x, y, events.x[event], events.y[event]) <= radius
        return known & inside


def _overlay(trail: Arrays, handle: Integers, at: Integers, x: Floats, y: Floats) -> None:
    """Where a trail tells of a handle, put into x and y where that was at the time."""
    first, stop = (np.searchsorted(trail["handle"], handle, side) for side in ("left", "right"))
    told = np.flatnonzero(first < stop)
    low, high, at = first[told] + 1, stop[told], at[told]
    while (undecided := low < high).any():
        middle = np.where(undecided, (low + high) // 2, 0)
        before = trail["since"][middle] < at
        low = np.where(undecided & before, middle + 1, low)
        high = np.where(undecided & ~before, middle, high)
    x[told], y[told] = trail["x"][low - 1], trail["y"][low - 1]


def _found(handles: Integers, wanted: Integers) -> tuple[Integers, Truths]:
    """Places in ascending handles, and whether what is there is what was wanted."""
    if not len(handles):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    place = np.minimum(np.searchsorted(handles, wanted), len(handles) - 1)
    return place, handles[place] == wanted
