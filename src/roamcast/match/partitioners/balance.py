"""DRt-Cluster's decision which categories to move to another worker."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.match.partitioners.correlation import CategoryPairs

__all__ = ["CategoryMove", "choose_moves"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class CategoryMove(NamedTuple):
    """A category moves to another worker."""

    category: int
    target: int


def choose_moves(
    load: Floats, size: Integers, worker: Integers, workers: int, pairs: CategoryPairs, factor: float
) -> list[CategoryMove]:
    """Choose categories to move away from overloaded workers, those with at least `factor` / `workers` of all load.

    Starts with the most loaded worker. Takes its categories in the order of DiviPara and moves each to the worker with
    which it correlates most (of equals the least loaded), if that one stays below the load of the source. Categories of
    size 0 have no worker.
    """
    worker = worker.copy()
    moves: list[CategoryMove] = []
    live = np.flatnonzero(size)
    loads = np.bincount(worker[live], load[live], minlength=workers).astype(np.float64)
    total = loads.sum()
    first = np.searchsorted(pairs.one, np.arange(len(size) + 1))
    for source in np.argsort(-loads, kind="stable").tolist():
        sign = np.where(worker[pairs.one] == worker[pairs.other], -pairs.points, pairs.points)
        divi = np.bincount(pairs.one, sign, minlength=len(size)) / np.maximum(size, 1)
        here = live[worker[live] == source]
        for category in here[np.argsort(-divi[here], kind="stable")].tolist():
            if total == 0 or loads[source] < factor / workers * total:
                break
            fits = loads + load[category] < loads[source]
            fits[source] = False
            if not fits.any():
                continue
            own = slice(first[category], first[category + 1])
            toward = np.bincount(worker[pairs.other[own]], pairs.points[own], minlength=workers)
            target = min(np.flatnonzero(fits).tolist(), key=lambda w: (-toward[w], loads[w], w))
            worker[category] = target
            loads[source] -= load[category]
            loads[target] += load[category]
            moves.append(CategoryMove(category, target))
    return moves
