"""Means of several runs and their 95 % intervals, and pictures of them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student  # type: ignore[import-untyped]

from roamcast.durable import write_whole
from roamcast.experiments.plots import Plot
from roamcast.space import Floats

__all__ = ["Band", "BandPlot", "Estimate", "estimate"]


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


class Band(NamedTuple):
    """A line, and an interval around it that is shaded."""

    name: str
    x: Sequence[float]
    mean: Sequence[float]
    half: Sequence[float]


class BandPlot(Plot):
    """Draws bands."""

    def draw_bands(
        self, path: Path, title: str, axes: tuple[str, str], bands: Sequence[Band], *, logarithmic: bool = False
    ) -> Path:
        figure = self._figure(figsize=(8, 5), layout="constrained")
        plot = figure.subplots()
        for band in bands:
            mean, half = np.asarray(band.mean), np.asarray(band.half)
            (line,) = plot.plot(band.x, mean, marker="o" if len(mean) < 20 else None, markersize=4, label=band.name)
            plot.fill_between(band.x, mean - half, mean + half, color=line.get_color(), alpha=0.25, linewidth=0)
        plot.set_title(f"{title}\nlines: means; shaded: 95 % intervals")
        plot.set_xlabel(axes[0])
        plot.set_ylabel(axes[1])
        if logarithmic:
            plot.set_xscale("log")
            plot.set_yscale("log")
        else:
            plot.set_ylim(bottom=0)
        plot.grid(alpha=0.3)
        plot.legend()
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=120)
        write_whole(path, picture.getvalue(), durable=False)
        return path
