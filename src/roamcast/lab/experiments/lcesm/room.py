"""The room of the LCESM experiment: sensors on a grid, and listeners on random curves between them."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from roamcast.space import Floats

__all__ = ["CHANGE", "SPACING", "SensorGrid", "WalkingListeners"]

Integers = npt.NDArray[np.int64]

SPACING = 4.0
"""Metres between neighbouring sensors. The paper gives none; no result depends on it."""
CHANGE = 2.0
"""Seconds after which a listener has another nearest sensor (section 6.2)."""
_MARGIN = 0.1  # part of a border at each end where nobody crosses: at a corner the next sensor would be ambiguous


class SensorGrid:
    """Sensors in the centres of equal squares, in a room that is as square as their number allows.

    With a `speed` in metres per second each moves straight in a random direction and is reflected by the walls.
    """

    def __init__(self, count: int, rng: np.random.Generator, speed: float = 0.0) -> None:
        self.rows = next(rows for rows in range(math.isqrt(count), 0, -1) if count % rows == 0)
        self.columns = count // self.rows
        self.speed = speed
        each = np.arange(count)
        self._x = (each % self.columns + 0.5) * SPACING
        self._y = (each // self.columns + 0.5) * SPACING
        angle = rng.uniform(0, 2 * np.pi, count)
        self._dx, self._dy = speed * np.cos(angle), speed * np.sin(angle)

    def __len__(self) -> int:
        return len(self._x)

    def at(self, time: float) -> tuple[Floats, Floats]:
        """Positions after `time` seconds."""
        return (
            _reflect(self._x + self._dx * time, self.columns * SPACING),
            _reflect(self._y + self._dy * time, self.rows * SPACING),
        )


class WalkingListeners:
    """Listeners that cross from the square of one sensor to a neighbouring one every CHANGE seconds.

    The phase, the neighbour, the point on the border and the curve in between are random. The curve is a quadratic
    Bézier curve with both ends on the border of a square and its control point inside, so it stays in the square.
    """

    def __init__(self, count: int, sensors: SensorGrid, rng: np.random.Generator) -> None:
        self._columns, self._rows = sensors.columns, sensors.rows
        self._rng = rng
        self._phase = rng.uniform(0, CHANGE, count)
        self._leg = np.zeros(count, np.int64)
        cell = rng.integers(0, len(sensors), count)
        self._cell = np.stack([cell % self._columns, cell // self._columns])
        self._next = self._cell.copy()
        self._exit = self._random_point(self._cell)
        self._entry, self._bend = self._exit.copy(), self._exit.copy()
        self._enter_next(np.arange(count))

    def at(self, time: float) -> tuple[Floats, Floats]:
        """Positions after `time` seconds. Times must not decrease, nor increase by more than CHANGE at once."""
        legs = (time - self._phase) / CHANGE + 1
        leg = np.floor(legs).astype(np.int64)
        self._enter_next(np.flatnonzero(leg > self._leg))
        self._leg = leg
        u = legs - leg
        x, y = (1 - u) ** 2 * self._entry + 2 * u * (1 - u) * self._bend + u**2 * self._exit
        return x, y

    def _enter_next(self, listeners: Integers) -> None:
        """Let listeners enter their next square, and choose the one after it."""
        cell = self._cell[:, listeners] = self._next[:, listeners]
        self._entry[:, listeners] = self._exit[:, listeners]
        self._bend[:, listeners] = self._random_point(cell)
        direction = self._direction(cell)
        self._next[:, listeners] = cell + direction
        along = self._rng.uniform(_MARGIN - 0.5, 0.5 - _MARGIN, len(listeners))
        self._exit[:, listeners] = (cell + 0.5 + direction / 2 + along * (direction == 0)) * SPACING

    def _direction(self, cell: Integers) -> Integers:
        """One of the four directions that stay in the room, with equal probability."""
        directions = np.array([(1, 0), (-1, 0), (0, 1), (0, -1)])
        there = cell.T[:, None, :] + directions
        stays = ((there >= 0) & (there < (self._columns, self._rows))).all(axis=2)
        chosen: Integers = directions[np.where(stays, self._rng.random(stays.shape), -1.0).argmax(axis=1)].T
        return chosen

    def _random_point(self, cell: Integers) -> Floats:
        point: Floats = (cell + self._rng.uniform(_MARGIN, 1 - _MARGIN, cell.shape)) * SPACING
        return point


def _reflect(distance: Floats, length: float) -> Floats:
    back: Floats = length - np.abs(distance % (2 * length) - length)
    return back
