"""`roamcast reproduce cet`: tables 2 and 3 and figures 7 to 10 of the CET paper, compared with the paper's figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from roamcast.collect.simulation.replication import Replication
from roamcast.durable import make_folder
from roamcast.lab.experiments.cet.plan import (
    BOTH,
    DEFAULTS,
    DEVIATIONS,
    INTERPRETATIONS,
    LIFETIMES,
    PAPER,
    SKIPPING,
    SWEEPS,
    TABLES,
    CetClaim,
    CetSweep,
    replications_of,
)
from roamcast.lab.experiments.cet.plots import SweepPlot
from roamcast.lab.experiments.statistics import Mean, mean_of, paired, write_csv

__all__ = ["MEASURES", "all_replications", "check_claim", "reproduce"]

MEASURES = ("delivery_ratio", "copies", "copies_to_mules", "copies_all_hops", "delay_s")
_MIN_CHANGE = 0.1  # smaller changes, relative to the first value, count as none
_UNKNOWN = "reason unknown"

Result = Mapping[str, float | None]
RunReplications = Callable[[Sequence[Replication]], list[Result]]
Group = tuple[str, ...]


def all_replications(runs: int) -> dict[Group, list[Replication]]:
    """Return all replications, grouped by purpose."""
    groups: dict[Group, list[Replication]] = {
        ("default", name): list(replications_of(DEFAULTS, BOTH[name], runs)) for name in BOTH
    }
    until_death_runs = max(10, runs // 10)
    for name, field in LIFETIMES.items():
        groups["lifetime", name] = list(replications_of(field, BOTH[name], until_death_runs, until_death=True))
    for sweep in SWEEPS:
        for value in sweep.values:
            field, protocols = sweep.point(value)
            for name, protocol in protocols.items():
                groups[f"figure {sweep.figure}", f"{value:g}", name] = list(replications_of(field, protocol, runs))
    for name, (field, protocol) in INTERPRETATIONS.items():
        groups["interpretation", name] = list(replications_of(field, protocol, runs))
    return groups


def reproduce(folder: Path, run: RunReplications, report: Callable[[str], None], *, runs: int = 100) -> dict[str, Any]:
    """Reproduce all tables and figures, as PNG and CSV in `folder` and as the return value.

    `run` returns the figures of replications, in order.
    """
    plots = SweepPlot()
    make_folder(folder)
    groups = all_replications(runs)
    until_death_runs = len(groups["lifetime", "CET"])
    report(f"{sum(map(len, groups.values())):,} runs: {runs} for each point, {until_death_runs} until the first death")
    figures = iter(run([one for group in groups.values() for one in group]))
    results = {name: [next(figures) for _ in group] for name, group in groups.items()}
    files = [write_csv(folder / "cet-table2.csv", tables := _tables(results))]
    verdicts = [{"figure": "tables", **_compare(claim, [_both(results, claim.what)])} for claim in TABLES]
    for sweep in SWEEPS:
        rows = _rows(sweep, results)
        files.append(write_csv(folder / f"cet-figure{sweep.figure}.csv", rows))
        files.append(plots.draw_sweep(folder / f"cet-figure{sweep.figure}.png", sweep, rows))
        verdicts += [{"figure": str(sweep.figure), **check_claim(sweep, claim, results)} for claim in sweep.claims]
    interpretations = [{"interpretation": n, **_measured(results["interpretation", n])} for n in INTERPRETATIONS]
    files.append(write_csv(folder / "cet-interpretations.csv", interpretations))
    files.append(write_csv(folder / "cet-verdicts.csv", verdicts))
    return {
        "runs": runs,
        **{name: _summary(results, name) for name in BOTH},
        "paper": PAPER,
        "tables": tables,
        "verdicts": verdicts,
        "interpretations": interpretations,
        "files": [str(file) for file in files],
    }


def check_claim(sweep: CetSweep, claim: CetClaim, results: Mapping[Group, Sequence[Result]]) -> dict[str, Any]:
    """Check a claim with 95 % confidence, by paired runs of the same seed. If it fails, give the reason."""

    def at(value: float, protocol: str) -> list[float]:
        return _column(results[f"figure {sweep.figure}", f"{value:g}", protocol], claim.what)

    def check(protocol: str) -> dict[str, Any]:
        if claim.change in ("above", "below"):
            return _compare(claim, [(at(value, protocol), at(value, "DG")) for value in sweep.values])
        return _change(claim, at(sweep.values[0], protocol), at(sweep.values[-1], protocol))

    verdict = check(claim.protocol.removesuffix(", DG"))
    if not verdict["reproduced"] and claim.protocol.startswith("CET") and SKIPPING in sweep.protocols:
        other = check(SKIPPING)
        outcome = "reproduced" if other["reproduced"] else "neither"
        verdict["why"] += f"; if the community skips events that the mule has: {other['ours']}, {outcome}"
    return verdict


def _change(claim: CetClaim, first: Sequence[float], last: Sequence[float]) -> dict[str, Any]:
    """Check a change from the first point to the last."""
    change = paired(last, first)
    if claim.change == "stays":
        holds = abs(change.mean) <= _MIN_CHANGE * mean_of(first).mean
    else:
        holds = (change.mean if claim.change == "rises" else -change.mean) > change.half
    return _verdict(claim, f"{mean_of(first)} to {mean_of(last)}", holds, change)


def _compare(claim: CetClaim, points: Sequence[tuple[Sequence[float], Sequence[float]]]) -> dict[str, Any]:
    """Compare CET with DG at each point, by paired runs of the same seed."""
    sign = 1 if claim.change == "above" else -1
    gaps = [paired(*point) for point in points]
    smallest = min(gaps, key=lambda gap: sign * gap.mean)
    where = " at the smallest difference" if len(gaps) > 1 else ""
    holds = all(sign * gap.mean > gap.half for gap in gaps)
    return _verdict(claim, f"CET − DG is {smallest}{where}", holds, smallest)


def _verdict(claim: CetClaim, measured: str, holds: bool, change: Mean) -> dict[str, Any]:
    """`why` gives the reason for a claim that is not reproduced."""
    if abs(change.mean) <= change.half:
        unknown = f"a difference of {change} is not significant in {change.runs} runs"
    else:
        unknown = _UNKNOWN
    return {
        "of": claim.protocol,
        "what": claim.what,
        "paper": claim.change,
        "ours": measured,
        "reproduced": holds,
        "why": "" if holds else claim.why or unknown,
    }


def _both(results: Mapping[Group, Sequence[Result]], what: str) -> tuple[list[float], list[float]]:
    """A measure of the default runs, or of the runs until death, for CET and DG."""
    group = "lifetime" if what == "lifetime_days" else "default"
    return _column(results[group, "CET"], what), _column(results[group, "DG"], what)


def _column(results: Sequence[Result], what: str) -> list[float]:
    return [float(value) for result in results if (value := result[what]) is not None]


def _mean(results: Sequence[Result], what: str) -> Mean:
    return mean_of(_column(results, what))


def _measured(results: Sequence[Result], measures: Sequence[str] = MEASURES) -> dict[str, float]:
    """Means and half-widths of their intervals, by name."""
    measured: dict[str, float] = {}
    for what in measures:
        mean = _mean(results, what)
        measured |= {what: mean.mean, f"{what}_half": mean.half}
    return measured


def _summary(results: Mapping[Group, Sequence[Result]], name: str) -> dict[str, float]:
    default, until_death_runs = results["default", name], results["lifetime", name]
    died = len(_column(until_death_runs, "lifetime_days"))
    return {**_measured(default), **_measured(until_death_runs, ["lifetime_days"]), "lifetime_runs": died}


def _tables(results: Mapping[Group, Sequence[Result]]) -> list[dict[str, Any]]:
    """Tables 2 and 3: the paper's figures and ours, with the reason where they differ."""
    rows = []
    for name in BOTH:
        summary = _summary(results, name)
        for what in (*MEASURES, "lifetime_days"):
            paper, ours, half = PAPER[name].get(what), summary[what], summary[f"{what}_half"]
            differs = paper is not None and abs(ours - paper) > half
            why = DEVIATIONS.get(f"{name} {what}", _UNKNOWN) if differs else ""
            rows.append({"protocol": name, "what": what, "paper": paper, "ours": ours, "half": half, "why": why})
    return rows


def _rows(sweep: CetSweep, results: Mapping[Group, Sequence[Result]]) -> list[dict[str, Any]]:
    figure = f"figure {sweep.figure}"
    return [
        {sweep.parameter: value, "protocol": name, **_measured(results[figure, f"{value:g}", name])}
        for value in sweep.values
        for name in sweep.protocols
    ]
