"""Means of independent runs with 95 % confidence intervals, and CSV tables."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student  # type: ignore[import-untyped]

from roamcast.durable import write_atomic
from roamcast.space import Floats

__all__ = ["Estimate", "Mean", "estimate", "mean_of", "paired", "write_csv"]


class Estimate(NamedTuple):
    """The mean over runs and the half-width of its 95 % interval, which is 0 for a single run."""

    mean: Floats
    half: Floats


def estimate(runs: npt.ArrayLike) -> Estimate:
    """Estimate means by Student's t. `runs` has one run per row."""
    values = np.asarray(runs, np.float64)
    count = len(values)
    if count < 2:
        return Estimate(values.mean(axis=0), np.zeros_like(values[0]))
    half: Floats = student.ppf(0.975, count - 1) * values.std(axis=0, ddof=1) / np.sqrt(count)
    return Estimate(values.mean(axis=0), half)


class Mean(NamedTuple):
    """A mean; `half` is the half-width of its 95 % interval (Student's t)."""

    mean: float
    half: float
    runs: int

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.half:.2g}"


def mean_of(values: Sequence[float]) -> Mean:
    """The mean of values; 0 without values."""
    if not len(values):
        return Mean(0.0, 0.0, 0)
    mean, half = estimate(values)
    return Mean(float(mean), float(half), len(values))


def paired(values: Sequence[float], others: Sequence[float]) -> Mean:
    """The mean difference of paired runs."""
    return mean_of([a - b for a, b in zip(values, others, strict=True)])


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows as CSV with the columns of the first row; floats have six digits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: f"{value:.6g}" if isinstance(value, float) else value for name, value in row.items()})
    write_atomic(path, text.getvalue().encode(), durable=False)
    return path
