"""Verdicts on the paper's claims, computed from the results of all seeds.

The paper prints no numbers, so what can be compared are orders: a difference above 0, a ratio above 1. A claim is
confirmed if the whole 95 % interval of the mean over the seeds is on its side, not confirmed if it is on the other
side, and undecided otherwise, or if there are fewer than two seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.lab.experiments.drtcluster.throughput import BALANCING_RULES, MATCHERS, THROUGHPUTS
from roamcast.lab.experiments.statistics import mean_of, paired

__all__ = ["Verdict", "compare_curve", "judge", "judge_all"]

Rows = Sequence[Mapping[str, Any]]

STEADY: Final = -0.05
"""A curve stays high if it changes by more than this in each tenth, relative to its mean: a fifth over four tenths."""
_OURS: Final = "curve"
_MEASURES: Final = ("messages", "balance", "replication")
_READINGS: Final = {"": "cell and rarest term", "_weak": "rectangle and any term"}
_RULES: Final = {"paper": "at twice the mean load", "eager": "at 1.2 times the mean load"}


class Verdict(NamedTuple):
    """What was measured, what the paper says of it, the mean with the half-width of its interval, and the verdict."""

    figure: int
    measured: str
    paper: str
    mean: float
    half: float
    seeds: int
    verdict: str

    @property
    def ours(self) -> str:
        return f"{self.mean:.3g} ± {self.half:.2g} ({self.seeds} seeds)" if self.seeds else "nothing to compare"


def judge(figure: int, measured: str, values: Sequence[float], bound: float, *, above: bool = True) -> Verdict:
    """Judge the claim that the mean of `values`, one for each seed, is above the bound, or below it."""
    mean, half, seeds = mean_of(values)
    verdict = "undecided"
    if seeds >= 2 and abs(mean - bound) > half:
        verdict = "confirmed" if (mean > bound) == above else "not confirmed"
    return Verdict(figure, measured, f"{'>' if above else '<'} {bound:g}", mean, half, seeds, verdict)


def judge_all(results: Mapping[str, Rows]) -> list[Verdict]:
    """Judge figures 4 to 7. `results` has the rows of each seed; what was timed may be missing."""
    return [
        *_figure4(results["figure4"]),
        *_figure5(results["figure5"]),
        *_figure6(results["partitioners"], results.get("throughput", ())),
        *_figure7(results["figure7"], results.get("balancing", ())),
    ]


def _figure4(rows: Rows) -> list[Verdict]:
    verdicts = []
    for suffix, reading in _READINGS.items():
        after, training = (
            {name: _column(rows, f"{when}{suffix}", variant=name) for name in ("Sim-NonFre", "Sim-Fre", "Sim-Fre-Co")}
            for when in ("after", "training")
        )
        for more, less in (("Sim-NonFre", "Sim-Fre"), ("Sim-Fre", "Sim-Fre-Co")):
            what = f"categories per event by {reading}, after training: {more} - {less}"
            verdicts.append(judge(4, what, _differences(after[more], after[less]), 0))
        for name in after:
            what = f"categories per event by {reading}, {name}: after - while training"
            verdicts.append(judge(4, what, _differences(after[name], training[name]), 0))
    return verdicts


def _figure5(rows: Rows) -> list[Verdict]:
    """Judge trends by least squares over each half of the training, relative to the mean of all tenths."""
    verdicts = []
    for terms, most in dict.fromkeys((row["terms"], row["most"]) for row in rows):
        chosen = {"terms": terms, "most": most}
        where = f"{terms}, CMaxNumTh {most:g} per subscription"
        for what in ("relabelled", "moved"):
            early, late = (_trends(rows, what, half, merging="InAndBetNode", **chosen) for half in (0, 1))
            name = f"InAndBetNode, subscriptions {what}, {where}: change in each tenth"
            verdicts.append(judge(5, f"{name}, first half", early, 0))
            verdicts.append(judge(5, f"{name}, second half", late, 0, above=False))
        late = _trends(rows, "relabelled", 1, merging="InNode", **chosen)
        what = f"InNode, subscriptions relabelled, {where}: change in each tenth, second half"
        verdicts.append(judge(5, what, late, STEADY))
    return verdicts


def _trends(rows: Rows, what: str, half: int, **chosen: object) -> list[float]:
    """The slope of each seed over one half of the training, relative to its mean; none if nothing was merged."""
    slopes = []
    for seed in dict.fromkeys(row["seed"] for row in rows):
        values = np.array(_column(rows, what, seed=seed, **chosen), np.float64)
        if values.any():
            slopes.append(_slope(np.array_split(values, 2)[half]) / float(values.mean()))
    return slopes


def _slope(values: npt.NDArray[np.float64]) -> float:
    """The slope by least squares. It is exactly 0 for equal integers, which rounding must not turn into a trend."""
    away = np.arange(len(values)) - (len(values) - 1) / 2
    return float(away @ values / (away @ away))


def _figure6(counted: Rows, timed: Rows) -> list[Verdict]:
    names = ("DRt-Cluster", "kd-tree")
    ratio = "throughput, DRt-Cluster / kd-tree"
    counts = (_column(counted, "throughput", partitioner=name) for name in names)
    verdicts = [judge(6, f"{ratio}, counted work", _ratios(*counts), 1)]
    for workers, most in dict.fromkeys((row["workers"], row["most"]) for row in timed):
        for matcher in MATCHERS:
            for what, how in THROUGHPUTS.items():
                chosen = {"workers": workers, "most": most, "matcher": matcher}
                values = (_column(timed, what, partitioner=name, **chosen) for name in names)
                where = f"{how}, {matcher}, {workers} workers, CMaxNumTh {most:g} per subscription"
                verdicts.append(judge(6, f"{ratio}, {where}", _ratios(*values), 1))
    return verdicts


def _figure7(counted: Rows, timed: Rows) -> list[Verdict]:
    """Only seeds in which something moved: by the paper's rule, others have no overloaded worker."""
    verdicts = []
    for rule, (suffix, after) in zip(BALANCING_RULES, (("", "after"), ("_eager", "eager")), strict=True):
        moved = [row for row in counted if row[f"moved{suffix}"]]
        ratios = _ratios(_column(moved, after), _column(moved, "before"))
        ratio = f"throughput, after / before balancing {_RULES[rule]}"
        verdicts.append(judge(7, f"{ratio}, counted work", ratios, 1))
        for matcher in MATCHERS if timed else ():
            moved = [row for row in timed if (row["rule"], row["matcher"]) == (rule, matcher) and row["moved"]]
            for what, how in THROUGHPUTS.items():
                ratios = _ratios(_column(moved, f"{what}_after"), _column(moved, f"{what}_before"))
                verdicts.append(judge(7, f"{ratio}, {how}, {matcher}", ratios, 1))
    return verdicts


