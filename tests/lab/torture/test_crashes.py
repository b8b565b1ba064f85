"""Crash plans cover all crash points."""

from __future__ import annotations

from itertools import product
from random import Random

from roamcast.lab.torture.crashes import ALONE, IN_PAIRS, POINTS, TIMEOUT, CrashPlan, CrashPoint


def completed_plan(seed: int) -> CrashPlan:
    """A plan executed while every point is reached all the time."""
    plan = CrashPlan(seed, Random(seed))
    now = 0
    while plan.done < 1:
        assert not plan.advance(now)
        for point in POINTS:
            plan.crashes_at([point.kind], point.phase, now)
        now += TIMEOUT // 2
    return plan


def test_plan_has_single_points_and_pairs() -> None:
    plan = completed_plan(17)
    assert len(plan.hit) == ALONE + 2 * IN_PAIRS >= 20
    assert len(plan.pairs) == IN_PAIRS


def test_enough_seeds_cover_all_points_and_all_ordered_pairs() -> None:
    count = len(POINTS)
    points: set[CrashPoint] = set()
    pairs: set[tuple[CrashPoint, CrashPoint]] = set()
    for seed in range(1, count**2 // IN_PAIRS + 2):
        plan = completed_plan(seed)
        points |= set(plan.hit)
        pairs |= set(plan.pairs)
    assert points == set(POINTS)
    assert pairs == set(product(POINTS, POINTS))


def test_point_that_is_never_reached_times_out() -> None:
    """The plan continues; an idle office crashes instead."""
    plan = CrashPlan(1, Random(1))
    timeouts, now = 0, 0
    while plan.done < 1:
        timeouts += plan.advance(now)
        now += TIMEOUT
    assert timeouts == plan.missed == ALONE + 2 * IN_PAIRS
