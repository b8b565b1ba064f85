"""Plots of figures 7 to 10 of the CET paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roamcast.lab.experiments.cet.plan import CetSweep
from roamcast.lab.experiments.plots import Plot, save

__all__ = ["SweepPlot"]

_PANELS = {
    "delivery_ratio": "delivery ratio",
    "copies": "copies (by source or keeper)",
    "delay_s": "delay (s)",
}


class SweepPlot(Plot):
    """Plots one panel for each measure."""

    def draw_sweep(self, path: Path, sweep: CetSweep, rows: Sequence[Mapping[str, Any]]) -> Path:
        """Plot means with 95 % intervals."""
        figure = self._figure(figsize=(12, 4), layout="constrained")
        panels = figure.subplots(1, len(_PANELS))
        for panel, (what, label) in zip(panels, _PANELS.items(), strict=True):
            for protocol in sweep.protocols:
                selected = [row for row in rows if row["protocol"] == protocol]
                columns = ([row[name] for row in selected] for name in (sweep.parameter, what, f"{what}_half"))
                x, y, half = columns
                panel.errorbar(x, y, yerr=half, marker="o", markersize=4, capsize=3, label=protocol)
            panel.set_xlabel(sweep.parameter)
            panel.set_ylabel(label)
            panel.set_ylim(bottom=0)
            panel.grid(alpha=0.3)
            panel.legend()
        figure.suptitle(f"Figure {sweep.figure}")
        return save(figure, path)
