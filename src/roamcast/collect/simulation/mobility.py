"""How mules move: legs of straight walk and pause, one after the other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Legs", "random_waypoint"]

Floats = npt.NDArray[np.float64]


class Legs(NamedTuple):
    """Ordered by mule, then time. A mule leaves (x0, y0) at `start`, is at (x1, y1) from `arrive` on, until `end`.

    A leg begins where and when the one before it ends. Its cells are known to the mule when it sets out.
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
    """Uniform start, uniform destinations, a speed drawn for each leg, a pause after it. Ends with the duration."""
    columns: list[list[Floats]] = [[] for _ in range(8)]
    here = rng.uniform(0, side, (mules, 2))
    now = np.zeros(mules)
    walking = np.arange(mules)
    while len(walking):
        there = rng.uniform(0, side, (mules, 2))
        pace = rng.uniform(*speed, mules)
        pause = rng.uniform(0, pause_max, mules)
        with np.errstate(divide="ignore"):
            arrive = now + np.hypot(*(there - here).T) / pace
        end = arrive + pause
        for column, values in zip(
            columns,
            (np.arange(mules), now, arrive, np.minimum(end, duration), *here.T, *there.T),
            strict=True,
        ):
            column.append(values[walking])
        here, now = there, end
        walking = np.flatnonzero(now < duration)
    mule, *rest = (np.concatenate(column) if column else np.zeros(0) for column in columns)
    order = np.lexsort((rest[0], mule))
    return Legs(mule[order].astype(np.int32), *(column[order] for column in rest))
