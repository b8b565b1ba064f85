"""The room of LCESM's experiment: sensors in even rows, and listeners on random curves between them."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from roamcast.space import Floats

__all__ = ["CHANGE", "SPACING", "Listeners", "Sensors"]

Integers = npt.NDArray[np.int64]

SPACING = 4.0
"""Metres between neighbouring sensors; the paper names no size. In metres, nothing depends on it."""
CHANGE = 2.0
"""Seconds after which a listener has another nearest sensor (section 6.2)."""
_MARGIN = 0.1  # of a border, at each end, where nobody crosses: at a corner the next sensor would be in doubt


class Sensors:
    """So many sensors, each in the middle of a square of its own; the room is as near to a square as they allow.

    With a `speed`, in metres per second, each goes straight on from there in a direction of its own, and is thrown back
    by the walls.
    """

    def __init__(self, count: int, rng: np.random.Generator, speed: float = 0.0) -> None:
        self.rows = next(rows for rows in range(math.isqrt(count), 0, -1) if count % rows == 0)
        self.columns = count // self.rows
        self.speed = speed
        each = np.arange(count)
        self._x = (each % self.columns + 0.5) * SPACING
        self._y = (each // self.columns + 0.5) * SPACING
        turn = rng.uniform(0, 2 * np.pi, count)
        self._dx, self._dy = speed * np.cos(turn), speed * np.sin(turn)

    def __len__(self) -> int:
        return len(self._x)

    def at(self, time: float) -> tuple[Floats, Floats]:
        """Where they are after so many seconds."""
        return (
            _thrown_back(self._x + self._dx * time, self.columns * SPACING),
            _thrown_back(self._y + self._dy * time, self.rows * SPACING),
        )


class Listeners:
    """Each crosses from the square of one sensor to a neighbour's every CHANGE seconds, at a moment of its own.

    Which neighbour, where on the border, and by which curve in between is left to chance. The curve has two ends on the
    border of a square and is drawn towards a point inside: it never leaves the square in between.
    """

    def __init__(self, count: int, sensors: Sensors, rng: np.random.Generator) -> None:
        self._columns, self._rows = sensors.columns, sensors.rows
        self._rng = rng
        self._phase = rng.uniform(0, CHANGE, count)
        self._leg = np.zeros(count, np.int64)
        cell = rng.integers(0, len(sensors), count)
        self._cell = np.stack([cell % self._columns, cell // self._columns])
        self._next = self._cell.copy()
        self._exit = self._inside(self._cell)
        self._entry, self._bend = self._exit.copy(), self._exit.copy()
        self._turn(np.arange(count))

    def at(self, time: float) -> tuple[Floats, Floats]:
        """Where they are after so many seconds. Times do not go back, nor on by more than CHANGE at once."""
        legs = (time - self._phase) / CHANGE + 1
        leg = np.floor(legs).astype(np.int64)
        self._turn(np.flatnonzero(leg > self._leg))
        self._leg = leg
        u = legs - leg
        x, y = (1 - u) ** 2 * self._entry + 2 * u * (1 - u) * self._bend + u**2 * self._exit
        return x, y

    def _turn(self, who: Integers) -> None:
        """These enter the square they were heading for, and head for the next."""
        cell = self._cell[:, who] = self._next[:, who]
        self._entry[:, who] = self._exit[:, who]
        self._bend[:, who] = self._inside(cell)
        way = self._way(cell)
        self._next[:, who] = cell + way
        along = self._rng.uniform(_MARGIN - 0.5, 0.5 - _MARGIN, len(who))
        self._exit[:, who] = (cell + 0.5 + way / 2 + along * (way == 0)) * SPACING

    def _way(self, cell: Integers) -> Integers:
        """One of the four, each as likely as the others that stay in the room."""
        ways = np.array([(1, 0), (-1, 0), (0, 1), (0, -1)])
        there = cell.T[:, None, :] + ways
        stays = ((there >= 0) & (there < (self._columns, self._rows))).all(axis=2)
        chosen: Integers = ways[np.where(stays, self._rng.random(stays.shape), -1.0).argmax(axis=1)].T
        return chosen

    def _inside(self, cell: Integers) -> Floats:
        inside: Floats = (cell + self._rng.uniform(_MARGIN, 1 - _MARGIN, cell.shape)) * SPACING
        return inside


def _thrown_back(way: Floats, length: float) -> Floats:
    back: Floats = length - np.abs(way % (2 * length) - length)
    return back
