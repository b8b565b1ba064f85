"""Plots as PNG files, with matplotlib."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from roamcast.durable import write_atomic

__all__ = ["Curve", "Plot", "save"]


class Curve(NamedTuple):
    """A line for the formula, points for the counted values, a dotted line with the costs that the formula omits."""

    name: str
    x: Sequence[float]
    formula: Sequence[float]
    counted: Sequence[float]
    total: Sequence[float]


class Plot:
    """Draws plots. Imports matplotlib when constructed, because that is slow."""

    def __init__(self) -> None:
        from matplotlib.figure import Figure

        self._figure: Any = Figure

    def draw(self, path: Path, title: str, axes: tuple[str, str], curves: Sequence[Curve]) -> Path:
        """Plot curves on linear axes."""
        figure = self._figure(figsize=(8, 5), layout="constrained")
        plot = figure.subplots()
        for curve in curves:
            (line,) = plot.plot(curve.x, curve.formula, label=curve.name)
            plot.plot(curve.x, curve.counted, "o", color=line.get_color(), markersize=4)
            plot.plot(curve.x, curve.total, ":", color=line.get_color(), linewidth=1)
        full_title = f"{title}\nlines: formula; points: counted; dotted: including costs the formula omits"
        return self._finish(figure, plot, path, full_title, axes)

    def _finish(
        self, figure: Any, plot: Any, path: Path, title: str, axes: tuple[str, str], *, logarithmic: bool = False
    ) -> Path:
        plot.set_title(title)
        plot.set_xlabel(axes[0])
        plot.set_ylabel(axes[1])
        if logarithmic:
            plot.set_xscale("log")
            plot.set_yscale("log")
        else:
            plot.set_ylim(bottom=0)
        plot.grid(alpha=0.3)
        plot.legend()
        return save(figure, path)


def save(figure: Any, path: Path) -> Path:
    """Write a matplotlib figure as PNG, atomically."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    write_atomic(path, picture.getvalue(), durable=False)
    return path
