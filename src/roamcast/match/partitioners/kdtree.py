"""The kd-tree of Chen et al. (ICDE 2017): space is divided among the workers, where boxes overlap they are copied."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from roamcast.match.index.rows import IndexRows
from roamcast.match.index.segments import Arrays
from roamcast.match.partitioners.window import Window, sampled
from roamcast.match.port import Events, Matches
from roamcast.match.routing.features import hashed_events
from roamcast.match.routing.partitioner import Moves, Routed
from roamcast.match.routing.placement import Placement

__all__ = ["KdTree"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Masks = npt.NDArray[np.uint64]

TOLERANCE: Final = 1.1


class Leaves(NamedTuple):
    """Worker i has the points with min_x <= x < max_x and min_y <= y < max_y of row i: together all of the plane.

    NaN for a worker that has none.
    """

    box: Floats

    @classmethod
    def whole(cls, workers: int) -> Self:
        """All of it is the first worker's."""
        box = np.full((workers, 4), np.nan)
        box[0] = (-np.inf, -np.inf, np.inf, np.inf)
        return cls(box)

    @classmethod
    def divided(cls, point: Floats, weight: Floats, workers: int) -> Self:
        """So that each has about the same weight of these points."""
        box = np.full((workers, 4), (-np.inf, -np.inf, np.inf, np.inf))
        _divide(point, weight, box)
        return cls(box)

    def masks(self, box: Floats) -> Masks:
        """The workers whose part of the plane each box reaches into; the first, where it holds no point."""
        min_x, min_y, max_x, max_y = (side[:, np.newaxis] for side in box.T)
        here_x = np.where(
            min_x <= max_x,
            (min_x <= self.box[:, 2]) & (max_x >= self.box[:, 0]),
            (min_x <= self.box[:, 2]) | (max_x >= self.box[:, 0]),
        )
        here = here_x & (min_y <= self.box[:, 3]) & (max_y >= self.box[:, 1])
        bits = np.uint64(1) << np.arange(len(self.box), dtype=np.uint64)
        masks: Masks = (here * bits).sum(axis=1, dtype=np.uint64)
        return np.where(masks == 0, np.uint64(1), masks)

    def workers_of(self, x: Floats, y: Floats) -> Integers:
        """Whose part a point is in; -1 for what is no point."""
        column_x, column_y = x[:, np.newaxis], y[:, np.newaxis]
        inside_x = (self.box[:, 0] <= column_x) & ((column_x < self.box[:, 2]) | np.isposinf(self.box[:, 2]))
        inside_y = (self.box[:, 1] <= column_y) & ((column_y < self.box[:, 3]) | np.isposinf(self.box[:, 3]))
        inside = inside_x & inside_y & ~(np.isnan(column_x) | np.isnan(column_y))
        return np.where(inside.any(axis=1), inside.argmax(axis=1), -1)


def _divide(point: Floats, weight: Floats, box: Floats) -> None:
    """Give the rows of `box`, which are all the same, parts of it."""
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
    """Every event is one message, to the worker of its point. The tree is made anew where the load is uneven."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.placement = Placement()
        self.leaves = Leaves.whole(workers)
        self._window = Window(3)  # x, y, and what the event cost

    def add(self, rows: IndexRows) -> Moves:
        return self.placement.add(rows, self.placement.choose_terms(rows), self.leaves.masks(rows.box))

    def remove(self, handles: Integers) -> Moves:
        return self.placement.remove(handles)

    def route(self, events: Events) -> Routed:
        worker = self.leaves.workers_of(np.asarray(events.x), np.asarray(events.y))
        there = np.flatnonzero(worker >= 0)
        return Routed(there, worker[there])

    def observe(self, events: Events, matches: Matches) -> None:
        hashed = hashed_events(events)
        self.placement.see(hashed)
        cost = 1.0 + np.bincount(self.placement.admitted(hashed).event, minlength=len(events.x))
        rows = np.stack([events.x, events.y, cost], axis=1)
        rows = rows[np.isfinite(rows).all(axis=1)]
        self._window.put(rows[sampled(len(rows))])

    def balance(self) -> Moves:
        x, y, cost = self._window.rows.T
        load = np.bincount(self.leaves.workers_of(x, y), cost, minlength=self.workers) if len(x) else np.zeros(1)
        if load.max() <= TOLERANCE * load.mean():
            return Moves.joined([])
        self.leaves = Leaves.divided(np.stack([x, y], axis=1), cost, self.workers)
        self._window.forget()
        rows = self.placement.live
        return self.placement.assign(rows, self.leaves.masks(self.placement.box[rows]))

    def arrays(self) -> Arrays:
        return {**self.placement.arrays(), **self._window.arrays(), "leaves": self.leaves.box}

    @classmethod
    def of_arrays(cls, workers: int, arrays: Arrays) -> Self:
        self = cls(workers)
        self.placement, self._window = Placement.of_arrays(arrays), Window.of_arrays(arrays)
        self.leaves = Leaves(arrays["leaves"].copy())
        return self
