"""`roamcast reproduce lcesm`: the paper's experiment on binding, which compares LPS and LCESM.

Figure 8: sensors that produce data. Figure 9: matches in total. Beyond the paper: more listeners and sensors, sensors
that move, and the messages between nodes that discovery takes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.durable import make_folder
from roamcast.lab.experiments.lcesm.nodes import MessageCounts, discover
from roamcast.lab.experiments.lcesm.run import LcesmRun, RunLength, run
from roamcast.lab.experiments.plots import Plot
from roamcast.lab.experiments.statistics import estimate, write_csv

__all__ = ["LcesmExtent", "discovery", "growth", "moving", "paper", "reproduce"]

Row = dict[str, float]
Report = Callable[[str], None]


class Band(NamedTuple):
    """A line of means with a shaded interval around it."""

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
        caption = f"{title}\nlines: means; shaded: 95 % intervals"
        return self._finish(figure, plot, path, caption, axes, logarithmic=logarithmic)


@dataclass(frozen=True, slots=True)
class LcesmExtent:
    """The size of the experiment. The paper's part has `seeds` runs of `seconds` each, the rest has fewer of both."""

    seeds: int = 30
    seconds: int = 60
    beyond_seeds: int = 3
    beyond_seconds: int = 10
    listeners: tuple[int, ...] = (100, 1_000, 10_000, 100_000)
    sensors: tuple[int, ...] = (100, 1_000, 10_000)
    speeds: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 4.0)
    nodes: tuple[int, ...] = (2, 5, 10, 20, 30, 40, 50)


def reproduce(
    folder: Path, report: Report, extent: LcesmExtent | None = None, *, beyond: bool = True
) -> dict[str, Any]:
    """Write all figures as PNG and CSV to `folder`, and return them. Without `beyond`, only those of the paper."""
    plots, extent = BandPlot(), extent or LcesmExtent()
    make_folder(folder)
    report(f"figures 8 and 9: {extent.seeds} runs of {extent.seconds} s")
    figures, files = _paper(folder, plots, extent)
    if beyond:
        for name, part, draw in (
            ("growth", growth, _draw_growth),
            ("moving", moving, _draw_moving),
            ("discovery", discovery, _draw_discovery),
        ):
            rows = part(extent, report)
            figures[name] = rows
            files += [write_csv(folder / f"lcesm-{name}.csv", rows), *draw(folder, plots, rows)]
    return {**figures, "files": [str(file) for file in files]}


def paper(extent: LcesmExtent) -> list[LcesmRun]:
    """Runs with 20 sensors and 10 listeners, one for each seed."""
    return [run(seed, RunLength(extent.seconds)) for seed in range(extent.seeds)]


def growth(extent: LcesmExtent, report: Report) -> list[Row]:
    """Runs with each combination of numbers of listeners and sensors."""
    length = RunLength(extent.beyond_seconds, steps=5)
    rows = []
    for sensors, listeners in itertools.product(extent.sensors, extent.listeners):
        report(f"{listeners} listeners, {sensors} sensors: {extent.beyond_seeds} runs of {length.seconds} s")
        runs = [run(seed, length, listeners=listeners, sensors=sensors) for seed in range(extent.beyond_seeds)]
        rows.append({"listeners": listeners, "sensors": sensors} | _row(runs, length.seconds))
    return rows


def moving(extent: LcesmExtent, report: Report) -> list[Row]:
    """Runs of the paper's room with moving sensors, for each speed in metres per second."""
    length = RunLength(extent.seconds)
    rows = []
    for speed in extent.speeds:
        report(f"sensors moving at {speed:g} m/s: {extent.seeds} runs of {length.seconds} s")
        rows.append(
            {"speed": speed} | _row([run(seed, length, speed=speed) for seed in range(extent.seeds)], length.seconds)
        )
    return rows


def discovery(extent: LcesmExtent, report: Report) -> list[Row]:
    """Messages between nodes for each number of nodes, with static sensors, then with sensors that move at 1 m/s."""
    rows = []
    for speed, count in itertools.product((0.0, 1.0), extent.nodes):
        report(f"{count} nodes, sensors at {speed:g} m/s: {extent.beyond_seeds} runs of {extent.beyond_seconds} s")
        runs = [discover(count, seed, extent.beyond_seconds, speed) for seed in range(extent.beyond_seeds)]
        first = [_totals(first) for first, _, _ in runs]
        later = [_totals(later) for _, later, _ in runs]
        row: Row = {"nodes": count, "speed": speed}
        row |= _means("first_", first, 1) | _means("later_", later, extent.beyond_seconds)
        rows.append(row | {"wrong": float(sum(wrong for *_, wrong in runs))})
    return rows


