"""`roamcast bench bind`: how many moves a second keep every binding right, beside the same by k-d trees.

A square with sources of many contexts and subscriptions to them, half NEAREST and half NEAROF, each of a subscriber of
its own. Batches of small steps, most by subscribers. Both sides get the same batches, and must end each with the right
source for every subscription; samples of both are compared with brute force. What is compiled is compiled before.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from roamcast.bench.kdtrees import KDTrees
from roamcast.bind.brute import choose
from roamcast.bind.watch import Rule, Watch
from roamcast.space import PLANAR

__all__ = ["Town", "bench_bind"]

Say = Callable[[str], None]
Integers = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

_SIDE = 100_000.0  # metres
_RADIUS = 5_000.0  # of NEAROF
_STEP = 1.0, 15.0
_BY_SOURCES = 0.05
_LANES = 2
_SAMPLE = 2_000
_CHECKS = 5


@dataclass
class Town:
    """Where everybody is. Entities are the sources, then the subscribers, one for each subscription."""

    sources: int
    contexts: int
    subscriptions: int
    seed: int = 7
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.x, self.y = self.rng.uniform(0, _SIDE, (2, self.sources + self.subscriptions))
        self.context_of_source = np.arange(self.sources, dtype=np.int32) % self.contexts
        self.context = self.rng.integers(0, self.contexts, self.subscriptions).astype(np.int32)
        self.rule = np.where(np.arange(self.subscriptions) % 2, Rule.NEAROF, Rule.NEAREST).astype(np.int8)
        self.radius = np.where(self.rule == Rule.NEAREST, np.inf, _RADIUS)

    def batches(self, count: int, size: int) -> Iterator[tuple[Integers, Floats, Floats]]:
        """Moves of different entities, in any order. This town moves with each batch."""
        by_sources = round(size * _BY_SOURCES)
        for _ in range(count):
            sources = self.rng.choice(self.sources, by_sources, replace=False)
            subscribers = self.sources + self.rng.choice(self.subscriptions, size - by_sources, replace=False)
            entities = self.rng.permutation(np.concatenate([sources, subscribers])).astype(np.int32)
            way, turn = self.rng.uniform(*_STEP, size), self.rng.uniform(0, 2 * np.pi, size)
            self.x[entities] = np.clip(self.x[entities] + way * np.cos(turn), 0, _SIDE)
            self.y[entities] = np.clip(self.y[entities] + way * np.sin(turn), 0, _SIDE)
            yield entities, self.x[entities], self.y[entities]

    def brute(self, subscriptions: Integers) -> Integers:
        """The right sources of these subscriptions, or -1."""
        right = np.empty(len(subscriptions), np.int32)
        for row, subscription in enumerate(subscriptions.tolist()):
            candidates = np.flatnonzero(self.context_of_source == self.context[subscription])
            at = self.sources + subscription
            metres = PLANAR.distance(self.x[at], self.y[at], self.x[candidates], self.y[candidates])
            rule, radius = Rule(self.rule[subscription]), float(self.radius[subscription])
            chosen = choose(rule, radius, metres, candidates, np.zeros(len(candidates), np.int64))
            right[row] = candidates[chosen] if chosen >= 0 else -1
        return right


def bench_bind(
    say: Say,
    *,
    sources: int = 100_000,
    contexts: int = 100,
    subscriptions: int = 1_000_000,
    moves: int = 5_000_000,
    batch: int = 100_000,
) -> dict[str, float]:
    """Figures of one run; `wrong` and `kdtree_wrong` must be 0."""
    with ThreadPoolExecutor(_LANES) as pool:
        compiled = _timed(lambda: _warm_up(pool))
        say(f"compiled in {compiled:.1f} s; loading {subscriptions} subscriptions to {sources} sources")
        before = _memory()
        town = Town(sources, contexts, subscriptions)
        watch = Watch(PLANAR, lanes=_LANES, run=pool.map)
        loaded = _timed(lambda: _load(watch, town))
        in_all = _memory() - before
        peer = KDTrees(town.x, town.y, town.context_of_source, town.context, town.radius, pool)
        say(f"loaded in {loaded:.1f} s, {watch.nbytes / subscriptions:.0f} bytes a subscription")
        count = max(1, moves // batch)
        run = _drive(town, watch, peer, count, batch, say)
    return {
        "roamcast_moves_per_s": round(count * batch / run.ours),
        "kdtree_moves_per_s": round(count * batch / run.theirs),
        "ratio": round(run.theirs / run.ours, 2),
        "bytes_per_subscription": round(watch.nbytes / subscriptions, 1),
        "bytes_in_all_per_subscription": round(in_all / subscriptions, 1),
        "moves": count * batch,
        "searches": run.searches,
        "bindings_changed": run.changed,
        "checked": run.checked,
        "wrong": run.wrong,
        "kdtree_wrong": run.kdtree_wrong,
        "compile_s": round(compiled, 1),
        "load_s": round(loaded, 2),
    }


@dataclass
class _Run:
    ours: float = 0.0
    theirs: float = 0.0
    searches: int = 0
    changed: int = 0
    checked: int = 0
    wrong: int = 0
    kdtree_wrong: int = 0


def _drive(town: Town, watch: Watch, peer: KDTrees, count: int, size: int, say: Say) -> _Run:
    run, searches, subscriptions = _Run(), watch.searches, np.arange(town.subscriptions, dtype=np.int32)
    every = max(1, count // _CHECKS)
    for number, (entities, x, y) in enumerate(town.batches(count, size), 1):
        began = time.perf_counter()
        run.changed += len(watch.move(entities, x, y))
        between = time.perf_counter()
        peer.move(entities, x, y)
        run.ours += between - began
        run.theirs += time.perf_counter() - between
        if number % every == 0:
            sample = town.rng.choice(subscriptions, min(_SAMPLE, len(subscriptions)), replace=False)
            right = town.brute(sample)
            run.checked += len(sample)
            run.wrong += int((watch.bound(sample) != right).sum())
            run.kdtree_wrong += int((peer.bound(sample) != right).sum())
            rate = number * size / 1e6
            say(f"{number} of {count} batches: {rate / run.ours:.2f} against {rate / run.theirs:.2f} million moves/s")
    run.searches = watch.searches - searches
    return run


def _load(watch: Watch, town: Town) -> None:
    """Entities get the same numbers as in the town."""
    groups = np.array([watch.add_group() for _ in range(town.contexts)], np.int32)
    split = town.sources
    sources = watch.add_sources([f"source-{n}" for n in range(split)], town.x[:split], town.y[:split])
    watch.join(sources, groups[town.context_of_source])
    subscribers = watch.add_subscribers(town.x[split:], town.y[split:])
    watch.subscribe(subscribers, groups[town.context], town.rule, town.radius)


def _warm_up(pool: ThreadPoolExecutor) -> None:
    """A small town, with all that is measured."""
    town = Town(2_000, 4, 20_000)
    watch = Watch(PLANAR, lanes=_LANES, run=pool.map)
    _load(watch, town)
    peer = KDTrees(town.x, town.y, town.context_of_source, town.context, town.radius, pool)
    for batch in town.batches(3, 10_000):
        watch.move(*batch)
        peer.move(*batch)


def _timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _memory() -> float:
    """The most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
