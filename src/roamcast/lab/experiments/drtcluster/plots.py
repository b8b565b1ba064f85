"""Plots of the DRt-Cluster experiment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from roamcast.lab.experiments.drtcluster.throughput import THROUGHPUTS
from roamcast.lab.experiments.plots import Plot

__all__ = ["DrtClusterPlots"]


class DrtClusterPlots(Plot):
    """Plots of all figures."""

    def draw_all(self, folder: Path, figures: Mapping[str, Any]) -> list[Path]:
        """Draw all figures and return their files."""
        fourth, seventh = figures["figure4"], figures["figure7"]
        drawn = [
            self._bars(
                folder / "drtcluster-figure4.png", "Categories that an event is sent to", "categories per event",
                list(fourth), {what: [row[what] for row in fourth.values()] for what in ("training", "after")},
            ),
            self._bars(
                folder / "drtcluster-figure4-weak.png", "The same, by rectangle and any shared term",
                "categories per event", list(fourth),
                {what: [row[f"{what}_weak"] for row in fourth.values()] for what in ("training", "after")},
            ),
            *(
                self._lines(
                    folder / f"drtcluster-figure5{suffix}{'' if terms == 'words' else '-few-values'}.png",
                    f"Subscriptions {what} by merging, terms: {terms}", ("tenth of the training", "subscriptions"),
                    {f"{name}, CMaxNumTh {most}": (range(1, len(rows) + 1), [row[what] for row in rows])
                     for most, merging in by_most.items() for name, rows in merging.items()},
                )
                for terms, by_most in figures["figure5"].items()
                for what, suffix in (("relabelled", ""), ("moved", "-moved"))
            ),
            self._bars(
                folder / "drtcluster-figure6.png", "Throughput after training", "events per unit of the busiest worker",
                list(figures["figure6"]), {"throughput": list(figures["figure6"].values())},
            ),
            self._bars(
                folder / "drtcluster-figure7.png", "Throughput before and after balancing",
                "events per unit of the busiest worker", ["before", "after", "eagerly"],
                {"DRt-Cluster": [seventh[name] for name in ("before", "after", "eager")]},
            ),
            self._lines(
                folder / "drtcluster-sweep.png", "The most categories there may be", ("CMaxNumTh", "per event"),
                {what: ([row["most"] for row in figures["sweep"]], [row[what] for row in figures["sweep"]])
                 for what in ("Sim-NonFre", "Sim-Fre", "Sim-Fre-Co", "messages", "throughput", "balance")},
            ),
        ]  # fmt: skip
        for kind in ("partitioners", "drift"):
            rows = figures[kind]
            drawn.append(
                self._bars(
                    folder / f"drtcluster-{kind}.png",
                    "Partitioners" + (" while a hot spot drifts" if kind == "drift" else ""),
                    "messages per event; max/mean work; copies",
                    list(rows),
                    {what: [row[what] for row in rows.values()] for what in ("messages", "balance", "replication")},
                )
            )
        return [*drawn, *self._draw_timed(folder, figures)]

    def _draw_timed(self, folder: Path, figures: Mapping[str, Any]) -> Iterator[Path]:
        """Draw throughput that was timed on Spark, if there is any."""
        most = max((row["most"] for row in figures["throughput"]), default=0.0)
        rows = [row for row in figures["throughput"] if row["most"] == most]
        for what, how in THROUGHPUTS.items() if rows else ():
            suffix = what.removeprefix("events_").replace("_", "-")
            values: dict[str, list[float]] = {}
            for row in rows:
                values.setdefault(f"{row['matcher']}, {row['workers']} workers", []).append(row[what] / 1e3)
            names = list(dict.fromkeys(row["partitioner"] for row in rows))
            title = f"Throughput after training, {how}"
            yield self._bars(
                folder / f"drtcluster-figure6-{suffix}.png", title, "thousand events per second", names, values
            )
            balancing = {
                f"{row['rule']}, {row['matcher']}": [row[f"{what}_{when}"] / 1e3 for when in ("before", "after")]
                for row in figures["balancing"]
            }
            yield self._bars(
                folder / f"drtcluster-figure7-{suffix}.png", f"Throughput before and after balancing, {how}",
                "thousand events per second", ["before", "after"], balancing,
            )  # fmt: skip

    def _bars(
        self, path: Path, title: str, axis: str, names: Sequence[str], values: Mapping[str, Sequence[float]]
    ) -> Path:
        figure = self._figure(figsize=(8, 5), layout="constrained")
        plot = figure.subplots()
        width = 0.8 / len(values)
        for number, (label, heights) in enumerate(values.items()):
            bars = plot.bar([at + number * width for at in range(len(names))], heights, width, label=label)
            plot.bar_label(bars, fmt="%.2f")
        plot.set_xticks([at + 0.4 - width / 2 for at in range(len(names))], names)
        return self._finish(figure, plot, path, title, ("", axis))

    def _lines(
        self,
        path: Path,
        title: str,
        axes: tuple[str, str],
        lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    ) -> Path:
        figure = self._figure(figsize=(8, 5), layout="constrained")
        plot = figure.subplots()
        for label, (x, y) in lines.items():
            plot.plot(x, y, "o-", label=label)
        return self._finish(figure, plot, path, title, axes)
