"""The streams of the experiment on DRt-Cluster, and what is counted while they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.lab.experiments.drtcluster_data import World
from roamcast.lab.experiments.drtcluster_weak import weakly_admitted
from roamcast.lab.match_workers import SimulatedWorkers
from roamcast.match.partitioners.categories import CategoryParameters
from roamcast.match.partitioners.curve import CurvePartitioner
from roamcast.match.partitioners.drtcluster import DrtCluster
from roamcast.match.partitioners.hashing import Hashing
from roamcast.match.partitioners.kdtree import KdTree
from roamcast.match.port import Events
from roamcast.match.routing.partitioner import Partitioner

__all__ = [
    "PARTITIONERS",
    "VARIANTS",
    "WORKERS",
    "Counted",
    "Spread",
    "drift",
    "reading",
    "spread",
    "train",
    "work_of",
]

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

WORKERS: Final = 4
MOST: Final = 0.5
"""CMaxNumTh, which the paper does not give, for each subscription."""
VARIANTS: Final = ("Sim-NonFre", "Sim-Fre", "Sim-Fre-Co")
Make = Callable[[World], Partitioner]


def reading(world: World, most: float = MOST, variant: str = "Sim-Fre-Co") -> CategoryParameters:
    """The parameters of a variant; `most` is for each subscription."""
    count = max(round(most * world.count), 2)
    return CategoryParameters(count, frequencies=variant != "Sim-NonFre", correlation=variant == "Sim-Fre-Co")


PARTITIONERS: Final[dict[str, Make]] = {
    "DRt-Cluster": lambda world: DrtCluster(WORKERS, reading(world)),
    "kd-tree": lambda world: KdTree(WORKERS),
    "hashing": lambda world: Hashing(WORKERS),
    "curve": lambda world: CurvePartitioner(WORKERS),
}
_MOST_STEPS: Final = 100
_PHASES: Final = 20


@dataclass(slots=True)
class Counted:
    """Over some events: messages, checks and changes by worker, and categories that events were sent to."""

    work: Floats
    events: int = 0
    messages: int = 0
    checks: int = 0
    categories: int = 0
    weakly: int = 0
    members: int = 0
    balances: list[float] = field(default_factory=list)

    @property
    def throughput(self) -> float:
        """Events for each unit of work of the busiest worker: a message, a check or a change is one."""
        return self.events / max(float(self.work.max()), 1.0)

    @property
    def balance(self) -> float:
        return float(self.work.max() / self.work.mean()) if self.work.any() else 1.0

    def each(self, what: float) -> float:
        return what / max(self.events, 1)


class Spread(NamedTuple):
    """What a partitioner came to."""

    messages: float
    balance: float
    replication: float
    checks: float
    moved: float
    throughput: float


def train(
    workers: SimulatedWorkers, world: World, *, balance: bool = True, weakly: bool = False
) -> Iterator[tuple[int, Counted]]:
    """Events and subscriptions take turns, and the load is balanced twice; yields the tenth of each step, and its
    counts."""
    steps = min(_MOST_STEPS, 10 * -(-world.count // 10))
    bounds = np.linspace(0, len(world.training), steps + 1).astype(int)
    rows = np.linspace(0, world.count, steps + 1).astype(int)
    for step in range(steps):
        events = world.events(world.training[bounds[step] : bounds[step + 1]])
        counted = work_of(workers, events, observe=True, weakly=weakly)
        if rows[step + 1] > rows[step]:
            workers.add(world.subscriptions(int(rows[step]), int(rows[step + 1] - rows[step])))
        if balance and (step + 1) % (steps // 2) == 0:
            workers.balance()
        yield 10 * step // steps, counted


def work_of(workers: SimulatedWorkers, events: Events, *, observe: bool = False, weakly: bool = False) -> Counted:
    """What matching these events takes."""
    partitioner = workers.partitioner
    counted = Counted(np.zeros(partitioner.workers), len(events.x))
    if isinstance(partitioner, DrtCluster):
        _, category = partitioner.received_by(events)
        counted.categories = len(category)
        counted.members = int(partitioner.categories.slots.size[category].sum())
        if weakly:
            counted.weakly = weakly_admitted(partitioner, events)
    found = workers.match(events, observe=observe)
    counted.messages, counted.checks = int(found.messages.sum()), int(found.checks.sum())
    counted.work += found.messages + found.checks
    return counted


def spread(make: Make, world: World) -> Spread:
    """After training: the events that are left, while one subscription in fifty is replaced. What moved in training
    is counted."""
    workers = SimulatedWorkers(make(world))
    for _ in train(workers, world):
        pass
    counted = work_of(workers, world.events(world.after))
    _replace(workers, world, counted, world.count // 50)
    return _spread(workers, counted, counted.balance, 0)


def drift(make: Make, world: World) -> Spread:
    """Events and new subscriptions gather around a spot that travels the world; the oldest subscriptions go."""
    workers = SimulatedWorkers(make(world))
    places, each = world.places, world.count // _PHASES
    workers.add(world.subscriptions(0, world.count))
    total, moved = Counted(np.zeros(WORKERS)), 0
    for phase in range(_PHASES):
        centre = -120.0 + 260.0 * phase / (_PHASES - 1), 40.0 - 30.0 * np.sin(phase / 3)
        away = np.hypot(places.x - centre[0], places.y - centre[1])
        near = np.flatnonzero(away < 25.0)
        count = len(world.training) // _PHASES
        rows = np.append(world.rng.choice(near, count * 4 // 5), world.rng.choice(world.training, count // 5))
        counted = work_of(workers, world.events(world.rng.permutation(rows)), observe=True)
        first = world.count + phase * each
        workers.add(world.subscriptions(first, each, near))
        workers.remove(np.arange(phase * each, (phase + 1) * each))
        if phase:  # until the load was seen once nobody can have balanced it
            for name in ("events", "messages", "checks"):
                setattr(total, name, getattr(total, name) + getattr(counted, name))
            total.work += counted.work
            total.balances.append(counted.balance)
        else:
            moved = workers.moved
        workers.balance()
    return _spread(workers, total, float(np.mean(total.balances)), moved)


def _spread(workers: SimulatedWorkers, counted: Counted, balance: float, moved_before: int) -> Spread:
    messages, checks = counted.each(counted.messages), counted.each(counted.checks)
    moved = float(workers.moved - moved_before)
    return Spread(messages, balance, workers.replication, checks, moved, counted.throughput)


def _replace(workers: SimulatedWorkers, world: World, counted: Counted, count: int) -> None:
    """Some subscriptions go and others come: a unit of work for each worker concerned."""
    before = [workers.held(worker) for worker in range(WORKERS)]
    workers.remove(world.rng.choice(world.count, count, replace=False))
    workers.add(world.subscriptions(world.count, count))
    counted.work += [len(np.setxor1d(was, workers.held(worker))) for worker, was in enumerate(before)]
