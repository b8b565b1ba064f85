"""`roamcast bench bind`: moves per second with all bindings kept up to date, compared with k-d trees.

A square with sources of many contexts and subscriptions to them in LACL, half `nearest` and half `nearof()`. Each has
its own subscriber, which is the most expensive case: subscriptions of one subscriber share its position. Batches of
small steps, most of them by subscribers. The binder, as in a node, gets ids and returns effects; the k-d trees get and
return row numbers. Both get the same batches and must report the same changed subscriptions after each; samples of both
are compared with an exhaustive search. The binder starts as after a restart, with the bindings of the k-d trees, and
must report no differences. Kernels are compiled before the measurement.
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
    SubscriptionState,
    Unbound,
)
from roamcast.bind.nearest.kernels.layout import Rule
from roamcast.bind.nearest.rebinding import choose_source
from roamcast.lab.bench.kdtrees import KDTrees
from roamcast.lacl import check, parse
from roamcast.model import Position
from roamcast.space import PLANAR

__all__ = ["BindWorkload", "bench_bind"]

Report = Callable[[str], None]
Int32s = npt.NDArray[np.int32]
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
class BindWorkload:
    """Positions and subscriptions. Entities are the sources, then the subscribers, one for each subscription."""

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
        """All entities and subscriptions. Equal texts share a query, as in a node."""
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

    def batches(self, count: int, size: int) -> Iterator[tuple[Int32s, Floats, Floats]]:
        """Moves of distinct entities, in random order. Also updates the positions of the workload."""
        by_sources = round(size * _BY_SOURCES)
        for _ in range(count):
            sources = self.rng.choice(self.sources, by_sources, replace=False)
            subscribers = self.sources + self.rng.choice(self.subscriptions, size - by_sources, replace=False)
            entities = self.rng.permutation(np.concatenate([sources, subscribers])).astype(np.int32)
            length, angle = self.rng.uniform(*_STEP, size), self.rng.uniform(0, 2 * np.pi, size)
            self.x[entities] = np.clip(self.x[entities] + length * np.cos(angle), 0, _SIDE)
            self.y[entities] = np.clip(self.y[entities] + length * np.sin(angle), 0, _SIDE)
            yield entities, self.x[entities], self.y[entities]

    def reference(self, subscriptions: Int32s) -> Int32s:
        """The sources of these subscriptions by an exhaustive search, or -1."""
        expected = np.empty(len(subscriptions), np.int32)
        for row, subscription in enumerate(subscriptions.tolist()):
            candidates = np.flatnonzero(self.context_of_source == self.context[subscription])
            at = self.sources + subscription
            metres = PLANAR.distance(self.x[at], self.y[at], self.x[candidates], self.y[candidates])
            rule, radius = Rule(self.rule[subscription]), float(self.radius[subscription])
            chosen = choose_source(rule, radius, metres, candidates, np.zeros(len(candidates), np.int64))
            expected[row] = candidates[chosen] if chosen >= 0 else -1
        return expected


def bench_bind(
    report: Report,
    *,
    sources: int = 100_000,
    contexts: int = 100,
    subscriptions: int = 1_000_000,
    moves: int = 5_000_000,
    batch: int = 100_000,
) -> dict[str, Any]:
    """Run the benchmark and return its figures. `different`, `wrong` and `kdtree_wrong` must be 0.

    `bytes_per_subscription` is the memory of the search arrays, `resident_bytes_per_subscription` the growth of the
    resident set when the binder was restored, including the subscribers. `changes_per_move` is the number of changed
    subscriptions for each move. `different` counts disagreements between the binder and the k-d trees. `restore_s`
    includes generating the messages.
    """
    with ThreadPoolExecutor(_LANES) as pool:
        compiled = _timed(lambda: _drive(*_set_up(BindWorkload(2_000, 4, 20_000), pool), 3, 10_000, lambda _: None))
        report(f"compiled in {compiled:.1f} s; {subscriptions} subscriptions with a subscriber each, {sources} sources")
        workload = BindWorkload(sources, contexts, subscriptions)
        peer = _peer(workload, pool)
        bound = peer.bound()
        gc.collect()
        before = _memory()
        binder = Binder(PLANAR, lanes=_LANES, run=pool.map)
        effects: list[Effect] = []
        restored = _timed(lambda: effects.extend(_restore(binder, workload, bound)))
        gc.collect()
        resident = (_memory() - before) / subscriptions
        report(f"restored in {restored:.1f} s, {len(effects)} effects; {resident:.0f} resident bytes per subscription")
        count = max(1, moves // batch)
        result = _drive(workload, binder, peer, count, batch, report)
    return {
        "roamcast_moves_per_s": round(count * batch / result.ours),
        "kdtree_moves_per_s": round(count * batch / result.theirs),
        "ratio": round(result.theirs / result.ours, 2),
        "bytes_per_subscription": round(binder.search_bytes / subscriptions, 1),
        "resident_bytes_per_subscription": round(resident, 1),
        "subscriptions": subscriptions,
        "subscribers": subscriptions,
        "moves": count * batch,
        "changes_per_move": round(result.changed / (count * batch), 5),
        "different": len(effects) + result.different,
        "checked": result.checked,
        "wrong": result.wrong,
        "kdtree_wrong": result.kdtree_wrong,
        "compile_s": round(compiled, 1),
        "restore_s": round(restored, 1),
    }


@dataclass
class _BindResult:
    ours: float = 0.0
    theirs: float = 0.0
    changed: int = 0
    different: int = 0
    checked: int = 0
    wrong: int = 0
    kdtree_wrong: int = 0


def _drive(workload: BindWorkload, binder: Binder, peer: KDTrees, count: int, size: int, report: Report) -> _BindResult:
    result, subscriptions = _BindResult(), np.arange(workload.subscriptions, dtype=np.int32)
    every = max(1, count // _CHECKS)
    for number, (entities, x, y) in enumerate(workload.batches(count, size), 1):
        ids, times = [workload.id(entity) for entity in entities.tolist()], np.full(size, number)
        start = time.perf_counter()
        effects = binder.handle_moves(ids, x, y, times, number)
        between = time.perf_counter()
        kdtree_changed = peer.move(entities, x, y)
        result.ours += between - start
        result.theirs += time.perf_counter() - between
        changed = {effect.subscription for effect in effects if isinstance(effect, Bound | Unbound)}
        result.changed += len(changed)
        result.different += len(changed.symmetric_difference(map(_subscription, kdtree_changed.tolist())))
        if number % every == 0:
            sample = workload.rng.choice(subscriptions, min(_SAMPLE, len(subscriptions)), replace=False)
            expected = workload.reference(sample)
            result.checked += len(sample)
            result.wrong += int((_bound(binder, sample) != expected).sum())
            result.kdtree_wrong += int((peer.bound()[sample] != expected).sum())
            rate = number * size / 1e6
            report(
                f"{number} of {count} batches: {rate / result.ours:.2f} vs. {rate / result.theirs:.2f} million moves/s"
            )
    return result


def _set_up(workload: BindWorkload, pool: ThreadPoolExecutor) -> tuple[BindWorkload, Binder, KDTrees]:
    binder, peer = Binder(PLANAR, lanes=_LANES, run=pool.map), _peer(workload, pool)
    _restore(binder, workload, peer.bound())
    return workload, binder, peer


def _peer(workload: BindWorkload, pool: ThreadPoolExecutor) -> KDTrees:
    return KDTrees(workload.x, workload.y, workload.context_of_source, workload.context, workload.radius, pool)


def _restore(binder: Binder, workload: BindWorkload, bound: Int32s) -> list[Effect]:
    """Restore as after a restart, with bindings and states that have different times."""
    bindings = (
        Bound(_subscription(row), workload.id(source), row) for row, source in enumerate(bound.tolist()) if source >= 0
    )
    states = (
        StateChanged(_subscription(row), SubscriptionState.START if source < 0 else SubscriptionState.ACTIVE, None, row)
        for row, source in enumerate(bound.tolist())
    )
    return binder.restore(workload.messages(), bindings, states, 0)


def _bound(binder: Binder, subscriptions: Int32s) -> Int32s:
    """The sources of these subscriptions, or -1."""
    sources = [binder.status(_subscription(row)).sources for row in subscriptions.tolist()]
    return np.array([int(named[0].removeprefix("source-")) if named else -1 for named in sources], np.int32)


def _subscription(row: int) -> str:
    """32 hexadecimal digits, as nodes generate them, in no particular order."""
    return f"{(row + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128):032x}"


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _memory() -> int:
    """The resident set of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
