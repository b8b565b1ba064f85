"""Run seeds on all cores, and print the trace of one of them."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

from roamcast.errors import InputError
from roamcast.lab.torture.kinds import TORTURES, Torture, Variant
from roamcast.lab.torture.trace import TraceRecorder

__all__ = ["SeedResult", "TortureSummary", "parse_seeds", "replay", "run_seed", "run_seeds"]

_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class SeedResult:
    """Counts and violations of one seed. Crash points are given by their index."""

    seed: int
    counts: Mapping[str, int]
    seconds: float
    points: frozenset[int]
    pairs: frozenset[tuple[int, int]]
    violations: tuple[str, ...]


class TortureSummary:
    """Totals over many seeds."""

    def __init__(self, torture: Torture, variant: Variant) -> None:
        self.torture = torture
        self.variant = variant
        self.seeds = 0
        self.failed: list[SeedResult] = []
        self.totals: Counter[str] = Counter()
        self._least: dict[str, int] = {}
        self._points: set[int] = set()
        self._pairs: set[tuple[int, int]] = set()

    def add(self, outcome: SeedResult) -> None:
        self.seeds += 1
        self.totals.update(outcome.counts)
        for name in self.torture.least:
            count = outcome.counts[name]
            self._least[name] = min(count, self._least.get(name, count))
        self._points |= outcome.points
        self._pairs |= outcome.pairs
        if outcome.violations:
            self.failed.append(outcome)

    def to_json(self) -> dict[str, Any]:
        points = len(self.torture.points)
        return {
            "variant": self.variant.name,
            "seeds": self.seeds,
            "failed_seeds": sorted(outcome.seed for outcome in self.failed),
            "violations": {str(outcome.seed): list(outcome.violations) for outcome in self.failed},
            **self.totals,
            "least_in_a_seed": self._least,
            "crash_points": {"hit": len(self._points), "of": points},
            "crash_pairs": {"hit": len(self._pairs), "of": points**2},
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


def run_seed(torture: Torture, variant: Variant, seed: int) -> SeedResult:
    simulation = torture.simulate(seed, variant)
    simulation.run()
    numbers = {point: at for at, point in enumerate(torture.points)}
    plan = simulation.plan
    return SeedResult(
        seed,
        dict(simulation.counts),
        simulation.now / 1e6,
        frozenset(numbers[point] for point in plan.hit),
        frozenset((numbers[first], numbers[second]) for first, second in plan.pairs),
        tuple(simulation.violations),
    )


def run_seeds(
    torture: Torture, variant: Variant, seeds: Iterable[int], processes: int | None = None
) -> Iterator[SeedResult]:
    """Yield results in order of seed, as soon as they are available."""
    processes = processes or os.cpu_count() or 1
    job = partial(_run_named, torture.name, variant.name)
    if processes == 1:
        yield from map(job, seeds)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield from pool.map(job, seeds, chunksize=_AT_ONCE)


def replay(torture: Torture, variant: Variant, seed: int) -> Iterator[str]:
    """Run a seed again and return its trace, with the violations at the end."""
    recorder = TraceRecorder()
    simulation = torture.simulate(seed, variant, recorder.record)
    simulation.run()
    return recorder.lines(simulation.violations)


def _run_named(torture: str, variant: str, seed: int) -> SeedResult:
    return run_seed(TORTURES[torture], TORTURES[torture].variant(variant), seed)
