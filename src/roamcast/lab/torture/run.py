"""Running seeds, on all cores, and telling what happened in one of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

from roamcast.errors import InputError, NotFoundError
from roamcast.lab.torture.crashes import POINTS
from roamcast.lab.torture.trace import Story
from roamcast.lab.torture.variants import SOUND, VARIANTS, Variant
from roamcast.lab.torture.world import World

__all__ = ["Outcome", "Summary", "replay", "run_seed", "run_seeds", "seeds_of", "variant_of"]

_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one seed went through, and what it found. Points of crashes are given by their index."""

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


class Summary:
    """Many outcomes, counted."""

    def __init__(self, variant: Variant) -> None:
        self.variant = variant
        self.seeds = 0
        self.failed: list[Outcome] = []
        self._totals = dict.fromkeys(("letters", "expired", "migrations", "crashes", "messages"), 0)
        self._least = dict.fromkeys(("letters", "migrations", "crashes"), 0)
        self._points: set[int] = set()
        self._pairs: set[tuple[int, int]] = set()

    def add(self, outcome: Outcome) -> None:
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

    def figures(self) -> dict[str, Any]:
        return {
            "variant": self.variant.name,
            "seeds": self.seeds,
            "failed_seeds": sorted(outcome.seed for outcome in self.failed),
            "violations": {str(outcome.seed): list(outcome.violations) for outcome in self.failed},
            **self._totals,
            "least_in_a_seed": self._least,
            "crash_points": {"struck": len(self._points), "of": len(POINTS)},
            "crash_pairs": {"struck": len(self._pairs), "of": len(POINTS) ** 2},
        }


def seeds_of(text: str) -> range:
    """`A..B`, both included, or a single one."""
    found = re.fullmatch(r"(\d{1,18})(?:\.\.(\d{1,18}))?", text)
    seeds = range(int(found[1]), int(found[2] or found[1]) + 1) if found else range(0)
    if not seeds:
        raise InputError(f"{text!r} are no seeds", where="--seeds", hint="give them as 1..2000, or one, as 17")
    return seeds


def variant_of(name: str | None) -> Variant:
    if name is None or name == SOUND.name:
        return SOUND
    if name not in VARIANTS:
        raise NotFoundError(f"no variant is called {name!r}", where="--variant", hint="see --list-variants")
    return VARIANTS[name]


def run_seed(variant: Variant, seed: int) -> Outcome:
    world = World(seed, variant)
    world.run()
    return _outcome(seed, world)


def run_seeds(variant: Variant, seeds: Iterable[int], processes: int | None = None) -> Iterator[Outcome]:
    """In order of seed, each as soon as it and those before it are done."""
    processes = processes or os.cpu_count() or 1
    job = partial(_run_named, variant.name)
    if processes == 1:
        yield from map(job, seeds)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield from pool.map(job, seeds, chunksize=_AT_ONCE)


def replay(variant: Variant, seed: int) -> Iterator[str]:
    """The same seed again, told, with the violations at the end."""
    story = Story()
    world = World(seed, variant, story.hear)
    world.run()
    return story.tell(world.ledger.violations)


def _run_named(name: str, seed: int) -> Outcome:
    return run_seed(variant_of(name), seed)


def _outcome(seed: int, world: World) -> Outcome:
    numbers = {point: at for at, point in enumerate(POINTS)}
    ledger = world.ledger
    return Outcome(
        seed,
        ledger.letters,
        ledger.expired,
        ledger.migrations,
        world.crashes,
        world.handled,
        world.now / 1e6,
        frozenset(numbers[point] for point in world.plan.struck),
        frozenset((numbers[first], numbers[second]) for first, second in world.plan.pairs),
        tuple(ledger.violations),
    )
