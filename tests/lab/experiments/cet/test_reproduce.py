"""The experiment of the CET paper, at a small scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from roamcast.collect.simulation.replication import Replication, run_replication
from roamcast.lab.experiments.cet.plan import INTERPRETATIONS, PAPER, SKIPPING, SWEEPS, TABLES, CetClaim
from roamcast.lab.experiments.cet.reproduce import all_replications, check_claim, reproduce
from roamcast.lab.experiments.statistics import mean_of, paired

ALPHA, SPEED = SWEEPS[0], SWEEPS[1]


def run_shortened(replications: Sequence[Replication]) -> list[object]:
    """Run replications for two simulated minutes, with sensors that die soon."""
    radio = replications[0].radio.__class__(initial_j=2e-3)
    return [
        run_replication(
            replace(one, field=replace(one.field, duration_s=120.0, silence_s=10.0, gap_s=20.0), radio=radio)
        )
        for one in replications
    ]


def test_all_tables_and_figures_are_written(tmp_path: Path) -> None:
    """Tables, figures as CSV and PNG, verdicts and interpretations."""
    figures = reproduce(tmp_path, run_shortened, lambda line: None, runs=2)  # type: ignore[arg-type]
    names = {Path(file).name for file in figures["files"]}
    assert {f"cet-figure{n}.{kind}" for n in (7, 8, 9, 10) for kind in ("csv", "png")} <= names
    assert len(figures["interpretations"]) == len(INTERPRETATIONS)
    assert len(figures["verdicts"]) == len(TABLES) + sum(len(sweep.claims) for sweep in SWEEPS)
    for name in PAPER:
        assert {"delivery_ratio", "copies", "delay_s", "lifetime_days"} <= figures[name].keys()
        assert figures[name]["lifetime_runs"] == 10


def test_every_deviation_is_explained(tmp_path: Path) -> None:
    """Every difference from the paper has a reason, and nothing else has one."""
    figures = reproduce(tmp_path, run_shortened, lambda line: None, runs=2)  # type: ignore[arg-type]
    assert all(bool(verdict["why"]) != verdict["reproduced"] for verdict in figures["verdicts"])
    differs = [row["paper"] is not None and abs(row["ours"] - row["paper"]) > row["half"] for row in figures["tables"]]
    assert any(differs)
    assert [bool(row["why"]) for row in figures["tables"]] == differs


def test_runs_are_paired() -> None:
    """Both protocols run in the worlds of the same seeds."""
    groups = all_replications(5)
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
def test_a_change_is_checked_from_first_to_last_point(change: str, values: list[float], holds: bool) -> None:
    """Points in between do not matter."""
    sweep = ALPHA._replace(values=(1, 2))
    results = {
        ("figure 7", f"{at}", "CET"): [{"copies": value + noise} for noise in (0, 0.01, 0.02)]
        for at, value in zip((1, 2), values, strict=True)
    }
    verdict = check_claim(sweep, CetClaim("CET", "copies", change, "chance"), results)
    assert (verdict["reproduced"], verdict["why"]) == (holds, "" if holds else "chance")


def test_an_insignificant_change_is_reported_as_such() -> None:
    """If there is no other reason."""
    sweep = ALPHA._replace(values=(1, 2))
    results = {
        ("figure 7", f"{at}", "CET"): [{"copies": value} for value in values]
        for at, values in ((1, (1.0, 2.0, 3.0)), (2, (1.5, 1.0, 4.0)))
    }
    verdict = check_claim(sweep, CetClaim("CET", "copies", "rises"), results)
    assert "is not significant in 3 runs" in verdict["why"]


def test_another_interpretation_is_tried_if_a_claim_fails() -> None:
    """The reason says whether the claim holds if the community skips events that the mule has."""
    sweep = next(sweep for sweep in SWEEPS if SKIPPING in sweep.protocols)._replace(values=(1, 2))
    results = {
        (f"figure {sweep.figure}", f"{at}", name): [{"copies": value + noise} for noise in (0, 0.01, 0.02)]
        for name, values in (("CET", (2.0, 1.0)), (SKIPPING, (1.0, 2.0)))
        for at, value in zip((1, 2), values, strict=True)
    }
    verdict = check_claim(sweep, CetClaim("CET", "copies", "rises", "keepers"), results)
    assert not verdict["reproduced"]
    assert verdict["why"].startswith("keepers; if the community skips")
    assert verdict["why"].endswith("reproduced")


def test_above_must_hold_at_every_point() -> None:
    """One point at which the two are equal refutes the claim."""
    sweep = SPEED._replace(values=(1, 2))
    results = {
        ("figure 8", f"{at}", name): [{"copies": value + noise} for noise in (0, 0.1, 0.3)]
        for at, name, value in ((1, "CET", 5.0), (1, "DG", 1.0), (2, "CET", 5.0), (2, "DG", 5.0))
    }
    assert check_claim(sweep, CetClaim("CET, DG", "copies", "above"), results)["reproduced"] is False
    assert (
        check_claim(sweep._replace(values=(1,)), CetClaim("CET, DG", "copies", "above"), results)["reproduced"] is True
    )


def test_intervals_use_student_s_t() -> None:
    """For 1, 2, 3 the mean is 2, and the half-width is 4.303 / sqrt(3)."""
    assert mean_of([1.0, 2.0, 3.0]).half == pytest.approx(2.484, abs=1e-3)
    assert paired([3.0, 4.0], [1.0, 2.0]).mean == 2.0
