"""Moving regions: circles around subscribers, indexed by boxes with slack.

The index has a box for each region that contains its circle and some slack. While the circle stays inside, a move only
changes a position in an array; when it leaves, the box is replaced. Candidates are tested against the circle itself,
around the current position, the one at a given offset of the journal, or those at a given time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from roamcast.errors import ConflictError, InputError, NotFoundError
from roamcast.match.index.circles import Extents, boxes_around, room_to_move
from roamcast.match.index.earlier_positions import EarlierPositions
from roamcast.match.index.segments import Arrays, MappedArrays, SegmentFolder
from roamcast.match.port import Events
from roamcast.model import BEFORE_ALL, NO_END
from roamcast.space import Floats, Space

__all__ = ["CircleTest", "MovingRegions", "RegionBoxes"]

Integers = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]

_SLACK: Final = 0.5  # of the radius
_STEPS: Final = 8  # or this many steps as long as the last two, if that is more


class RegionBoxes(NamedTuple):
    """Regions whose box in the index must be replaced: handles, and a row (min_x, min_y, max_x, max_y) for each.

    The box of a region with unknown position is NaN: it contains no point.
    """

    handle: Integers
    box: Floats


# By region, ordered by handle. While a region is within `room` of its anchor, its box contains its circle. `step` is
# how far it moved before it was anchored. Its box reaches back by `reach`, to the earlier positions that counted then;
# that of a `wide` region is much larger because of that.
_REGION: Final = np.dtype(
    [
        ("handle", "i8"),
        ("time", "i8"),
        *((name, "f8") for name in ("x", "y", "radius", "anchor_x", "anchor_y", "room_x", "room_y", "step", "reach")),
        ("wide", "?"),
    ]
)


class MovingRegions:
    """The positions of moving regions and their boxes in the index. Callers check points by the space.

    Versions are saved as files, which `open` and `CircleTest` read.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self._regions: npt.NDArray[Any] = np.empty(0, _REGION)

    @classmethod
    def open(cls, space: Space, folder: Path, version: str) -> Self:
        """Open a version. Raises CorruptionError if its file is missing or damaged."""
        regions = cls(space)
        arrays = SegmentFolder(folder).open(version).arrays
        regions._regions = np.empty(len(arrays["handle"]), _REGION)
        for name in _REGION.names or ():
            regions._regions[name] = arrays[name]
        return regions

    def save(self, folder: Path) -> str:
        """Write a version durably and return its name."""
        return SegmentFolder(folder).write({name: self._regions[name] for name in _REGION.names or ()})

    def copy(self) -> Self:
        """Return an independent copy."""
        other = type(self)(self.space)
        other._regions = self._regions.copy()
        return other

    def __len__(self) -> int:
        return len(self._regions)

    @property
    def handles(self) -> Integers:
        """The handles, ascending."""
        handles: Integers = self._regions["handle"]
        return handles

    @property
    def is_tight(self) -> bool:
        """Whether no box is larger than necessary."""
        return not self._regions["wide"].any()

    def has(self, handle: Integers) -> Truths:
        """Return which of these handles are those of regions."""
        return self._find(handle)[1]

    def positions(self, handle: npt.ArrayLike) -> tuple[Floats, Floats, Integers]:
        """Return x, y (NaN if unknown) and the time of each position. Raises NotFoundError for an unknown handle."""
        rows, regions = self._rows(handle), self._regions
        return regions["x"][rows], regions["y"][rows], regions["time"][rows]

    def add(self, handle: npt.ArrayLike, x: npt.ArrayLike, y: npt.ArrayLike, radius: npt.ArrayLike) -> RegionBoxes:
        """Add regions and return their boxes for the index. Raises ConflictError if a handle is taken.

        The position of a region may be NaN: it contains nothing until it moves. Radii are in metres.
        """
        handles = np.atleast_1d(np.asarray(handle, np.int64))
        new = np.zeros(len(handles), _REGION)
        new["handle"], new["x"], new["y"], new["radius"], new["time"] = handles, x, y, radius, BEFORE_ALL
        if not (new["radius"] >= 0).all():
            raise InputError("a radius is negative or not a number", where="radius", hint="pass metres")
        if self._find(handles)[1].any() or len(np.unique(handles)) < len(handles):
            raise ConflictError("a moving region with this handle exists", where="handle", hint="remove it first")
        regions = np.concatenate([self._regions, new])
        self._regions = regions[np.argsort(regions["handle"])]
        return self._anchor(self._find(handles)[0], np.zeros(len(handles)), np.zeros(len(handles)))

    def remove(self, handle: npt.ArrayLike) -> None:
        """Remove regions. Raises NotFoundError for an unknown handle."""
        self._regions = np.delete(self._regions, self._rows(handle))

    def move(
        self,
        handle: npt.ArrayLike,
        x: npt.ArrayLike,
        y: npt.ArrayLike,
        time: npt.ArrayLike = BEFORE_ALL,
        earlier: EarlierPositions | None = None,
    ) -> RegionBoxes:
        """Move regions and return the boxes to replace. A region may have several positions, in order.

        Until the next call, the box of a region contains its circle at all of these positions, at the one before, and
        at those in `earlier`. Boxes that are much larger than necessary because of that shrink with a later call, even
        if their regions do not move. Raises NotFoundError for an unknown handle, and then changes nothing.
        """
        rows, regions = self._rows(handle), self._regions
        new_x, new_y = (np.atleast_1d(np.asarray(c, np.float64)) for c in (x, y))
        times = np.broadcast_to(np.asarray(time, np.int64), rows.shape)
        if not (np.diff(rows) > 0).all():
            order = np.argsort(rows, kind="stable")
            rows, new_x, new_y, times = rows[order], new_x[order], new_y[order], times[order]
        first = np.flatnonzero(np.diff(rows, prepend=-1))
        last = np.append(first[1:], len(rows))[: len(first)] - 1
        movers = rows[last]
        inside = self._are_inside(rows, new_x, new_y)
        inside = np.logical_and.reduceat(inside, first) if len(first) else inside
        judged = ~inside | regions["wide"][movers]
        step = self._step_lengths(rows, new_x, new_y, first, last, judged)
        still = np.setdiff1d(np.flatnonzero(regions["wide"]), movers, assume_unique=True)
        regions["x"][movers], regions["y"][movers], regions["time"][movers] = new_x[last], new_y[last], times[last]
        concerned, steps = np.concatenate([movers[judged], still]), np.concatenate([step, np.zeros(len(still))])
        reach = np.fmax(steps, self._reach(concerned, earlier))
        has_left = np.concatenate([~inside[judged], np.zeros(len(still), np.bool_)])
        replaced = np.flatnonzero(has_left | (2 * reach <= regions["reach"][concerned]))
        replaced = replaced[np.argsort(concerned[replaced])]
        return self._anchor(concerned[replaced], steps[replaced], reach[replaced])

    def anchor(self, earlier: EarlierPositions) -> RegionBoxes:
        """Give all regions new boxes, which contain their circles at the last and at `earlier` positions."""
        rows = np.arange(len(self))
        return self._anchor(rows, np.zeros(len(rows)), self._reach(rows, earlier))

    def _reach(self, rows: Integers, earlier: EarlierPositions | None) -> Floats:
        """How far the earlier positions of regions are away."""
        regions = self._regions
        if earlier is None or not len(earlier):
            return np.zeros(len(rows))
        return earlier.farthest(self.space, regions["handle"][rows], regions["x"][rows], regions["y"][rows])

    def _step_lengths(
        self, rows: Integers, x: Floats, y: Floats, first: Integers, last: Integers, judged: Truths
    ) -> Floats:
        """Return, for each mover that is `judged`, the largest distance of a former position to the last one."""
        count = (last - first + 1)[judged]
        if not len(count):
            return np.empty(0)
        moves = np.repeat(first[judged] - np.cumsum(count) + count, count) + np.arange(count.sum())
        ends = np.repeat(last[judged], count)
        starts = np.cumsum(count) - count
        regions, movers = self._regions, rows[last[judged]]
        with np.errstate(over="ignore", invalid="ignore"):
            on_the_way = np.maximum.reduceat(self.space.distance(x[ends], y[ends], x[moves], y[moves]), starts)
            before = regions["x"][movers], regions["y"][movers]
            # The former position is NaN if it was unknown.
            return np.fmax(on_the_way, self.space.distance(*before, x[last[judged]], y[last[judged]]))

    def _are_inside(self, rows: Integers, x: Floats, y: Floats) -> Truths:
        """Return whether the boxes in the index contain the circles around these points."""
        regions = self._regions
        with np.errstate(over="ignore"):
            distance = np.abs(x - regions["anchor_x"][rows])
            if self.space.name == "geographic":
                distance = np.minimum(distance, 360.0 - distance)
            inside: Truths = distance <= regions["room_x"][rows]
            inside &= np.abs(y - regions["anchor_y"][rows]) <= regions["room_y"][rows]
        return inside

    def _anchor(self, rows: Integers, step: Floats, reach: Floats) -> RegionBoxes:
        """Give regions a box around their position that covers everything within `reach`, plus slack.

        The slack is for further steps like the last two: a single jump does not make a region fast.
        """
        regions = self._regions
        x, y, radius = (regions[name][rows] for name in ("x", "y", "radius"))
        with np.errstate(over="ignore", invalid="ignore"):
            slack = np.maximum(_SLACK * radius, _STEPS * np.minimum(step, regions["step"][rows]))
            extents = Extents.of(self.space, x, y, radius + reach + slack)
            room = room_to_move(self.space, x, y, radius, reach + slack)
        regions["anchor_x"][rows], regions["anchor_y"][rows] = x, y
        regions["room_x"][rows], regions["room_y"][rows] = room
        regions["step"][rows], regions["reach"][rows], regions["wide"][rows] = step, reach, reach > slack
        return RegionBoxes(regions["handle"][rows], boxes_around(self.space, x, extents))

    def _find(self, handle: Integers) -> tuple[Integers, Truths]:
        return _find_sorted(self._regions["handle"], handle)

    def _rows(self, handle: npt.ArrayLike) -> Integers:
        handles = np.atleast_1d(np.asarray(handle, np.int64))
        rows, known = self._find(handles)
        if not known.all():
            raise NotFoundError(f"no moving region {handles[~known][0]}", where="handle", hint="add it first")
        return rows


