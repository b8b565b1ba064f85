"""Figures 7 to 10 of the CET paper as PNG, with matplotlib."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roamcast.durable import write_whole
from roamcast.experiments.cet_plan import Sweep

__all__ = ["SweepPlot"]

_PANELS = {"delivery_ratio": "delivery ratio", "copies": "copies (sends by source or keeper)", "delay_s": "delay (s)"}


class SweepPlot:
    """Draws. Importing matplotlib takes a while, which only those who draw should wait for."""

    def __init__(self) -> None:
        from matplotlib.figure import Figure

        self._figure: Any = Figure

    def draw(self, path: Path, sweep: Sweep, rows: Sequence[Mapping[str, Any]]) -> Path:
        """One panel for each measure, means with their 95 % intervals."""
        figure = self._figure(figsize=(12, 4), layout="constrained")
        panels = figure.subplots(1, len(_PANELS))
        for panel, (what, label) in zip(panels, _PANELS.items(), strict=True):
            for protocol in sweep.protocols:
                mine = [row for row in rows if row["protocol"] == protocol]
                columns = ([row[name] for row in mine] for name in (sweep.parameter, what, f"{what}_half"))
                x, y, half = columns
                panel.errorbar(x, y, yerr=half, marker="o", markersize=4, capsize=3, label=protocol)
            panel.set_xlabel(sweep.parameter)
            panel.set_ylabel(label)
            panel.set_ylim(bottom=0)
            panel.grid(alpha=0.3)
            panel.legend()
        figure.suptitle(f"Figure {sweep.figure}")
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=120)
        write_whole(path, picture.getvalue(), durable=False)
        return path
