"""Movement of mules: a sequence of legs, each a straight walk and a pause."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Legs", "random_waypoint"]

Floats = npt.NDArray[np.float64]


class Legs(NamedTuple):
    """Legs, ordered by mule and time. A mule leaves (x0, y0) at `start` and is at (x1, y1) from `arrive` to `end`.

    A leg begins where and when the previous one ends. A mule knows the cells of a leg when it starts.
    """

    mule: npt.NDArray[np.int32]
    start: Floats
    arrive: Floats
    end: Floats
    x0: Floats
    y0: Floats
    x1: Floats
    y1: Floats


def random_waypoint(
    rng: np.random.Generator, mules: int, side: float, duration: float, *, speed: tuple[float, float], pause_max: float
) -> Legs:
    """Draw random-waypoint legs: uniform start and destinations, a random speed and pause for each leg."""
    columns: list[list[Floats]] = [[] for _ in range(8)]
    position = rng.uniform(0, side, (mules, 2))
    now = np.zeros(mules)
    walking = np.arange(mules)
    while len(walking):
        destination = rng.uniform(0, side, (mules, 2))
        pace = rng.uniform(*speed, mules)
        pause = rng.uniform(0, pause_max, mules)
        with np.errstate(divide="ignore"):
            arrive = now + np.hypot(*(destination - position).T) / pace
        end = arrive + pause
        for column, values in zip(
            columns,
            (np.arange(mules), now, arrive, np.minimum(end, duration), *position.T, *destination.T),
            strict=True,
        ):
            column.append(values[walking])
        position, now = destination, end
        walking = np.flatnonzero(now < duration)
    mule, *rest = (np.concatenate(column) if column else np.zeros(0) for column in columns)
    order = np.lexsort((rest[0], mule))
    return Legs(mule[order].astype(np.int32), *(column[order] for column in rest))
