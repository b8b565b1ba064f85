"""Cells: squares of a coarse grid. One stands for the region of a subscription where only demand is decided.

On level k, cells are 2 × 2ᵏ wide and begin every 2ᵏ, so they overlap: a box that is less than 2ᵏ wide and high lies in
one cell, and a point in four.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import groupby
from math import frexp
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.model import Box

__all__ = ["LEVELS", "Cell", "SourcePositions"]

LEVELS: Final = range(-30, 61)
"""A larger region counts as everywhere."""

_BITS: Final = 50  # of a column or row, so that floats have the bounds of a cell exactly

_Squares = npt.NDArray[np.complex128]
"""Column and row of squares of a grid, as complex numbers: these can be sorted together."""


class Cell(NamedTuple):
    level: int
    column: int
    row: int

    @classmethod
    def around(cls, box: Box) -> Cell | None:
        """The smallest cell that contains a box; None for one that crosses the antimeridian, or is too large or far."""
        if box.min_x > box.max_x:
            return None
        side = max(box.max_x - box.min_x, box.max_y - box.min_y)
        exact = frexp(max(map(abs, box)))[1] - _BITS
        level = max(frexp(side)[1] if side else exact, exact, LEVELS.start)
        return cls.at(box.min_x, box.min_y, level) if level in LEVELS else None

    @classmethod
    def at(cls, x: float, y: float, level: int) -> Cell:
        """The last cell that begins at or before a point."""
        return cls(level, int(x // 2.0**level), int(y // 2.0**level))

    @classmethod
    def parse(cls, text: str) -> Cell | None:
        """The cell of `str`; None for the empty text."""
        return cls(*map(int, text.split("/"))) if text else None

    def __str__(self) -> str:
        return f"{self.level}/{self.column}/{self.row}"

    def ancestor(self, level: int) -> Cell:
        """A cell of a higher level that contains this one."""
        steps = level - self.level
        return Cell(level, self.column >> steps, self.row >> steps)

    @property
    def box(self) -> Box:
        """The cell itself. Points on its upper bounds are not in it."""
        step = 2.0**self.level
        return Box(self.column * step, self.row * step, (self.column + 2) * step, (self.row + 2) * step)

    def with_point(self) -> Iterator[Cell]:
        """The cells of this level that contain the points for which `at` returns this one."""
        for column in (self.column - 1, self.column):
            for row in (self.row - 1, self.row):
                yield Cell(self.level, column, row)


class SourcePositions:
    """The positions of sources, to find those in a cell. Not thread-safe."""

    def __init__(self) -> None:
        self._slots: dict[str, int] = {}
        self._ids: list[str] = []
        self._points: npt.NDArray[np.float64] = np.empty((2, 16))
        self._unknown: set[str] = set()
        self._sorted: dict[int, tuple[_Squares, npt.NDArray[np.intp]]] = {}  # by level, until a position changes

    def put(self, source: str, point: tuple[float, float] | None) -> None:
        """Set where a source is; None if that is not known."""
        self.remove(source)
        self._sorted.clear()
        if point is None:
            self._unknown.add(source)
            return
        slot = self._slots[source] = len(self._ids)
        self._ids.append(source)
        if slot == self._points.shape[1]:
            self._points = np.concatenate([self._points, np.empty_like(self._points)], axis=1)
        self._points[:, slot] = point

    def remove(self, source: str) -> None:
        self._unknown.discard(source)
        slot = self._slots.pop(source, None)
        if slot is None:
            return
        self._sorted.clear()
        last = self._ids.pop()
        if last != source:
            self._ids[slot], self._slots[last] = last, slot
            self._points[:, slot] = self._points[:, len(self._ids)]

    def inside(self, cells: Collection[Cell | None]) -> list[str]:
        """The sources that can be in one of these cells: those whose position is not known are among them.

        None is everywhere.
        """
        if None in cells:
            return [*self._unknown, *self._ids]
        is_inside = np.zeros(len(self._ids), np.bool_)
        for level, same_level in groupby(sorted(cell for cell in cells if cell is not None), lambda cell: cell.level):
            squares, slots = self._squares(level)
            columns, rows = np.array([cell[1:] for cell in same_level], np.float64).T
            covered = np.unique([columns + x + 1j * (rows + y) for x in (0, 1) for y in (0, 1)])
            first, stop = (np.searchsorted(squares, covered, side) for side in ("left", "right"))
            found = first < stop
            for begin, end in zip(first[found].tolist(), stop[found].tolist(), strict=True):
                is_inside[slots[begin:end]] = True
        return [*self._unknown, *(self._ids[slot] for slot in np.flatnonzero(is_inside).tolist())]

    def _squares(self, level: int) -> tuple[_Squares, npt.NDArray[np.intp]]:
        """The squares of the grid that the points are in, sorted; and the slots of the points in this order."""
        if level not in self._sorted:
            column, row = np.floor(self._points[:, : len(self._ids)] / 2.0**level)
            squares: _Squares = column + 1j * row
            slots = np.argsort(squares)
            self._sorted[level] = squares[slots], slots
        return self._sorted[level]
