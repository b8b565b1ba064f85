"""The kd-tree partitioner of Chen et al. (ICDE 2017): workers own parts of the plane, boxes on borders are copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from roamcast.match.index.rows import IndexRows, sample_evenly
from roamcast.match.index.segments import Arrays
from roamcast.match.partitioners.samples import SAMPLE_SIZE, SlidingWindow
from roamcast.match.port import Events, Matches
from roamcast.match.routing.features import hash_events
from roamcast.match.routing.partitioner import PlacementChanges, RoutedEvents
from roamcast.match.routing.placement import Placement

__all__ = ["KdLeaves", "KdTree", "cell_centres", "point_cells"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Masks = npt.NDArray[np.uint64]
Truths = npt.NDArray[np.bool_]

TOLERANCE: Final = 1.1
_CELL_BITS: Final = 16  # of each axis
_OCTAVES: Final = 32  # of coordinates, on either side of 0


def point_cells(x: Floats, y: Floats) -> Integers:
    """Number the cells of a grid in which points are, to count points by cell.

    Axes are logarithmic: the grid covers all coordinates and is fine where they are small.
    """
    columns = ((0.5 + np.sign(c) * np.log2(1 + np.abs(c)) / (2 * _OCTAVES)) * (1 << _CELL_BITS) for c in (x, y))
    column, row = (np.clip(np.floor(c), 0, (1 << _CELL_BITS) - 1).astype(np.int64) for c in columns)
    cells: Integers = column << _CELL_BITS | row
    return cells


def cell_centres(cells: Integers) -> Floats:
    """Return the points in the middle of cells."""
    numbers = np.stack([cells >> _CELL_BITS, cells & ((1 << _CELL_BITS) - 1)], axis=1)
    scaled = ((numbers + 0.5) / (1 << _CELL_BITS) - 0.5) * (2 * _OCTAVES)
    centres: Floats = np.sign(scaled) * (np.exp2(np.abs(scaled)) - 1)
    return centres


class KdLeaves(NamedTuple):
    """Worker i owns the points with min_x <= x < max_x and min_y <= y < max_y of row i. Together they own the plane.

    The row of a worker that owns nothing is NaN.
    """

    box: Floats

    @classmethod
    def whole(cls, workers: int) -> Self:
        """Give the whole plane to the first worker."""
        box = np.full((workers, 4), np.nan)
        box[0] = (-np.inf, -np.inf, np.inf, np.inf)
        return cls(box)

    @classmethod
    def divide(cls, point: Floats, weight: Floats, workers: int) -> Self:
        """Divide the plane so that each worker has about the same weight of these points."""
        box = np.full((workers, 4), (-np.inf, -np.inf, np.inf, np.inf))
        _divide(point, weight, box)
        return cls(box)

    def to_lists(self) -> list[list[float | None]]:
        """Return the boxes as JSON: None for an infinite side. Only for leaves that all own something."""
        return [[side if np.isfinite(side) else None for side in box] for box in self.box.tolist()]

    @classmethod
    def of_lists(cls, boxes: Sequence[Sequence[float | None]]) -> Self:
        infinite = (-np.inf, -np.inf, np.inf, np.inf)
        box = [[end if side is None else side for side, end in zip(one, infinite, strict=True)] for one in boxes]
        return cls(np.array(box, np.float64))

    def touch(self, box: Floats) -> Truths:
        """Return whether each box (row) touches the part of each worker (column). An empty box touches none."""
        min_x, min_y, max_x, max_y = (side[:, np.newaxis] for side in box.T)
        here_x = np.where(
            min_x <= max_x,
            (min_x <= self.box[:, 2]) & (max_x >= self.box[:, 0]),
            (min_x <= self.box[:, 2]) | (max_x >= self.box[:, 0]),
        )
        here: Truths = here_x & (min_y <= self.box[:, 3]) & (max_y >= self.box[:, 1])
        return here

    def masks(self, box: Floats) -> Masks:
        """Return the workers whose part of the plane each box touches; the first worker if there is none."""
        bits = np.uint64(1) << np.arange(len(self.box), dtype=np.uint64)
        masks: Masks = (self.touch(box) * bits).sum(axis=1, dtype=np.uint64)
        return np.where(masks == 0, np.uint64(1), masks)

    def workers_of(self, x: Floats, y: Floats) -> Integers:
        """Return the worker that owns each point; -1 for NaN."""
        column_x, column_y = x[:, np.newaxis], y[:, np.newaxis]
        inside_x = (self.box[:, 0] <= column_x) & ((column_x < self.box[:, 2]) | np.isposinf(self.box[:, 2]))
        inside_y = (self.box[:, 1] <= column_y) & ((column_y < self.box[:, 3]) | np.isposinf(self.box[:, 3]))
        inside = inside_x & inside_y & ~(np.isnan(column_x) | np.isnan(column_y))
        return np.where(inside.any(axis=1), inside.argmax(axis=1), -1)


def _divide(point: Floats, weight: Floats, box: Floats) -> None:
    """Divide a box among the rows of `box`, which are all equal."""
    workers = len(box)
    if workers == 1:
        return
    half = workers // 2
    spread = np.ptp(point, axis=0) if len(point) else np.zeros(2)
    axis = int(spread[1] > spread[0])
    order = np.argsort(point[:, axis], kind="stable")
    total = np.cumsum(weight[order])
    at = int(np.searchsorted(total, total[-1] * half / workers)) if len(total) else 0
    cut = float(point[order[min(at, len(order) - 1)], axis]) if len(order) else 0.0
    box[:half, axis + 2], box[half:, axis] = cut, cut
    low = point[:, axis] < cut
    _divide(point[low], weight[low], box[:half])
    _divide(point[~low], weight[~low], box[half:])


class KdTree:
    """Sends each event to the worker that owns its point. Rebuilds the tree when the load is uneven."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.placement = Placement()
        self.leaves = KdLeaves.whole(workers)
        self._window = SlidingWindow(3)  # x, y and the cost of an event

    def add(self, rows: IndexRows) -> PlacementChanges:
        return self.placement.add(rows, self.placement.choose_terms(rows), self.leaves.masks(rows.box))

    def remove(self, handles: Integers) -> PlacementChanges:
        return self.placement.remove(handles)

    def route(self, events: Events) -> RoutedEvents:
        worker = self.leaves.workers_of(np.asarray(events.x), np.asarray(events.y))
        event = np.flatnonzero(worker >= 0)
        return RoutedEvents(event, worker[event])

    def observe(self, events: Events, matches: Matches) -> None:
        hashed = hash_events(events)
        self.placement.observe(hashed)
        cost = 1.0 + np.bincount(self.placement.candidates(hashed).event, minlength=len(events.x))
        rows = np.stack([events.x, events.y, cost], axis=1)
        rows = rows[np.isfinite(rows).all(axis=1)]
        self._window.add(rows[sample_evenly(len(rows), SAMPLE_SIZE)])

    def balance(self) -> PlacementChanges:
        x, y, cost = self._window.rows.T
        load = np.bincount(self.leaves.workers_of(x, y), cost, minlength=self.workers) if len(x) else np.zeros(1)
        if load.max() <= TOLERANCE * load.mean():
            return PlacementChanges.concatenate([])
        self.leaves = KdLeaves.divide(np.stack([x, y], axis=1), cost, self.workers)
        self._window.clear()
        rows = self.placement.live
        return self.placement.assign(rows, self.leaves.masks(self.placement.box[rows]))

    def arrays(self) -> Arrays:
        return {**self.placement.arrays(), **self._window.arrays(), "leaves": self.leaves.box}

    @classmethod
    def of_arrays(cls, workers: int, arrays: Arrays) -> Self:
        self = cls(workers)
        self.placement, self._window = Placement.of_arrays(arrays), SlidingWindow.of_arrays(arrays)
        self.leaves = KdLeaves(arrays["leaves"].copy())
        return self
