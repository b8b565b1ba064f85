"""Means of independent runs, with 95 % intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student  # type: ignore[import-untyped]

from roamcast.space import Floats

__all__ = ["Estimate", "Mean", "estimate", "mean_of", "paired"]


class Estimate(NamedTuple):
    """The mean over runs, and half of its 95 % interval; of one run nothing is known of that, and it is 0."""

    mean: Floats
    half: Floats


def estimate(runs: npt.ArrayLike) -> Estimate:
    """One run per row. By Student's t."""
    values = np.asarray(runs, np.float64)
    count = len(values)
    if count < 2:
        return Estimate(values.mean(axis=0), np.zeros_like(values[0]))
    half: Floats = student.ppf(0.975, count - 1) * values.std(axis=0, ddof=1) / np.sqrt(count)
    return Estimate(values.mean(axis=0), half)


class Mean(NamedTuple):
    """`half` is half the width of the 95 % interval (Student's t)."""

    mean: float
    half: float
    runs: int

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.half:.2g}"


def mean_of(values: Sequence[float]) -> Mean:
    """Of no run at all it is 0."""
    if not len(values):
        return Mean(0.0, 0.0, 0)
    mean, half = estimate(values)
    return Mean(float(mean), float(half), len(values))


def paired(values: Sequence[float], others: Sequence[float]) -> Mean:
    """Of the differences of runs of the same seed."""
    return mean_of([a - b for a, b in zip(values, others, strict=True)])
