"""Run seeds on all cores, and print the trace of one of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

from roamcast.errors import InputError
from roamcast.lab.torture.crashes import POINTS
from roamcast.lab.torture.simulation import TortureSimulation
from roamcast.lab.torture.trace import TraceRecorder
from roamcast.lab.torture.variants import CORRECT, VARIANTS, Variant

__all__ = ["SeedResult", "TortureSummary", "find_variant", "parse_seeds", "replay", "run_seed", "run_seeds"]

_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class SeedResult:
    """Counts and violations of one seed. Crash points are given by their index."""

    seed: int
    letters: int
    expired: int
    migrations: int
    crashes: int
    messages: int
    seconds: float
    points: frozenset[int]
    pairs: frozenset[tuple[int, int]]
    violations: tuple[str, ...]


class TortureSummary:
    """Totals over many seeds."""

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        self.seeds = 0
        self.failed: list[SeedResult] = []
        self._totals = dict.fromkeys(("letters", "expired", "migrations", "crashes", "messages"), 0)
        self._least = dict.fromkeys(("letters", "migrations", "crashes"), 0)
        self._points: set[int] = set()
        self._pairs: set[tuple[int, int]] = set()

    def add(self, outcome: SeedResult) -> None:
        self.seeds += 1
        for name in self._totals:
            self._totals[name] += getattr(outcome, name)
        for name, least in self._least.items():
            count = getattr(outcome, name)
            self._least[name] = count if self.seeds == 1 else min(least, count)
        self._points |= outcome.points
        self._pairs |= outcome.pairs
        if outcome.violations:
            self.failed.append(outcome)

    def to_json(self) -> dict[str, Any]:
        return {
            "variant": self.variant.name,
            "seeds": self.seeds,
            "failed_seeds": sorted(outcome.seed for outcome in self.failed),
            "violations": {str(outcome.seed): list(outcome.violations) for outcome in self.failed},
            **self._totals,
            "least_in_a_seed": self._least,
            "crash_points": {"hit": len(self._points), "of": len(POINTS)},
            "crash_pairs": {"hit": len(self._pairs), "of": len(POINTS) ** 2},
        }


def parse_seeds(text: str) -> range:
    """Parse `A..B`, both included, or a single seed."""
    match = re.fullmatch(r"(\d{1,18})(?:\.\.(\d{1,18}))?", text)
    seeds = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
    if not seeds:
        raise InputError(
            f"{text!r} is not a range of seeds",
            where="--seeds",
            hint="use a range such as 1..2000, or a single seed such as 17",
        )
    return seeds


def find_variant(name: str | None) -> Variant:
    if name is None or name == CORRECT.name:
        return CORRECT
    if name not in VARIANTS:
        raise InputError(f"there is no variant {name!r}", where="--variant", hint="list them with --list-variants")
    return VARIANTS[name]


def run_seed(variant: Variant, seed: int) -> SeedResult:
    simulation = TortureSimulation(seed, variant)
    simulation.run()
    return _outcome(seed, simulation)


def run_seeds(variant: Variant, seeds: Iterable[int], processes: int | None = None) -> Iterator[SeedResult]:
    """Yield results in order of seed, as soon as they are available."""
    processes = processes or os.cpu_count() or 1
    job = partial(_run_variant, variant.name)
    if processes == 1:
        yield from map(job, seeds)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield from pool.map(job, seeds, chunksize=_AT_ONCE)


def replay(variant: Variant, seed: int) -> Iterator[str]:
    """Run a seed again and return its trace, with the violations at the end."""
    recorder = TraceRecorder()
    simulation = TortureSimulation(seed, variant, recorder.record)
    simulation.run()
    return recorder.lines(simulation.checker.violations)


def _run_variant(name: str, seed: int) -> SeedResult:
    return run_seed(find_variant(name), seed)


def _outcome(seed: int, simulation: TortureSimulation) -> SeedResult:
    numbers = {point: at for at, point in enumerate(POINTS)}
    checker = simulation.checker
    return SeedResult(
        seed,
        checker.letters,
        checker.expired,
        checker.migrations,
        simulation.crashes,
        simulation.handled,
        simulation.now / 1e6,
        frozenset(numbers[point] for point in simulation.plan.hit),
        frozenset((numbers[first], numbers[second]) for first, second in simulation.plan.pairs),
        tuple(checker.violations),
    )
