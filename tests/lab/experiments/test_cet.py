"""The experiment of the CET paper, small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from roamcast.collect.simulation.replication import Replication, run_replication
from roamcast.lab.experiments.cet import judge, plan, reproduce
from roamcast.lab.experiments.cet_plan import PAPER, READINGS, SKIPPING, SWEEPS, TABLES, Claim
from roamcast.lab.experiments.statistics import mean_of, paired

ALPHA, SPEED = SWEEPS[0], SWEEPS[1]


def shortened(jobs: Sequence[Replication]) -> list[object]:
    """The same jobs for two minutes, with sensors that die soon."""
    radio = jobs[0].radio.__class__(initial_j=2e-3)
    return [
        run_replication(
            replace(job, field=replace(job.field, duration_s=120.0, silence_s=10.0, gap_s=20.0), radio=radio)
        )
        for job in jobs
    ]


def test_everything_is_written(tmp_path: Path) -> None:
    """Tables, figures as CSV and PNG, verdicts and readings come out, and the figures by their names."""
    figures = reproduce(tmp_path, shortened, lambda line: None, runs=2)  # type: ignore[arg-type]
    names = {Path(file).name for file in figures["files"]}
    assert {f"cet-figure{n}.{kind}" for n in (7, 8, 9, 10) for kind in ("csv", "png")} <= names
    assert len(figures["readings"]) == len(READINGS)
    assert len(figures["verdicts"]) == len(TABLES) + sum(len(sweep.claims) for sweep in SWEEPS)
    for name in PAPER:
        assert {"delivery_ratio", "copies", "delay_s", "lifetime_days"} <= figures[name].keys()
        assert figures[name]["lifetime_runs"] == 10


def test_every_deviation_is_explained(tmp_path: Path) -> None:
    """What is not as in the paper says why; what is, says nothing."""
    figures = reproduce(tmp_path, shortened, lambda line: None, runs=2)  # type: ignore[arg-type]
    assert all(bool(verdict["why"]) != verdict["reproduced"] for verdict in figures["verdicts"])
    differs = [row["paper"] is not None and abs(row["ours"] - row["paper"]) > row["half"] for row in figures["tables"]]
    assert any(differs)
    assert [bool(row["why"]) for row in figures["tables"]] == differs


def test_runs_are_paired() -> None:
    """Both protocols get the worlds of the same seeds."""
    groups = plan(5)
    assert [job.seed for job in groups["default", "CET"]] == [job.seed for job in groups["default", "DG"]]


@pytest.mark.parametrize(
    ("change", "values", "holds"),
    [
        ("rises", [1.0, 2.0], True),
        ("rises", [2.0, 1.0], False),
        ("falls", [2.0, 1.0], True),
        ("stays", [1.0, 1.05], True),
        ("stays", [1.0, 2.0], False),
    ],
)
def test_change_is_judged_from_first_to_last(change: str, values: list[float], holds: bool) -> None:
    """A claim on a change is held against the two ends."""
    sweep = ALPHA._replace(values=(1, 2))
    found = {
        ("figure 7", f"{at}", "CET"): [{"copies": value + noise} for noise in (0, 0.01, 0.02)]
        for at, value in zip((1, 2), values, strict=True)
    }
    verdict = judge(sweep, Claim("CET", "copies", change, "chance"), found)
    assert (verdict["reproduced"], verdict["why"]) == (holds, "" if holds else "chance")


def test_change_that_cannot_be_seen_is_said_to_be_so() -> None:
    """Where nothing else explains it, a difference within its interval is said to be one."""
    sweep = ALPHA._replace(values=(1, 2))
    found = {
        ("figure 7", f"{at}", "CET"): [{"copies": value} for value in values]
        for at, values in ((1, (1.0, 2.0, 3.0)), (2, (1.5, 1.0, 4.0)))
    }
    verdict = judge(sweep, Claim("CET", "copies", "rises"), found)
    assert "too small to be seen in 3 runs" in verdict["why"]


def test_other_reading_is_tried_where_a_claim_does_not_hold() -> None:
    """Of CET, where the figure has it: whether the claim holds if the community skips what the mule has."""
    sweep = next(sweep for sweep in SWEEPS if SKIPPING in sweep.protocols)._replace(values=(1, 2))
    found = {
        (f"figure {sweep.figure}", f"{at}", name): [{"copies": value + noise} for noise in (0, 0.01, 0.02)]
        for name, values in (("CET", (2.0, 1.0)), (SKIPPING, (1.0, 2.0)))
        for at, value in zip((1, 2), values, strict=True)
    }
    verdict = judge(sweep, Claim("CET", "copies", "rises", "keepers"), found)
    assert not verdict["reproduced"]
    assert verdict["why"].startswith("keepers; where the community skips")
    assert verdict["why"].endswith("reproduced")


def test_above_must_hold_at_every_point() -> None:
    """One point at which the two are equal is enough to refute."""
    sweep = SPEED._replace(values=(1, 2))
    found = {
        ("figure 8", f"{at}", name): [{"copies": value + noise} for noise in (0, 0.1, 0.3)]
        for at, name, value in ((1, "CET", 5.0), (1, "DG", 1.0), (2, "CET", 5.0), (2, "DG", 5.0))
    }
    assert judge(sweep, Claim("CET, DG", "copies", "above"), found)["reproduced"] is False
    assert judge(sweep._replace(values=(1,)), Claim("CET, DG", "copies", "above"), found)["reproduced"] is True


def test_interval_is_students() -> None:
    """Of 1, 2, 3 the mean is 2, and half the interval 4.303 / sqrt(3)."""
    assert mean_of([1.0, 2.0, 3.0]).half == pytest.approx(2.484, abs=1e-3)
    assert paired([3.0, 4.0], [1.0, 2.0]).mean == 2.0
