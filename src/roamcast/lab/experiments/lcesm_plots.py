"""Pictures of means with their 95 % intervals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from roamcast.lab.experiments.plots import Plot

__all__ = ["Band", "BandPlot"]


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
        told = f"{title}\nlines: means; shaded: 95 % intervals"
        return self._finished(figure, plot, path, told, axes, logarithmic=logarithmic)
