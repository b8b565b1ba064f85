"""Figures as PNG, with matplotlib."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from roamcast.durable import write_atomic

__all__ = ["Curve", "Plot", "save"]


class Curve(NamedTuple):
    """A line by the formula, points as the same was counted, a dotted line with what the formula leaves out."""

    name: str
    x: Sequence[float]
    formula: Sequence[float]
    counted: Sequence[float]
    everything: Sequence[float]


class Plot:
    """Draws. Importing matplotlib takes a while, which only those who draw should wait for."""

    def __init__(self) -> None:
        from matplotlib.figure import Figure

        self._figure: Any = Figure

    def draw(self, path: Path, title: str, axes: tuple[str, str], curves: Sequence[Curve]) -> Path:
        figure = self._figure(figsize=(8, 5), layout="constrained")
        plot = figure.subplots()
        for curve in curves:
            (line,) = plot.plot(curve.x, curve.formula, label=curve.name)
            plot.plot(curve.x, curve.counted, "o", color=line.get_color(), markersize=4)
            plot.plot(curve.x, curve.everything, ":", color=line.get_color(), linewidth=1)
        told = f"{title}\nlines: formula; points: counted; dotted: with what the formula leaves out"
        return self._finished(figure, plot, path, told, axes)

    def _finished(
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
    """Write a figure of matplotlib as PNG, whole or not at all."""
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=120)
    write_atomic(path, picture.getvalue(), durable=False)
    return path
