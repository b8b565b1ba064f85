"""The fault simulation: the protocol stands it, the broken ones do not, and it is the same each time."""

from __future__ import annotations

import pytest

from roamcast.lab.torture.crashes import POINTS
from roamcast.lab.torture.run import Outcome, Summary, run_seed, run_seeds
from roamcast.lab.torture.variants import SOUND, VARIANTS
from roamcast.lab.torture.world import CRASHES, LETTERS, MIGRATIONS

SEEDS = range(1, 201)
PATIENCE = 100


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    return list(run_seeds(SOUND, SEEDS, processes=2))


def test_nothing_is_lost_doubled_reordered_or_left_behind(outcomes: list[Outcome]) -> None:
    """In two hundred worlds."""
    assert {outcome.seed: outcome.violations for outcome in outcomes if outcome.violations} == {}
    assert [outcome.seed for outcome in outcomes] == list(SEEDS)


def test_every_world_has_enough_of_everything(outcomes: list[Outcome]) -> None:
    """Letters, migrations and crashes; and some letters outlive their time."""
    for outcome in outcomes:
        assert outcome.letters >= LETTERS >= 500
        assert outcome.migrations >= MIGRATIONS >= 50
        assert outcome.crashes >= CRASHES >= 20
    assert sum(outcome.expired for outcome in outcomes) > 0


def test_offices_crash_at_every_point_and_in_many_pairs(outcomes: list[Outcome]) -> None:
    """Each kind of message, before, unsynced, synced and with some effects gone."""
    summary = Summary(SOUND)
    for outcome in outcomes:
        summary.add(outcome)
    figures = summary.figures()
    assert figures["crash_points"] == {"struck": len(POINTS), "of": len(POINTS)}
    assert figures["crash_pairs"]["struck"] > 1_000


def test_a_seed_is_the_same_world_in_every_process(outcomes: list[Outcome]) -> None:
    """Whatever the process hashes its texts with: the same messages, the same crashes, at the same time."""
    for outcome in outcomes[:3]:
        assert run_seed(SOUND, outcome.seed) == outcome


@pytest.mark.parametrize("name", VARIANTS)
def test_every_broken_protocol_is_caught(name: str) -> None:
    """The test of the tester."""
    caught = (run_seed(VARIANTS[name], seed).violations for seed in range(1, PATIENCE + 1))
    assert any(caught)


def test_there_are_enough_broken_protocols() -> None:
    """At least twenty, each with its own words on what is wrong."""
    assert len({variant.what for variant in VARIANTS.values()}) == len(VARIANTS) >= 20


KINDS = {
    "lost": "expire-silently",
    "duplicated": "ranges-left-behind",
    "reordered": "no-hold-back",
    "invented": "number-by-office",
    "two live mailboxes": "both-serve",
    "forwarding loop": "forward-blindly",
    "home never converges": "home-untold",
    "orphaned": "hand-over-forgotten",
    "definition 5": "friends-left-behind",
    "never settles": "post-once",
}


@pytest.mark.parametrize(("kind", "name"), KINDS.items())
def test_every_checker_finds_what_it_is_for(kind: str, name: str) -> None:
    """By a protocol that is wrong in just that way."""
    found = (run_seed(VARIANTS[name], seed).violations for seed in range(1, PATIENCE + 1))
    assert any(violation.startswith(kind) for violations in found for violation in violations)
