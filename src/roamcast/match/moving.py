"""Regions that move: circles around subscribers, indexed by boxes with slack.

A region is in the index with a box that holds its circle and more. While the circle stays within, a move only changes
a position in an array; when it leaves, the box is made anew. What the index finds is decided by the circle itself,
around the position that is current.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from roamcast.errors import ConflictError, InputError, NotFoundError
from roamcast.match.circles import Extents, boxes_around, room_to_move
from roamcast.match.port import Events
from roamcast.match.segments import Opened, SegmentFolder
from roamcast.space import Floats, Space

__all__ = ["CircleTest", "Moved", "MovingRegions"]

Integers = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]

_SLACK: Final = 0.5  # of the radius
_STEPS: Final = 8  # or so many steps like the last one, if that is more


class Moved(NamedTuple):
    """Regions whose box in the index must be replaced: handles, and a row (min_x, min_y, max_x, max_y) for each."""

    handle: Integers
    box: Floats


# By region, ordered by handle. Within `room` of its anchor a region's circle is held by its box in the index.
_REGION: Final = np.dtype(
    [("handle", "i8"), *((name, "f8") for name in ("x", "y", "radius", "anchor_x", "anchor_y", "room_x", "room_y"))]
)
_SAVED: Final = ("handle", "x", "y", "radius")


class MovingRegions:
    """Where moving regions are, and what the index knows of it. Points have been checked by the space.

    A version of it is a file, from which it is opened again, and which `CircleTest` reads. What is opened again has no
    slack left: each region gets a new box when it moves first.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._regions: npt.NDArray[Any] = np.empty(0, _REGION)

    @classmethod
    def open(cls, space: Space, folder: Path, version: str) -> Self:
        """Raises CorruptionError for a file that is missing or damaged."""
        regions = cls(space)
        arrays = SegmentFolder(folder).open(version).arrays
        regions._regions = np.zeros(len(arrays["handle"]), _REGION)
        for name in _SAVED:
            regions._regions[name] = arrays[name]
        regions._regions["room_x"] = -1.0
        return regions

    def save(self, folder: Path) -> str:
        """Write a version, durably; returns its name."""
        return SegmentFolder(folder).write({name: self._regions[name] for name in _SAVED})

    def __len__(self) -> int:
        return len(self._regions)

    def add(self, handle: npt.ArrayLike, x: npt.ArrayLike, y: npt.ArrayLike, radius: npt.ArrayLike) -> Moved:
        """New regions; their boxes are to be put into the index. Raises ConflictError for a handle that is taken."""
        handles = np.atleast_1d(np.asarray(handle, np.int64))
        new = np.empty(len(handles), _REGION)
        new["handle"], new["x"], new["y"], new["radius"] = handles, x, y, radius
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

    def move(self, handle: npt.ArrayLike, x: npt.ArrayLike, y: npt.ArrayLike) -> Moved:
        """Regions are here now; of several positions of one the last counts.

        Raises NotFoundError for a handle of no region, and changes nothing.
        """
        places, regions = self._known(handle), self._regions
        new_x, new_y = (np.atleast_1d(np.asarray(c, np.float64)) for c in (x, y))
        if not (np.diff(places) > 0).all():
            last = len(places) - 1 - np.unique(places[::-1], return_index=True)[1]
            places, new_x, new_y = places[last], new_x[last], new_y[last]
        left = ~self._within(places, new_x, new_y)
        gone = places[left]
        step = self._space.distance(regions["x"][gone], regions["y"][gone], new_x[left], new_y[left])
        regions["x"][places], regions["y"][places] = new_x, new_y
        return self._anchored(gone, step)

    def _within(self, places: Integers, x: Floats, y: Floats) -> Truths:
        """Whether the boxes in the index hold the circles around these points."""
        regions = self._regions
        with np.errstate(over="ignore"):
            away = np.abs(x - regions["anchor_x"][places])
            if self._space.name == "geographic":
                away = np.minimum(away, 360.0 - away)
            held: Truths = away <= regions["room_x"][places]
            held &= np.abs(y - regions["anchor_y"][places]) <= regions["room_y"][places]
        return held

    def _anchored(self, places: Integers, step: Floats) -> Moved:
        """Give regions a box around where they are."""
        regions = self._regions
        x, y, radius = (regions[name][places] for name in ("x", "y", "radius"))
        with np.errstate(over="ignore"):
            slack = np.maximum(_SLACK * radius, _STEPS * step)
            extents = Extents.of(self._space, x, y, radius + slack)
        regions["anchor_x"][places], regions["anchor_y"][places] = x, y
        regions["room_x"][places], regions["room_y"][places] = room_to_move(self._space, x, y, radius, slack)
        return Moved(regions["handle"][places], boxes_around(self._space, x, extents))

    def _places(self, handle: Integers) -> tuple[Integers, Truths]:
        return _found(self._regions["handle"], handle)

    def _known(self, handle: npt.ArrayLike) -> Integers:
        handles = np.atleast_1d(np.asarray(handle, np.int64))
        places, known = self._places(handles)
        if not known.all():
            raise NotFoundError(f"no moving region {handles[~known][0]}", where="handle", hint="add it first")
        return places


class CircleTest:
    """The exact test of moving regions, in one version. Borders belong to circles."""

    def __init__(self, space: Space, folder: Path, version: str) -> None:
        self._space = space
        self._opened: Opened = SegmentFolder(folder).open(version)

    def knows(self, subscription: Integers) -> Truths:
        """Whether subscriptions are moving regions of this version; others are for somebody else to decide."""
        return _found(self._opened.arrays["handle"], subscription)[1]

    def __call__(self, events: Events, event: Integers, subscription: Integers) -> Truths:
        """False for what is no moving region."""
        arrays = self._opened.arrays
        place, known = _found(arrays["handle"], subscription)
        if not known.any():
            return known
        x, y, radius = (arrays[name][place] for name in ("x", "y", "radius"))
        return known & (self._space.distance(x, y, events.x[event], events.y[event]) <= radius)


def _found(handles: Integers, wanted: Integers) -> tuple[Integers, Truths]:
    """Places in ascending handles, and whether what is there is what was wanted."""
    if not len(handles):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    place = np.minimum(np.searchsorted(handles, wanted), len(handles) - 1)
    return place, handles[place] == wanted