class CircleTest:
    """The exact test of moving regions, in one version. Circles are closed.

    A `trail` is a file of where some regions were: `handle`, `since`, `x`, `y`, ordered by handle and since. `since` is
    the offset of the position in the journal; in the first row of each handle it is BEFORE_ALL. `earlier` is a file of
    `EarlierPositions`.
    """

    def __init__(
        self, space: Space, folder: Path, version: str, trail: str | None = None, earlier: str | None = None
    ) -> None:
        self._space = space
        self._version: MappedArrays = SegmentFolder(folder).open(version)
        self._trail: MappedArrays | None = None if trail is None else SegmentFolder(folder).open(trail)
        self._earlier = EarlierPositions.open(folder, earlier)

    def __call__(
        self,
        events: Events,
        event: Integers,
        subscription: Integers,
        offset: Integers | None = None,
        time: Integers | None = None,
    ) -> Truths:
        """Return whether each event is in the circle of the region beside it.

        Uses the last position before `offset` in the journal, or simply the last one if there is no `offset`. If there
        is a `time` that is not NO_END, it uses all positions that count at this time. False for unknown regions and
        positions.
        """
        arrays = self._version.arrays
        row, known = _find_sorted(arrays["handle"], subscription)
        if not known.any():
            return known
        x, y, radius = (arrays[name][row] for name in ("x", "y", "radius"))
        if self._trail is not None and offset is not None:
            _apply_trail(self._trail.arrays, subscription, offset, x, y)
        x_of_event, y_of_event = events.x[event], events.y[event]
        inside: Truths = self._space.distance(x, y, x_of_event, y_of_event) <= radius
        if time is not None and len(self._earlier):
            timed = np.flatnonzero(known & (time < NO_END))
            is_last, key, move = self._earlier.at(subscription[timed], time[timed])
            inside[timed] &= is_last
            pair, earlier = timed[key], self._earlier.arrays
            distance = self._space.distance(earlier["x"][move], earlier["y"][move], x_of_event[pair], y_of_event[pair])
            inside[pair[distance <= radius[pair]]] = True
        return known & inside


def _apply_trail(trail: Arrays, handle: Integers, offset: Integers, x: Floats, y: Floats) -> None:
    """Replace x and y by the positions at each journal `offset`, for handles that the trail has."""
    first, stop = (np.searchsorted(trail["handle"], handle, side) for side in ("left", "right"))
    moved = np.flatnonzero(first < stop)
    low, high, offset = first[moved] + 1, stop[moved], offset[moved]
    while (undecided := low < high).any():
        middle = np.where(undecided, (low + high) // 2, 0)
        before = trail["since"][middle] < offset
        low = np.where(undecided & before, middle + 1, low)
        high = np.where(undecided & ~before, middle, high)
    x[moved], y[moved] = trail["x"][low - 1], trail["y"][low - 1]


def _find_sorted(handles: Integers, wanted: Integers) -> tuple[Integers, Truths]:
    """Return the rows of handles in an ascending array, and which of them are there."""
    if not len(handles):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
    row = np.minimum(np.searchsorted(handles, wanted), len(handles) - 1)
    return row, handles[row] == wanted
