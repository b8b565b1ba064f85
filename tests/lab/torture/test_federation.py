"""Simulated hosts: the correct links pass, every broken variant fails, and runs are reproducible."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest

from roamcast.lab.torture.federation.points import POINTS
from roamcast.lab.torture.federation.variants import CORRECT, VARIANTS
from roamcast.lab.torture.kinds import FEDERATE
from roamcast.lab.torture.run import SeedResult, TortureSummary, replay, run_seed, run_seeds

SEEDS = range(1, 81)  # `roamcast torture` runs more
MOST_SEEDS = 60


@pytest.fixture(scope="module")
def results() -> list[SeedResult]:
    return list(run_seeds(FEDERATE, CORRECT, SEEDS, processes=2))


def test_correct_protocol_has_no_violations(results: list[SeedResult]) -> None:
    assert {result.seed: result.violations for result in results if result.violations} == {}
    assert [result.seed for result in results] == list(SEEDS)


def test_seeds_have_events_crashes_and_visits(results: list[SeedResult]) -> None:
    summary = TortureSummary(FEDERATE, CORRECT)
    for result in results:
        summary.add(result)
        assert result.counts["crashes"] >= 4
    assert summary.totals["events"] >= 30 * len(SEEDS)
    assert summary.totals["promised"] >= 20 * len(SEEDS)
    assert all(summary.totals[name] > 0 for name in ("dropped", "forwarded", "passed_on", "visits"))


def test_hosts_crash_at_every_point_and_at_many_pairs(results: list[SeedResult]) -> None:
    summary = TortureSummary(FEDERATE, CORRECT)
    for result in results:
        summary.add(result)
    figures = summary.to_json()
    assert figures["crash_points"] == {"hit": len(POINTS), "of": len(POINTS)}
    assert figures["crash_pairs"]["hit"] > 50


def test_seed_gives_the_same_result_in_every_process(results: list[SeedResult]) -> None:
    """Hash randomisation has no influence."""
    for result in results[:5]:
        assert run_seed(FEDERATE, CORRECT, result.seed) == result


@cache
def violations_of(variant: str, seed: int) -> Sequence[str]:
    """What a run with a broken variant violates. Several tests look for something in the same runs."""
    return run_seed(FEDERATE, VARIANTS[variant], seed).violations


@pytest.mark.parametrize("name", VARIANTS)
def test_every_broken_variant_is_caught(name: str) -> None:
    caught = (violations_of(name, seed) for seed in range(1, MOST_SEEDS + 1))
    assert any(caught)


def test_there_are_at_least_twelve_different_variants() -> None:
    assert len({variant.description for variant in VARIANTS.values()}) == len(VARIANTS) >= 12


KINDS = {
    "lost": "active-at-once",
    "duplicated": "number-again",
    "deaf": "hold-nothing",
    "wrong source": "hold-forever",
    "wrong wants": "add-snapshots",
    "forwarded again": "forward-everything",
    "uncounted": "drop-silently",
    "unknown": "wants-not-stored",
    "forged": "any-office-speaks",
    "outdated": "any-epoch-speaks",
}


@pytest.mark.parametrize(("kind", "name"), KINDS.items())
def test_every_kind_of_violation_is_reported(kind: str, name: str) -> None:
    results = (violations_of(name, seed) for seed in range(1, MOST_SEEDS + 1))
    assert any(violation.startswith(kind) for violations in results for violation in violations)


def test_a_replay_ends_with_the_violations() -> None:
    variant = VARIANTS["forward-everything"]
    seed = next(seed for seed in SEEDS if run_seed(FEDERATE, variant, seed).violations)
    *trace, last = replay(FEDERATE, variant, seed)
    assert last.startswith("violation: ")
    assert any("publishes" in line for line in trace)
