"""Worlds with trees several levels deep: samples are compared with brute force, and lanes with each other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from roamcast.bind.nearest.forest import Integers
from roamcast.bind.nearest.reference import choose
from roamcast.bind.nearest.watch import Changes, Rule, Watch
from roamcast.space import GEOGRAPHIC, PLANAR, Floats, Space

SOURCES, SUBSCRIBERS, GROUPS = 3_000, 6_000, 3


class Town:
    """Sources and subscribers in a square, the sources crowded; each source is in one or two groups."""

    def __init__(self, space: Space, lanes: int = 1, pool: ThreadPoolExecutor | None = None) -> None:
        self.space = space
        self.rng = np.random.default_rng(5)
        self.side, self.radius = (1.0, 3_000.0) if space is GEOGRAPHIC else (100_000.0, 3_000.0)
        self.watch = Watch(space, lanes=lanes, run=pool.map if pool else map)
        groups = [self.watch.add_group() for _ in range(GROUPS)]
        self.x, self.y = self.square(SOURCES + SUBSCRIBERS) ** np.where(
            np.arange(SOURCES + SUBSCRIBERS) < SOURCES, 2, 1
        )
        self.x, self.y = 8 + self.x * self.side, 53 + self.y * self.side
        ids = [f"{n:05}" for n in self.rng.permutation(SOURCES)]
        self.order = np.array([int(id) for id in ids])
        self.sources = self.watch.add_sources(ids, self.x[:SOURCES], self.y[:SOURCES])
        self.member = self.rng.random((SOURCES, GROUPS)) < [1.0, 0.5, 0.01]
        pairs = np.argwhere(self.member)
        self.watch.join(self.sources[pairs[:, 0]], np.array(groups)[pairs[:, 1]])
        subscribers = self.watch.add_subscribers(self.x[SOURCES:], self.y[SOURCES:])
        self.entity = self.rng.choice(subscribers, 2 * SUBSCRIBERS)
        self.group = self.rng.integers(0, GROUPS, 2 * SUBSCRIBERS)
        self.rule = self.rng.choice(np.array(Rule), 2 * SUBSCRIBERS)
        self.subscriptions, _ = self.watch.subscribe(self.entity, self.group, self.rule, self.radius)

    def square(self, count: int) -> Floats:
        return self.rng.random((2, count))

    def step(self, moves: int, way: float) -> Changes:
        entities = self.rng.integers(0, SOURCES + SUBSCRIBERS, moves).astype(np.int32)
        for axis in (self.x, self.y):
            axis[entities] += self.rng.normal(0, way * self.side, moves)
        return self.watch.move(entities, self.x[entities], self.y[entities])

    def assert_right(self, sample: Integers) -> None:
        """By brute force; ANYOF may be bound to any that is within the radius."""
        for s, bound in zip(sample.tolist(), self.watch.bound(self.subscriptions[sample]).tolist(), strict=True):
            sources = np.flatnonzero(self.member[:, self.group[s]])
            at = self.entity[s]
            metres = self.space.distance(self.x[at], self.y[at], self.x[sources], self.y[sources])
            if self.rule[s] == Rule.ANYOF:
                within = sources[metres <= self.radius].tolist()
                assert bound in (within or [-1])
            else:
                rule = Rule(self.rule[s])
                row = choose(rule, self.radius, metres, self.order[sources], np.zeros(len(sources), np.int64))
                assert bound == (sources[row] if row >= 0 else -1)


@pytest.mark.parametrize("space", [PLANAR, GEOGRAPHIC], ids=lambda space: space.name)
def test_samples_agree_with_brute_force(space: Space) -> None:
    """After small steps, after large ones, and after some sources have gone."""
    town = Town(space)
    for way in (1e-5, 1e-4, 1e-3, 1e-2, 1e-5, 0.3, 1e-4):
        town.step(4_000, way)
        town.assert_right(town.rng.choice(2 * SUBSCRIBERS, 200, replace=False))
    gone = town.sources[::3]
    town.watch.leave(gone, 0)
    town.member[::3, 0] = False
    town.step(4_000, 1e-4)
    town.assert_right(town.rng.choice(2 * SUBSCRIBERS, 400, replace=False))


@pytest.mark.parametrize("space", [PLANAR, GEOGRAPHIC], ids=lambda space: space.name)
def test_samples_agree_when_many_come_and_go_and_move_at_once(space: Space) -> None:
    """Also where a group has to be laid out anew for those who come."""
    town = Town(space)
    for share in (0.5, 0.9, 0.2, 0.5):
        before, town.member = town.member, town.rng.random((SOURCES, GROUPS)) < share
        left, come = np.argwhere(before & ~town.member), np.argwhere(town.member & ~before)
        moved = town.rng.permutation(SOURCES + SUBSCRIBERS)[:2_000].astype(np.int32)
        for axis in (town.x, town.y):
            axis[moved] += town.rng.normal(0, 1e-2 * town.side, len(moved))
        town.watch.move(
            moved,
            town.x[moved],
            town.y[moved],
            leaving=(town.sources[left[:, 0]], left[:, 1]),
            joining=(town.sources[come[:, 0]], come[:, 1]),
        )
        town.assert_right(town.rng.choice(2 * SUBSCRIBERS, 400, replace=False))


def test_results_do_not_depend_on_lanes() -> None:
    """The same changes, in the same order, with one lane and with three at once."""
    with ThreadPoolExecutor(3) as pool:
        one, three = Town(PLANAR), Town(PLANAR, 3, pool)
        for way in (1e-4, 1e-3, 1e-2, 0.1):
            for a, b in zip(*(vars_of(town.step(5_000, way)) for town in (one, three)), strict=True):
                assert a.tolist() == b.tolist()


def vars_of(changes: Changes) -> tuple[Integers, Integers, Integers]:
    return changes.subscription, changes.old, changes.new


def test_memory_does_not_grow_with_what_comes_and_goes() -> None:
    """Sleeping and waking, leaving and joining, many times over."""
    town = Town(PLANAR)
    before = town.watch.nbytes
    for n in range(30):
        some = town.subscriptions[n % 3 :: 3]
        town.watch.sleep(some)
        town.watch.leave(town.sources[n % 5 :: 5], 0)
        town.watch.join(town.sources[n % 5 :: 5], 0)
        town.watch.wake(some)
    assert town.watch.nbytes <= 2 * before
    town.assert_right(town.rng.choice(2 * SUBSCRIBERS, 100, replace=False))


def test_most_moves_are_not_looked_at() -> None:
    """Steps that are small beside the distances between sources hardly ever lead to a search."""
    town = Town(PLANAR)
    before = town.watch.searches
    for _ in range(5):
        town.step(4_000, 1e-6)
    assert town.watch.searches - before < 20_000 * 0.05
