"""DRt-Cluster's judgements: which categories merge, and which go to another worker, by how they correlate."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Judged", "Relocation", "judge", "relieve"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]


class Judged(NamedTuple):
    """By category: its correlation with others of its own worker (`cs`), with those of other workers (`cd`), and the
    quotient, MergeJudgePara; NaN where it is not considered."""

    cs: Floats
    cd: Floats
    quotient: Floats


class Relocation(NamedTuple):
    """A category goes to another worker."""

    category: int
    target: int


def judge(matrix: Floats, worker: Integers, live: Truths, partners: Truths) -> Judged:
    """`partners[a, b]`: merged, the two would have room. Infinite where all correlation is with the own worker.

    One that is alone on its worker is not considered: that worker would have nothing to do.
    """
    own = worker[:, np.newaxis] == worker
    cs, cd = (matrix * own).sum(axis=1), (matrix * ~own).sum(axis=1)
    considered = live & (partners & own & live).any(axis=1) & ((cs > 0) | (cd > 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        return Judged(cs, cd, np.where(considered, cs / cd, np.nan))


def relieve(
    load: Floats, size: Integers, worker: Integers, workers: int, matrix: Floats, factor: float
) -> list[Relocation]:
    """Categories leave overloaded workers: those with at least `factor` / `workers` of all load, the most loaded first.

    In the order of DiviPara, each to the worker with whose categories it correlates most (of equals the least loaded),
    if that stays below the one it leaves.
    """
    worker = worker.copy()
    moved: list[Relocation] = []
    total, live = load.sum(), size > 0
    for source in np.argsort(-_of_workers(load, worker, workers), kind="stable").tolist():
        own = worker[:, np.newaxis] == worker
        divisor = np.maximum(size, 1)
        divi = ((matrix * ~own).sum(axis=1) - (matrix * own).sum(axis=1)) / divisor
        here = np.flatnonzero(live & (worker == source))
        for category in here[np.argsort(-divi[here], kind="stable")].tolist():
            loads = _of_workers(load, worker, workers)
            if total == 0 or loads[source] < factor / workers * total:
                break
            toward = np.bincount(worker[live], matrix[category][live], minlength=workers)
            fits = loads + load[category] < loads[source]
            fits[source] = False
            if not fits.any():
                continue
            target = min(np.flatnonzero(fits).tolist(), key=lambda w: (-toward[w], loads[w], w))
            worker[category] = target
            moved.append(Relocation(category, target))
    return moved


def _of_workers(load: Floats, worker: Integers, workers: int) -> Floats:
    there = worker >= 0
    return np.bincount(worker[there], load[there], minlength=workers).astype(np.float64)
