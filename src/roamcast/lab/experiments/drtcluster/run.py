"""The runs of the DRt-Cluster experiment, and what they count."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.lab.experiments.drtcluster.data import PlaceStream
from roamcast.lab.models.workers import SimulatedWorkers
from roamcast.match.index.dictionary import encode_terms
from roamcast.match.partitioners.categories import CategoryParameters
from roamcast.match.partitioners.curve import CurvePartitioner
from roamcast.match.partitioners.drtcluster import DrtCluster
from roamcast.match.partitioners.hashing import Hashing
from roamcast.match.partitioners.kdtree import KdTree
from roamcast.match.port import Events
from roamcast.match.routing.features import hash_terms
from roamcast.match.routing.partitioner import Partitioner

__all__ = [
    "EAGER",
    "MOST",
    "PARTITIONERS",
    "VARIANTS",
    "WORKERS",
    "PartitionerResult",
    "WorkCounts",
    "count_work",
    "measure_drift",
    "measure_fixed",
    "parameters",
    "train",
]

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

WORKERS: Final = 4
EAGER: Final = 1.2
"""Overload of a worker, relative to the mean load; 2 in the paper."""
MOST: Final = 0.5
"""CMaxNumTh relative to the number of subscriptions; the paper does not state it."""
VARIANTS: Final = ("Sim-NonFre", "Sim-Fre", "Sim-Fre-Co")
Make = Callable[[PlaceStream], Partitioner]


def parameters(stream: PlaceStream, most: float = MOST, variant: str = "Sim-Fre-Co") -> CategoryParameters:
    """Return the parameters of a variant; `most` is relative to the number of subscriptions."""
    count = max(round(most * stream.count), 2)
    return CategoryParameters(count, frequencies=variant != "Sim-NonFre", correlation=variant == "Sim-Fre-Co")


PARTITIONERS: Final[dict[str, Make]] = {
    "DRt-Cluster": lambda stream: DrtCluster(WORKERS, parameters(stream)),
    "kd-tree": lambda stream: KdTree(WORKERS),
    "hashing": lambda stream: Hashing(WORKERS),
    "curve": lambda stream: CurvePartitioner(WORKERS),
}
_MAX_STEPS: Final = 100
_PHASES: Final = 20
_GRID: Final = 5.0  # degrees, of the clustering node (section 4)


@dataclass(slots=True)
class WorkCounts:
    """Counts over some events: work by worker, messages, checks, and the categories that events were sent to."""

    work: Floats
    events: int = 0
    messages: int = 0
    checks: int = 0
    categories: int = 0
    overlaps: int = 0
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


class PartitionerResult(NamedTuple):
    """The result of one partitioner."""

    messages: float
    balance: float
    replication: float
    checks: float
    moved: float
    throughput: float


def train(
    workers: SimulatedWorkers, stream: PlaceStream, *, balance: bool = True, by_overlap: bool = False
) -> Iterator[tuple[int, WorkCounts]]:
    """Alternate events and new subscriptions, and balance twice; yield the tenth of the training and the counts."""
    steps = min(_MAX_STEPS, 10 * -(-stream.count // 10))
    bounds = np.linspace(0, len(stream.training), steps + 1).astype(int)
    rows = np.linspace(0, stream.count, steps + 1).astype(int)
    for step in range(steps):
        events = stream.events(stream.training[bounds[step] : bounds[step + 1]])
        counts = count_work(workers, events, observe=True, by_overlap=by_overlap)
        if rows[step + 1] > rows[step]:
            workers.add(stream.subscriptions(int(rows[step]), int(rows[step + 1] - rows[step])))
        if balance and (step + 1) % (steps // 2) == 0:
            workers.balance()
        yield 10 * step // steps, counts


def count_work(
    workers: SimulatedWorkers, events: Events, *, observe: bool = False, by_overlap: bool = False
) -> WorkCounts:
    """Count the work of matching these events."""
    partitioner = workers.partitioner
    counts = WorkCounts(np.zeros(partitioner.workers), len(events.x))
    if isinstance(partitioner, DrtCluster):
        _, category = partitioner.received_by(events)
        counts.categories = len(category)
        counts.members = int(partitioner.categories.slots.size[category].sum())
        if by_overlap:
            counts.overlaps = _count_overlaps(partitioner, events)
    matched = workers.match(events, observe=observe)
    counts.messages, counts.checks = int(matched.messages.sum()), int(matched.checks.sum())
    counts.work += matched.messages + matched.checks
    return counts


def measure_fixed(make: Make, stream: PlaceStream) -> PartitionerResult:
    """Match the remaining events after training, and replace one subscription in fifty. Counts moves in training."""
    workers = SimulatedWorkers(make(stream))
    for _ in train(workers, stream):
        pass
    counts = count_work(workers, stream.events(stream.after))
    _replace(workers, stream, counts, stream.count // 50)
    return _result(workers, counts, counts.balance, 0)


def measure_drift(make: Make, stream: PlaceStream) -> PartitionerResult:
    """Events and new subscriptions are around a spot that travels the stream; the oldest subscriptions are removed."""
    workers = SimulatedWorkers(make(stream))
    places, each = stream.places, stream.count // _PHASES
    workers.add(stream.subscriptions(0, stream.count))
    total, moved = WorkCounts(np.zeros(WORKERS)), 0
    for phase in range(_PHASES):
        centre = -120.0 + 260.0 * phase / (_PHASES - 1), 40.0 - 30.0 * np.sin(phase / 3)
        distance = np.hypot(places.x - centre[0], places.y - centre[1])
        near = np.flatnonzero(distance < 25.0)
        count = len(stream.training) // _PHASES
        rows = np.append(stream.rng.choice(near, count * 4 // 5), stream.rng.choice(stream.training, count // 5))
        counts = count_work(workers, stream.events(stream.rng.permutation(rows)), observe=True)
        first = stream.count + phase * each
        workers.add(stream.subscriptions(first, each, near))
        workers.remove(np.arange(phase * each, (phase + 1) * each))
        if phase:  # a load cannot be balanced before it was observed
            for name in ("events", "messages", "checks"):
                setattr(total, name, getattr(total, name) + getattr(counts, name))
            total.work += counts.work
            total.balances.append(counts.balance)
        else:
            moved = workers.moved
        workers.balance()
    return _result(workers, total, float(np.mean(total.balances)), moved)


def _result(workers: SimulatedWorkers, counts: WorkCounts, balance: float, moved_before: int) -> PartitionerResult:
    messages, checks = counts.each(counts.messages), counts.each(counts.checks)
    moved = float(workers.moved - moved_before)
    return PartitionerResult(messages, balance, workers.replication, checks, moved, counts.throughput)


def _replace(workers: SimulatedWorkers, stream: PlaceStream, counts: WorkCounts, count: int) -> None:
    """Replace some subscriptions: a unit of work for each worker that holds one."""
    before = [workers.held(worker) for worker in range(WORKERS)]
    workers.remove(stream.rng.choice(stream.count, count, replace=False))
    workers.add(stream.subscriptions(stream.count, count))
    counts.work += [len(np.setxor1d(was, workers.held(worker))) for worker, was in enumerate(before)]


def _count_overlaps(cluster: DrtCluster, events: Events) -> int:
    """Count pairs of an event and a category by a weaker reading: the rectangle of the category and any shared term."""
    categories = cluster.categories
    lists = encode_terms(events.terms)
    owner, hashes = np.repeat(np.arange(len(events.x)), np.diff(lists.first)), hash_terms(lists)
    cell_x, cell_y = (np.floor(np.asarray(c) / _GRID) for c in (events.x, events.y))
    pairs = 0
    for category in categories.live.tolist():
        rows = categories.members(category)
        spans = [np.arange(categories.rows.first[row], categories.rows.first[row + 1]) for row in rows]
        terms = np.unique(categories.rows.term[np.concatenate(spans)])
        has_term = np.zeros(len(events.x), np.bool_)
        has_term[owner[np.isin(hashes, terms)]] = True
        west, south, east, north = np.floor(categories.slots.box[category] / _GRID)
        inside = (west <= cell_x) & (cell_x <= east) & (south <= cell_y) & (cell_y <= north)
        pairs += int((has_term & inside).sum())
    return pairs
