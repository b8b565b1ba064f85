"""The correct protocol passes, every broken variant fails, and runs are reproducible."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest

from roamcast.lab.torture.crashes import POINTS
from roamcast.lab.torture.kinds import DELIVER
from roamcast.lab.torture.run import SeedResult, TortureSummary, run_seed, run_seeds
from roamcast.lab.torture.simulation import CRASHES, LETTERS, MIGRATIONS
from roamcast.lab.torture.variants import CORRECT, VARIANTS

SEEDS = range(1, 81)  # `roamcast torture` runs more
MOST_SEEDS = 100


@pytest.fixture(scope="module")
def results() -> list[SeedResult]:
    return list(run_seeds(DELIVER, CORRECT, SEEDS, processes=2))


def test_correct_protocol_has_no_violations(results: list[SeedResult]) -> None:
    assert {result.seed: result.violations for result in results if result.violations} == {}
    assert [result.seed for result in results] == list(SEEDS)


def test_every_seed_has_enough_letters_migrations_and_crashes(results: list[SeedResult]) -> None:
    for result in results:
        assert result.counts["letters"] >= LETTERS >= 500
        assert result.counts["migrations"] >= MIGRATIONS >= 50
        assert result.counts["crashes"] >= CRASHES >= 20
    assert sum(result.counts["expired"] for result in results) > 0


def test_offices_crash_at_every_point_and_at_many_pairs(results: list[SeedResult]) -> None:
    summary = TortureSummary(DELIVER, CORRECT)
    for result in results:
        summary.add(result)
    figures = summary.to_json()
    assert figures["crash_points"] == {"hit": len(POINTS), "of": len(POINTS)}
    assert figures["crash_pairs"]["hit"] > 500


def test_seed_gives_the_same_result_in_every_process(results: list[SeedResult]) -> None:
    """Hash randomisation has no influence."""
    for result in results[:3]:
        assert run_seed(DELIVER, CORRECT, result.seed) == result


@cache
def violations_of(variant: str, seed: int) -> Sequence[str]:
    """What a run with a broken variant violates. Several tests look for something in the same runs."""
    return run_seed(DELIVER, VARIANTS[variant], seed).violations


@pytest.mark.parametrize("name", VARIANTS)
def test_every_broken_variant_is_caught(name: str) -> None:
    caught = (violations_of(name, seed) for seed in range(1, MOST_SEEDS + 1))
    assert any(caught)


def test_there_are_at_least_twenty_different_variants() -> None:
    assert len({variant.description for variant in VARIANTS.values()}) == len(VARIANTS) >= 20


KINDS = {
    "lost": "expire-silently",
    "duplicated": "received-left-behind",
    "reordered": "no-hold-back",
    "invented": "number-per-office",
    "two live mailboxes": "serve-while-leaving",
    "forwarding loop": "forward-any-epoch",
    "home never converges": "home-not-notified",
    "orphaned": "hand-over-forgotten",
    "definition 5": "friends-left-behind",
    "never settles": "post-once",
}


@pytest.mark.parametrize(("kind", "name"), KINDS.items())
def test_every_kind_of_violation_is_reported(kind: str, name: str) -> None:
    results = (violations_of(name, seed) for seed in range(1, MOST_SEEDS + 1))
    assert any(violation.startswith(kind) for violations in results for violation in violations)
