"""`roamcast reproduce cet`: tables 2 and 3 and figures 7 to 10 of the CET paper, beside the paper's own figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from roamcast.collect.simulation.replication import Replication
from roamcast.durable import make_folder
from roamcast.lab.experiments.cet_plan import (
    BOTH,
    DEFAULTS,
    DEVIATIONS,
    LIFETIMES,
    PAPER,
    READINGS,
    SKIPPING,
    SWEEPS,
    TABLES,
    Claim,
    Sweep,
    jobs_of,
)
from roamcast.lab.experiments.cet_plots import SweepPlot
from roamcast.lab.experiments.statistics import Mean, mean_of, paired
from roamcast.lab.experiments.tables import write_csv

__all__ = ["MEASURES", "judge", "plan", "reproduce"]

MEASURES = ("delivery_ratio", "copies", "copies_to_mules", "copies_all_hops", "delay_s")
_MARKED = 0.1  # a change by less than this part of the first value is no marked one
_UNKNOWN = "for no reason that is known"

Result = Mapping[str, float | None]
Run = Callable[[Sequence[Replication]], list[Result]]
Group = tuple[str, ...]


def plan(runs: int) -> dict[Group, list[Replication]]:
    """All jobs, by what they are for."""
    groups: dict[Group, list[Replication]] = {
        ("default", name): list(jobs_of(DEFAULTS, BOTH[name], runs)) for name in BOTH
    }
    lives = max(10, runs // 10)
    for name, field in LIFETIMES.items():
        groups["lifetime", name] = list(jobs_of(field, BOTH[name], lives, until_death=True))
    for sweep in SWEEPS:
        for value in sweep.values:
            field, protocols = sweep.point(value)
            for name, protocol in protocols.items():
                groups[f"figure {sweep.figure}", f"{value:g}", name] = list(jobs_of(field, protocol, runs))
    for reading, (field, protocol) in READINGS.items():
        groups["reading", reading] = list(jobs_of(field, protocol, runs))
    return groups


def reproduce(folder: Path, run: Run, say: Callable[[str], None], *, runs: int = 100) -> dict[str, Any]:
    """All of it, as PNG and CSV in `folder`, and as what is returned. `run` gives figures of jobs, in order."""
    plots = SweepPlot()
    make_folder(folder)
    groups = plan(runs)
    lives = len(groups["lifetime", "CET"])
    say(f"{sum(map(len, groups.values())):,} runs: {runs} for each point, {lives} to the first death")
    results = iter(run([job for jobs in groups.values() for job in jobs]))
    found = {group: [next(results) for _ in jobs] for group, jobs in groups.items()}
    files = [write_csv(folder / "cet-table2.csv", tables := _tables(found))]
    verdicts = [{"figure": "tables", **_compare(claim, [_both(found, claim.what)])} for claim in TABLES]
    for sweep in SWEEPS:
        rows = _rows(sweep, found)
        files.append(write_csv(folder / f"cet-figure{sweep.figure}.csv", rows))
        files.append(plots.draw_sweep(folder / f"cet-figure{sweep.figure}.png", sweep, rows))
        verdicts += [{"figure": str(sweep.figure), **judge(sweep, claim, found)} for claim in sweep.claims]
    readings = [{"reading": name, **_measured(found["reading", name])} for name in READINGS]
    files += [write_csv(folder / "cet-readings.csv", readings), write_csv(folder / "cet-verdicts.csv", verdicts)]
    return {
        "runs": runs,
        **{name: _summary(found, name) for name in BOTH},
        "paper": PAPER,
        "tables": tables,
        "verdicts": verdicts,
        "readings": readings,
        "files": [str(file) for file in files],
    }


def judge(sweep: Sweep, claim: Claim, found: Mapping[Group, Sequence[Result]]) -> dict[str, Any]:
    """Whether a claim holds with 95 % confidence, run by run of the same seed; if not, why, and with which reading."""

    def at(value: float, protocol: str) -> list[float]:
        return _column(found[f"figure {sweep.figure}", f"{value:g}", protocol], claim.what)

    def judged(protocol: str) -> dict[str, Any]:
        if claim.change in ("above", "below"):
            return _compare(claim, [(at(value, protocol), at(value, "DG")) for value in sweep.values])
        return _change(claim, at(sweep.values[0], protocol), at(sweep.values[-1], protocol))

    verdict = judged(claim.protocol.removesuffix(", DG"))
    if not verdict["reproduced"] and claim.protocol.startswith("CET") and SKIPPING in sweep.protocols:
        other = judged(SKIPPING)
        is_so = "reproduced" if other["reproduced"] else "neither"
        verdict["why"] += f"; where the community skips what the mule has: {other['ours']}, {is_so}"
    return verdict


def _change(claim: Claim, first: Sequence[float], last: Sequence[float]) -> dict[str, Any]:
    """From the first point to the last."""
    change = paired(last, first)
    if claim.change == "stays":
        holds = abs(change.mean) <= _MARKED * mean_of(first).mean
    else:
        holds = (change.mean if claim.change == "rises" else -change.mean) > change.half
    return _verdict(claim, f"{mean_of(first)} to {mean_of(last)}", holds, change)


def _compare(claim: Claim, points: Sequence[tuple[Sequence[float], Sequence[float]]]) -> dict[str, Any]:
    """CET beside DG, by runs of the same seeds, at each of some points."""
    sign = 1 if claim.change == "above" else -1
    gaps = [paired(*point) for point in points]
    narrowest = min(gaps, key=lambda gap: sign * gap.mean)
    where = " where it is narrowest" if len(gaps) > 1 else ""
    holds = all(sign * gap.mean > gap.half for gap in gaps)
    return _verdict(claim, f"CET − DG is {narrowest}{where}", holds, narrowest)


def _verdict(claim: Claim, said: str, holds: bool, change: Mean) -> dict[str, Any]:
    """`why` is said of all that is not reproduced."""
    if abs(change.mean) <= change.half:
        unknown = f"a difference of {change} is too small to be seen in {change.runs} runs"
    else:
        unknown = _UNKNOWN
    return {
        "of": claim.protocol,
        "what": claim.what,
        "paper": claim.change,
        "ours": said,
        "reproduced": holds,
        "why": "" if holds else claim.why or unknown,
    }


def _both(found: Mapping[Group, Sequence[Result]], what: str) -> tuple[list[float], list[float]]:
    """A figure of the default runs, or of those to the first death, of CET and of DG."""
    group = "lifetime" if what == "lifetime_days" else "default"
    return _column(found[group, "CET"], what), _column(found[group, "DG"], what)


def _column(results: Sequence[Result], what: str) -> list[float]:
    return [float(value) for result in results if (value := result[what]) is not None]


def _mean(results: Sequence[Result], what: str) -> Mean:
    return mean_of(_column(results, what))


def _measured(results: Sequence[Result], measures: Sequence[str] = MEASURES) -> dict[str, float]:
    """Means by their names, and halves of their intervals."""
    means = {what: _mean(results, what) for what in measures}
    return {name: value for what, it in means.items() for name, value in ((what, it.mean), (f"{what}_half", it.half))}


def _summary(found: Mapping[Group, Sequence[Result]], name: str) -> dict[str, float]:
    default, lives = found["default", name], found["lifetime", name]
    died = len(_column(lives, "lifetime_days"))
    return {**_measured(default), **_measured(lives, ["lifetime_days"]), "lifetime_runs": died}


def _tables(found: Mapping[Group, Sequence[Result]]) -> list[dict[str, Any]]:
    """Tables 2 and 3, a row for each of their figures, the paper's beside ours, and why where they differ."""
    rows = []
    for name in BOTH:
        summary = _summary(found, name)
        for what in (*MEASURES, "lifetime_days"):
            paper, ours, half = PAPER[name].get(what), summary[what], summary[f"{what}_half"]
            differs = paper is not None and abs(ours - paper) > half
            why = DEVIATIONS.get(f"{name} {what}", _UNKNOWN) if differs else ""
            rows.append({"protocol": name, "what": what, "paper": paper, "ours": ours, "half": half, "why": why})
    return rows


def _rows(sweep: Sweep, found: Mapping[Group, Sequence[Result]]) -> list[dict[str, Any]]:
    figure = f"figure {sweep.figure}"
    return [
        {sweep.parameter: value, "protocol": name, **_measured(found[figure, f"{value:g}", name])}
        for value in sweep.values
        for name in sweep.protocols
    ]
