"""Trees several levels deep: compares samples with the reference choice, and lanes with each other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from nearest_reference import join, leave

from roamcast.bind.nearest.kernels.layout import Int32s
from roamcast.bind.nearest.rebinding import choose_source
from roamcast.bind.nearest.sources import BindingChanges, NearestSources, Rule
from roamcast.space import GEOGRAPHIC, PLANAR, Floats, Space

SOURCES, SUBSCRIBERS, GROUPS = 3_000, 6_000, 3


class Town:
    """Sources and subscribers in a square, the sources clustered; each source is in up to three groups."""

    def __init__(self, space: Space, lanes: int = 1, pool: ThreadPoolExecutor | None = None) -> None:
        self.space = space
        self.rng = np.random.default_rng(5)
        self.side, self.radius = (1.0, 3_000.0) if space is GEOGRAPHIC else (100_000.0, 3_000.0)
        self.nearest = NearestSources(space, lanes=lanes, run=pool.map if pool else map)
        groups = [self.nearest.add_group() for _ in range(GROUPS)]
        self.x, self.y = self.square(SOURCES + SUBSCRIBERS) ** np.where(
            np.arange(SOURCES + SUBSCRIBERS) < SOURCES, 2, 1
        )
        self.x, self.y = 8 + self.x * self.side, 53 + self.y * self.side
        ids = [f"{n:05}" for n in self.rng.permutation(SOURCES)]
        self.order = np.array([int(id) for id in ids])
        self.sources = self.nearest.add_sources(ids, self.x[:SOURCES], self.y[:SOURCES])
        self.member = self.rng.random((SOURCES, GROUPS)) < [1.0, 0.5, 0.01]
        pairs = np.argwhere(self.member)
        join(self.nearest, self.sources[pairs[:, 0]], np.array(groups)[pairs[:, 1]])
        subscribers = self.nearest.add_subscribers(self.x[SOURCES:], self.y[SOURCES:])
        self.entity = self.rng.choice(subscribers, 2 * SUBSCRIBERS)
        self.group = self.rng.integers(0, GROUPS, 2 * SUBSCRIBERS)
        self.rule = self.rng.choice(np.array(Rule), 2 * SUBSCRIBERS)
        self.subscriptions, _ = self.nearest.add_subscriptions(self.entity, self.group, self.rule, self.radius)

    def square(self, count: int) -> Floats:
        return self.rng.random((2, count))

    def step(self, moves: int, way: float) -> BindingChanges:
        entities = self.rng.integers(0, SOURCES + SUBSCRIBERS, moves).astype(np.int32)
        for axis in (self.x, self.y):
            axis[entities] += self.rng.normal(0, way * self.side, moves)
        return self.nearest.move(entities, self.x[entities], self.y[entities])

    def check_bindings(self, sample: Int32s) -> None:
        """Measure every source; ANYOF may be bound to any one within the radius."""
        for s, bound in zip(sample.tolist(), self.nearest.source_of(self.subscriptions[sample]).tolist(), strict=True):
            sources = np.flatnonzero(self.member[:, self.group[s]])
            at = self.entity[s]
            metres = self.space.distance(self.x[at], self.y[at], self.x[sources], self.y[sources])
            if self.rule[s] == Rule.ANYOF:
                within = sources[metres <= self.radius].tolist()
                assert bound in (within or [-1])
            else:
                rule = Rule(self.rule[s])
                row = choose_source(rule, self.radius, metres, self.order[sources], np.zeros(len(sources), np.int64))
                assert bound == (sources[row] if row >= 0 else -1)


@pytest.mark.parametrize("space", [PLANAR, GEOGRAPHIC], ids=lambda space: space.name)
def test_bindings_are_right_after_steps_of_all_sizes(space: Space) -> None:
    """Also after some sources have left a group."""
    town = Town(space)
    for way in (1e-5, 1e-4, 1e-3, 1e-2, 1e-5, 0.3, 1e-4):
        town.step(4_000, way)
        town.check_bindings(town.rng.choice(2 * SUBSCRIBERS, 200, replace=False))
    leaving = town.sources[::3]
    leave(town.nearest, leaving, 0)
    town.member[::3, 0] = False
    town.step(4_000, 1e-4)
    town.check_bindings(town.rng.choice(2 * SUBSCRIBERS, 400, replace=False))


@pytest.mark.parametrize("space", [PLANAR, GEOGRAPHIC], ids=lambda space: space.name)
def test_bindings_are_right_when_many_join_leave_and_move_at_once(space: Space) -> None:
    """Also where the tree of a group has to grow."""
    town = Town(space)
    for share in (0.5, 0.9, 0.2, 0.5):
        before, town.member = town.member, town.rng.random((SOURCES, GROUPS)) < share
        left, joined = np.argwhere(before & ~town.member), np.argwhere(town.member & ~before)
        moved = town.rng.permutation(SOURCES + SUBSCRIBERS)[:2_000].astype(np.int32)
        for axis in (town.x, town.y):
            axis[moved] += town.rng.normal(0, 1e-2 * town.side, len(moved))
        town.nearest.move(
            moved,
            town.x[moved],
            town.y[moved],
            leaving=(town.sources[left[:, 0]], left[:, 1]),
            joining=(town.sources[joined[:, 0]], joined[:, 1]),
        )
        town.check_bindings(town.rng.choice(2 * SUBSCRIBERS, 400, replace=False))


def test_results_do_not_depend_on_lanes() -> None:
    """One lane and three concurrent ones report the same changes in the same order."""
    with ThreadPoolExecutor(3) as pool:
        one, three = Town(PLANAR), Town(PLANAR, 3, pool)
        for way in (1e-4, 1e-3, 1e-2, 0.1):
            for a, b in zip(*(columns_of(town.step(5_000, way)) for town in (one, three)), strict=True):
                assert a.tolist() == b.tolist()


def columns_of(changes: BindingChanges) -> tuple[Int32s, Int32s, Int32s]:
    return changes.subscription, changes.old, changes.new


def test_memory_does_not_grow_with_churn() -> None:
    """Suspending and resuming, leaving and joining, many times."""
    town = Town(PLANAR)
    before = town.nearest.nbytes
    for n in range(30):
        some = town.subscriptions[n % 3 :: 3]
        town.nearest.suspend(some)
        leave(town.nearest, town.sources[n % 5 :: 5], 0)
        join(town.nearest, town.sources[n % 5 :: 5], 0)
        town.nearest.resume(some)
    assert town.nearest.nbytes <= 2 * before
    town.check_bindings(town.rng.choice(2 * SUBSCRIBERS, 100, replace=False))


def test_most_small_moves_need_no_search() -> None:
    """Steps that are short compared to the distances between sources."""
    town = Town(PLANAR)
    before = town.nearest.searches
    for _ in range(5):
        town.step(4_000, 1e-6)
    assert town.nearest.searches - before < 20_000 * 0.05