def _paper(folder: Path, plots: BandPlot, extent: LcesmExtent) -> tuple[dict[str, Any], list[Path]]:
    runs = paper(extent)
    seconds = np.arange(1, extent.seconds + 1)
    demanded, matches = estimate([one.demanded for one in runs]), estimate([one.matches for one in runs])
    lps = estimate([one.lps_matches for one in runs])
    slope = float(np.polyfit(seconds, lps.mean, 1)[0]) if extent.seconds > 1 else float(lps.mean[0])
    eighth = _rows(
        seconds, lps_sensors=np.full(len(seconds), 20.0), lcesm_sensors=demanded.mean, lcesm_ci95=demanded.half
    )
    ninth = _rows(seconds, lps_matches=lps.mean, lcesm_matches=matches.mean, lcesm_ci95=matches.half)
    x, zeros = seconds.tolist(), np.zeros(len(seconds)).tolist()
    files = [
        write_csv(folder / "lcesm-figure8.csv", eighth),
        write_csv(folder / "lcesm-figure9.csv", ninth),
        plots.draw_bands(
            folder / "lcesm-figure8.png",
            "Sensors that produce data",
            ("time, s", "sensors"),
            [
                Band("LPS", x, [20.0] * len(x), zeros),
                Band("LCESM", x, demanded.mean.tolist(), demanded.half.tolist()),
            ],
        ),
        plots.draw_bands(
            folder / "lcesm-figure9.png",
            "Matches in total",
            ("time, s", "matches"),
            [
                Band("LPS", x, lps.mean.tolist(), lps.half.tolist()),
                Band("LCESM", x, matches.mean.tolist(), matches.half.tolist()),
            ],
        ),
    ]
    row = _row(runs, extent.seconds)
    figures = {
        "seeds": extent.seeds,
        "seconds": extent.seconds,
        "lps": {"sensors": 20, "matches_per_s": round(slope, 6), "matches": row["lps_matches"]},
        "lcesm": {
            "sensors": row["sensors_demanded"],
            "sensors_ci95": row["sensors_demanded_ci95"],
            "matches": row["matches"],
            "matches_ci95": row["matches_ci95"],
            "readings": row["readings"],
            "signals": row["signals"],
        },
        "share": row["matches"] / row["lps_matches"],
        "different": row["different"],
    }
    return figures, files


def _row(runs: Sequence[LcesmRun], seconds: int) -> Row:
    """Means over runs."""
    demanded = estimate([one.demanded.mean() for one in runs])
    matches = estimate([float(one.matches[-1]) for one in runs])
    return {
        "seconds": seconds,
        "lps_matches": float(np.mean([one.lps_matches[-1] for one in runs])),
        "sensors_demanded": float(demanded.mean),
        "sensors_demanded_ci95": float(demanded.half),
        "matches": float(matches.mean),
        "matches_ci95": float(matches.half),
        "readings": float(np.mean([one.readings for one in runs])),
        "signals": float(np.mean([one.signals for one in runs])),
        "letters": float(np.mean([one.letters for one in runs])),
        "different": float(sum(one.different for one in runs)),
    }


def _totals(counts: MessageCounts) -> Row:
    """Requests by cause, and totals of requests, responses and announcements."""
    causes = {f"requests_for_{cause}": counts[cause, "requests"] for cause in ("find", "demand", "moved", "idle")}
    kinds = {
        kind: sum(counts[c, k] for c, k in counts if k == kind) for kind in ("requests", "responses", "announcements")
    }
    return {name: float(count) for name, count in (causes | kinds).items()}


def _means(prefix: str, rows: Sequence[Row], seconds: int) -> Row:
    """The mean of each column per second, and its 95 % interval."""
    means = {name: estimate([row[name] / seconds for row in rows]) for name in rows[0]}
    row = {f"{prefix}{name}": float(value.mean) for name, value in means.items()}
    return row | {f"{prefix}{name}_ci95": float(value.half) for name, value in means.items()}


def _draw_growth(folder: Path, plots: BandPlot, rows: Sequence[Row]) -> list[Path]:
    def bands(what: str, lps: Callable[[Row], float]) -> list[Band]:
        drawn = []
        for sensors in dict.fromkeys(row["sensors"] for row in rows):
            selected = [row for row in rows if row["sensors"] == sensors]
            x = [row["listeners"] for row in selected]
            drawn.append(Band(f"LPS, {sensors:g} sensors", x, [lps(row) for row in selected], [0.0] * len(x)))
            halves = [row[f"{what}_ci95"] for row in selected]
            drawn.append(Band(f"LCESM, {sensors:g} sensors", x, [row[what] for row in selected], halves))
        return drawn

    return [
        plots.draw_bands(folder / "lcesm-growth-sensors.png", "Sensors that produce data", ("listeners", "sensors"),
                         bands("sensors_demanded", lambda row: row["sensors"]), logarithmic=True),
        plots.draw_bands(folder / "lcesm-growth-matches.png", "Matches in total", ("listeners", "matches"),
                         bands("matches", lambda row: row["lps_matches"]), logarithmic=True),
    ]  # fmt: skip


def _draw_moving(folder: Path, plots: BandPlot, rows: Sequence[Row]) -> list[Path]:
    x = [row["speed"] for row in rows]
    band = Band("LCESM", x, [row["matches"] for row in rows], [row["matches_ci95"] for row in rows])
    axes = ("speed of the sensors, m/s", "matches in total")
    return [plots.draw_bands(folder / "lcesm-moving.png", "Matches with moving sensors", axes, [band])]


def _draw_discovery(folder: Path, plots: BandPlot, rows: Sequence[Row]) -> list[Path]:
    bands = []
    for speed, name in ((0.0, "static sensors"), (1.0, "moving sensors")):
        selected = [row for row in rows if row["speed"] == speed]
        for kind in ("requests", "announcements"):
            y = [row[f"later_{kind}"] for row in selected]
            halves = [row[f"later_{kind}_ci95"] for row in selected]
            bands.append(Band(f"{kind}, {name}", [row["nodes"] for row in selected], y, halves))
    axes = ("nodes", "per second, all nodes")
    return [plots.draw_bands(folder / "lcesm-discovery.png", "Messages of discovery", axes, bands)]


def _rows(seconds: npt.NDArray[np.int64], **columns: npt.NDArray[Any]) -> list[Row]:
    table = {"second": seconds, **columns}
    return [dict(zip(table, values, strict=True)) for values in zip(*(c.tolist() for c in table.values()), strict=True)]
