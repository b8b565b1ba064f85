"""DRt-Cluster's decisions by correlation: which categories to merge, and which to move to another worker."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["CategoryMove", "MergeScores", "choose_moves", "score_merges"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]


class MergeScores(NamedTuple):
    """By category: its correlation with others of the same worker (`cs`), with those of other workers (`cd`), and
    their quotient, MergeJudgePara; NaN if the category is not considered."""

    cs: Floats
    cd: Floats
    quotient: Floats


class CategoryMove(NamedTuple):
    """A category moves to another worker."""

    category: int
    target: int


def score_merges(matrix: Floats, worker: Integers, live: Truths, partners: Truths) -> MergeScores:
    """Compute MergeJudgePara. It is infinite if a category only correlates with others of its worker.

    `partners[a, b]`: a and b together do not exceed the capacity of a category. A category that is alone on its worker
    is not considered, because the worker would have nothing left to do.
    """
    same = worker[:, np.newaxis] == worker
    cs, cd = (matrix * same).sum(axis=1), (matrix * ~same).sum(axis=1)
    considered = live & (partners & same & live).any(axis=1) & ((cs > 0) | (cd > 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        return MergeScores(cs, cd, np.where(considered, cs / cd, np.nan))


def choose_moves(
    load: Floats, size: Integers, worker: Integers, workers: int, matrix: Floats, factor: float
) -> list[CategoryMove]:
    """Choose categories to move away from overloaded workers, those with at least `factor` / `workers` of all load.

    Starts with the most loaded worker. Takes its categories in the order of DiviPara and moves each to the worker with
    which it correlates most (of equals the least loaded), if that one stays below the load of the source.
    """
    worker = worker.copy()
    moves: list[CategoryMove] = []
    total, live = load.sum(), size > 0
    for source in np.argsort(-_worker_loads(load, worker, workers), kind="stable").tolist():
        same = worker[:, np.newaxis] == worker
        divi = ((matrix * ~same).sum(axis=1) - (matrix * same).sum(axis=1)) / np.maximum(size, 1)
        here = np.flatnonzero(live & (worker == source))
        for category in here[np.argsort(-divi[here], kind="stable")].tolist():
            loads = _worker_loads(load, worker, workers)
            if total == 0 or loads[source] < factor / workers * total:
                break
            toward = np.bincount(worker[live], matrix[category][live], minlength=workers)
            fits = loads + load[category] < loads[source]
            fits[source] = False
            if not fits.any():
                continue
            target = min(np.flatnonzero(fits).tolist(), key=lambda w: (-toward[w], loads[w], w))
            worker[category] = target
            moves.append(CategoryMove(category, target))
    return moves


def _worker_loads(load: Floats, worker: Integers, workers: int) -> Floats:
    placed = worker >= 0
    return np.bincount(worker[placed], load[placed], minlength=workers).astype(np.float64)
