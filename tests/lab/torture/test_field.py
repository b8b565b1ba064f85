"""Simulated fields: the correct nodes and mules pass, every broken variant fails, and runs are reproducible."""

from __future__ import annotations

import pytest

from roamcast.lab.torture.field.points import POINTS
from roamcast.lab.torture.field.variants import CORRECT, VARIANTS
from roamcast.lab.torture.kinds import FIELD, KERNELS
from roamcast.lab.torture.run import SeedResult, TortureSummary, replay, run_seed, run_seeds

SEEDS = range(1, 81)  # `roamcast torture` runs more
MOST_SEEDS = 60


@pytest.fixture(scope="module")
def results() -> list[SeedResult]:
    return list(run_seeds(FIELD, CORRECT, SEEDS, processes=2))


def test_correct_nodes_have_no_violations(results: list[SeedResult]) -> None:
    assert {result.seed: result.violations for result in results if result.violations} == {}
    assert [result.seed for result in results] == list(SEEDS)


def test_events_take_every_way_and_are_dropped_by_every_rule(results: list[SeedResult]) -> None:
    summary = TortureSummary(FIELD, CORRECT)
    for result in results:
        summary.add(result)
    totals = summary.totals
    assert totals["taken"] == totals["collected"] >= 20 * len(SEEDS)
    assert totals["crashes"] >= 4 * len(SEEDS)
    assert all(totals[f"dropped_{rule}"] > 0 for rule in ("full", "expired", "spent", "stranded"))
    assert totals["relayed"] > 0 < totals["put_back"]


def test_nodes_crash_at_every_point(results: list[SeedResult]) -> None:
    summary = TortureSummary(FIELD, CORRECT)
    for result in results:
        summary.add(result)
    assert summary.to_json()["crash_points"] == {"hit": len(POINTS), "of": len(POINTS)}


def test_seed_gives_the_same_result_in_every_process(results: list[SeedResult]) -> None:
    """Hash randomisation has no influence."""
    for result in results[:3]:
        assert run_seed(FIELD, CORRECT, result.seed) == result


@pytest.mark.parametrize("name", VARIANTS)
def test_every_broken_variant_is_caught(name: str) -> None:
    assert any(run_seed(FIELD, VARIANTS[name], seed).violations for seed in range(1, MOST_SEEDS + 1))


def test_there_are_at_least_twelve_different_variants() -> None:
    assert len({variant.description for variant in VARIANTS.values()}) == len(VARIANTS) >= 12


def test_a_replay_ends_with_the_violations() -> None:
    *trace, last = replay(FIELD, VARIANTS["forget-cargo"], 3)
    assert last.startswith("violation: lost")
    assert any("crashes" in line for line in trace)


def test_kernels_equal_the_cores() -> None:
    """`roamcast torture kernels` compares more fields."""
    results = [run_seed(KERNELS, KERNELS.correct, seed) for seed in range(1, 51)]
    assert [result.violations for result in results if result.violations] == []
    assert sum(result.counts["transfers"] for result in results) > 1_000
