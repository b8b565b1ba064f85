"""Where offices crash."""

from __future__ import annotations

from itertools import product
from random import Random

from roamcast.lab.torture.crashes import ALONE, IN_PAIRS, PATIENCE, POINTS, CrashPlan, Point


def struck(seed: int) -> CrashPlan:
    """A plan gone through with every point passed at every moment."""
    plan = CrashPlan(seed, Random(seed))
    now = 0
    while plan.done < 1:
        assert not plan.go_on(now)
        for point in POINTS:
            plan.strikes([point.kind], point.phase, now)
        now += PATIENCE // 2
    return plan


def test_a_plan_strikes_alone_and_in_pairs() -> None:
    """As many as it says."""
    plan = struck(17)
    assert len(plan.struck) == ALONE + 2 * IN_PAIRS >= 20
    assert len(plan.pairs) == IN_PAIRS


def test_enough_seeds_go_through_all_points_and_all_pairs() -> None:
    """Each point alone, each ordered pair of points."""
    count = len(POINTS)
    points: set[Point] = set()
    pairs: set[tuple[Point, Point]] = set()
    for seed in range(1, count**2 // IN_PAIRS + 2):
        plan = struck(seed)
        points |= set(plan.struck)
        pairs |= set(plan.pairs)
    assert points == set(POINTS)
    assert pairs == set(product(POINTS, POINTS))


def test_a_point_that_is_never_passed_is_given_up() -> None:
    """An office crashes at rest instead, and the plan goes on."""
    plan = CrashPlan(1, Random(1))
    vain, now = 0, 0
    while plan.done < 1:
        vain += plan.go_on(now)
        now += PATIENCE
    assert vain == plan.missed == ALONE + 2 * IN_PAIRS
