"""Means of independent runs, with 95 % intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats  # type: ignore[import-untyped]

__all__ = ["Mean", "mean_of", "paired"]


class Mean(NamedTuple):
    """`half` is half the width of the 95 % interval (Student's t)."""

    mean: float
    half: float
    runs: int

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.half:.2g}"


def mean_of(values: Sequence[float]) -> Mean:
    count = len(values)
    if count < 2:
        return Mean(float(np.mean(values)) if count else 0.0, 0.0, count)
    spread = float(np.std(values, ddof=1)) / count**0.5
    return Mean(float(np.mean(values)), float(stats.t.ppf(0.975, count - 1)) * spread, count)


def paired(values: Sequence[float], others: Sequence[float]) -> Mean:
    """Of the differences of runs of the same seed."""
    return mean_of([a - b for a, b in zip(values, others, strict=True)])