def compare_curve(rows: Rows) -> str:
    """Compare `curve` with the best of the others for each measure, then with each of the others, in words."""
    names = dict.fromkeys(row["partitioner"] for row in rows)
    values_of = {what: {name: _column(rows, what, partitioner=name) for name in names} for what in _MEASURES}
    parts = []
    for what, values in values_of.items():
        others = {name: mean_of(each).mean for name, each in values.items() if name != _OURS}
        best = min(others, key=lambda name: others[name])
        parts.append(
            f"{what} {mean_of(values[_OURS]).mean:.3f}, {_compare(values[_OURS], values[best])} the best other "
            f"({best}, {others[best]:.3f}; difference {paired(values[_OURS], values[best])})"
        )
    for name in names:
        if name != _OURS:
            words = (f"{_compare(values[_OURS], values[name])} it in {what}" for what, values in values_of.items())
            parts.append(f"compared with {name}: {', '.join(words)}")
    return "; ".join(parts)


def _compare(ours: Sequence[float], others: Sequence[float]) -> str:
    """Compare in words; less is better. Seeds are paired. A difference within its 95 % interval does not count."""
    more = paired(ours, others)
    if abs(more.mean) <= more.half:
        return "not distinguishable from"
    return "better than" if more.mean < 0 else "worse than"


def _column(rows: Rows, what: str, **chosen: object) -> list[float]:
    """The values of the rows with these values in other columns, in the order of seeds."""
    return [row[what] for row in rows if all(row[name] == value for name, value in chosen.items())]


def _differences(values: Sequence[float], others: Sequence[float]) -> list[float]:
    return [value - other for value, other in zip(values, others, strict=True)]


def _ratios(values: Sequence[float], others: Sequence[float]) -> list[float]:
    return [value / other for value, other in zip(values, others, strict=True)]
