"""The fault simulation: the protocol stands it, the broken ones do not, and it is the same each time."""

from __future__ import annotations

import pytest

from roamcast.torture.crashes import POINTS
from roamcast.torture.run import Outcome, Summary, run_seed, run_seeds
from roamcast.torture.variants import SOUND
from roamcast.torture.world import CRASHES, LETTERS, MIGRATIONS

SEEDS = range(1, 201)


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
