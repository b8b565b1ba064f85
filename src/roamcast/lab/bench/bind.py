"""`roamcast bench bind`: how many moves a second keep every binding right, beside the same by k-d trees.

A square with sources of many contexts and subscriptions to them in LACL, half `nearest` and half `nearof()`, each of a
subscriber of its own: the dearest case, since subscriptions of one subscriber share its position. Batches of small
steps, most by subscribers. The binder, as in a node, gets ids and says effects; the k-d trees get row numbers and say
row numbers. Both get the same batches, and must say after each which subscriptions have another source; samples of both
are compared with brute force. The binder begins as after a restart, with the bindings that the k-d trees found, and
must find nothing different. What is compiled is compiled before.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from roamcast.bind.lcesm.binder import Binder
from roamcast.bind.lcesm.messages import (
    Bound,
    Effect,
    EntityRegistered,
    SourceRegistered,
    StateChanged,
    Subscribed,
    SubscriberRegistered,
    Unbound,
)
from roamcast.bind.lcesm.states import SubscriptionState
from roamcast.bind.nearest.kernels.layout import Rule
from roamcast.bind.nearest.rebinding import choose_source
from roamcast.lab.bench.kdtrees import KDTrees
from roamcast.lacl import check, parse
from roamcast.model import Position
from roamcast.space import PLANAR

__all__ = ["Town", "bench_bind"]

Say = Callable[[str], None]
Integers = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

_SIDE = 100_000.0  # metres
_RADIUS = 5_000.0  # of nearof()
_STEP = 1.0, 15.0
_BY_SOURCES = 0.05
_LANES = 2
_SAMPLE = 2_000
_CHECKS = 5
_NEAREST = "Select Where &context = c{} and &location in nearest"
_NEAROF = f"Select nearof() Where &context = c{{}} and &location in rang:loc({_RADIUS:.0f})"


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

    def id(self, entity: int) -> str:
        return f"source-{entity}" if entity < self.sources else f"subscriber-{entity - self.sources}"

    def messages(self) -> Iterator[EntityRegistered | Subscribed]:
        """Everybody, and what they want. Subscriptions of the same words share a query, as in a node."""
        for entity in range(self.sources + self.subscriptions):
            id = self.id(entity)
            position = Position(id, float(self.x[entity]), float(self.y[entity]), 0)
            if entity < self.sources:
                yield SourceRegistered(id, {"context": f"c{entity % self.contexts}"}, position)
            else:
                yield SubscriberRegistered(id, {}, position)
        queries = [
            [check(parse(text.format(context))) for context in range(self.contexts)] for text in (_NEAREST, _NEAROF)
        ]
        for row, context in enumerate(self.context.tolist()):
            yield Subscribed(_subscription(row), self.id(self.sources + row), queries[row % 2][context])

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
            chosen = choose_source(rule, radius, metres, candidates, np.zeros(len(candidates), np.int64))
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
) -> dict[str, Any]:
    """Figures of one run; `different`, `wrong` and `kdtree_wrong` must be 0.

    `bytes_per_subscription` is the hot state. `bytes_in_all` is what the resident set grew by when the binder was
    restored: everything, the subscriber of each subscription included. `told_agents` is of how many subscriptions
    agents heard, for each move. `different` counts what the binder and the k-d trees did not agree on. `restore_s` has
    the making of what is restored in it.
    """
    with ThreadPoolExecutor(_LANES) as pool:
        compiled = _timed(lambda: _drive(*_made(Town(2_000, 4, 20_000), pool), 3, 10_000, lambda _: None))
        say(
            f"compiled in {compiled:.1f} s; {subscriptions} subscriptions, each with a subscriber, to {sources} sources"
        )
        town = Town(sources, contexts, subscriptions)
        peer = _peer(town, pool)
        bound = peer.bound()
        gc.collect()
        before = _memory()
        binder = Binder(PLANAR, lanes=_LANES, run=pool.map)
        news: list[Effect] = []
        restored = _timed(lambda: news.extend(_restore(binder, town, bound)))
        gc.collect()
        in_all = (_memory() - before) / subscriptions
        say(f"restored in {restored:.1f} s, {len(news)} effects; resident memory: {in_all:.0f} bytes a subscription")
        count = max(1, moves // batch)
        run = _drive(town, binder, peer, count, batch, say)
    return {
        "roamcast_moves_per_s": round(count * batch / run.ours),
        "kdtree_moves_per_s": round(count * batch / run.theirs),
        "ratio": round(run.theirs / run.ours, 2),
        "bytes_per_subscription": round(binder.search_bytes / subscriptions, 1),
        "bytes_in_all": round(in_all, 1),
        "subscriptions": subscriptions,
        "subscribers": subscriptions,
        "moves": count * batch,
        "told_agents": round(run.told / (count * batch), 5),
        "different": len(news) + run.different,
        "checked": run.checked,
        "wrong": run.wrong,
        "kdtree_wrong": run.kdtree_wrong,
        "compile_s": round(compiled, 1),
        "restore_s": round(restored, 1),
    }


@dataclass
class _Run:
    ours: float = 0.0
    theirs: float = 0.0
    told: int = 0
    different: int = 0
    checked: int = 0
    wrong: int = 0
    kdtree_wrong: int = 0


def _drive(town: Town, binder: Binder, peer: KDTrees, count: int, size: int, say: Say) -> _Run:
    run, subscriptions = _Run(), np.arange(town.subscriptions, dtype=np.int32)
    every = max(1, count // _CHECKS)
    for number, (entities, x, y) in enumerate(town.batches(count, size), 1):
        ids, times = [town.id(entity) for entity in entities.tolist()], np.full(size, number)
        began = time.perf_counter()
        effects = binder.handle_moves(ids, x, y, times, number)
        between = time.perf_counter()
        changed = peer.move(entities, x, y)
        run.ours += between - began
        run.theirs += time.perf_counter() - between
        told = {effect.subscription for effect in effects if isinstance(effect, Bound | Unbound)}
        run.told += len(told)
        run.different += len(told.symmetric_difference(map(_subscription, changed.tolist())))
        if number % every == 0:
            sample = town.rng.choice(subscriptions, min(_SAMPLE, len(subscriptions)), replace=False)
            right = town.brute(sample)
            run.checked += len(sample)
            run.wrong += int((_bound(binder, sample) != right).sum())
            run.kdtree_wrong += int((peer.bound()[sample] != right).sum())
            rate = number * size / 1e6
            say(f"{number} of {count} batches: {rate / run.ours:.2f} against {rate / run.theirs:.2f} million moves/s")
    return run


def _made(town: Town, pool: ThreadPoolExecutor) -> tuple[Town, Binder, KDTrees]:
    binder, peer = Binder(PLANAR, lanes=_LANES, run=pool.map), _peer(town, pool)
    _restore(binder, town, peer.bound())
    return town, binder, peer


def _peer(town: Town, pool: ThreadPoolExecutor) -> KDTrees:
    return KDTrees(town.x, town.y, town.context_of_source, town.context, town.radius, pool)


def _restore(binder: Binder, town: Town, bound: Integers) -> list[Effect]:
    """As after a restart, when bindings and states are known, each with a time of its own."""
    bindings = (
        Bound(_subscription(row), town.id(source), row) for row, source in enumerate(bound.tolist()) if source >= 0
    )
    states = (
        StateChanged(_subscription(row), SubscriptionState.START if source < 0 else SubscriptionState.ACTIVE, None, row)
        for row, source in enumerate(bound.tolist())
    )
    return binder.restore(town.messages(), bindings, states, 0)


def _bound(binder: Binder, subscriptions: Integers) -> Integers:
    """The sources of these subscriptions, or -1."""
    sources = [binder.status(_subscription(row)).sources for row in subscriptions.tolist()]
    return np.array([int(named[0].removeprefix("source-")) if named else -1 for named in sources], np.int32)


def _subscription(row: int) -> str:
    """32 hexadecimal digits, as a node gives them, in no order."""
    return f"{(row + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128):032x}"


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _memory() -> int:
    """The resident set of this process, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
