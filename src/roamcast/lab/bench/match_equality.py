"""`roamcast bench equality`: both plans and all partitioners beside brute force, on many events and subscriptions.

Plans run as the pipeline runs them, books and Spark included. Partitioners run in one process, subscriptions coming in
portions, with events and balancing in between, so that there are moves and merges. `wrong` counts the pairs that only
one of the two has.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from roamcast.lab.bench.match_books import Batches, write_events
from roamcast.lab.bench.match_data import World
from roamcast.lab.match_workers import SimulatedWorkers
from roamcast.match.index.rows import index_rows, select_events, select_rows
from roamcast.match.partitioners.categories import CategoryParameters
from roamcast.match.partitioners.curve import CurvePartitioner
from roamcast.match.partitioners.drtcluster import DrtCluster
from roamcast.match.partitioners.hashing import Hashing
from roamcast.match.partitioners.kdtree import KdTree
from roamcast.match.port import Events, Matches, Subscriptions
from roamcast.match.reference import ReferenceMatcher
from roamcast.match.routing.partitioner import Partitioner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["bench_equality", "measure_equality"]

Integers = npt.NDArray[np.int64]
Say = Callable[[str], None]

_WORKERS: Final = (1, 2, 4)
_PORTIONS: Final = 4
_AT_ONCE: Final = 10_000  # events: by hashing, each may be looked at for a thousand subscriptions
_OBSERVED: Final = 2_000  # events after each portion
_PARTITIONERS: Final[dict[str, Callable[[int], Partitioner]]] = {
    "DRt-Cluster": lambda workers: DrtCluster(workers, CategoryParameters(400)),
    "kd-tree": KdTree,
    "hashing": Hashing,
    "curve": CurvePartitioner,
}


def bench_equality(events: int, subscriptions: int, say: Say) -> dict[str, Any]:
    """As `measure_equality` has it, in a session and a folder of its own."""
    from roamcast.pipeline.query.session import session

    with tempfile.TemporaryDirectory(prefix="roamcast-bench-") as name:
        spark = session("roamcast-bench", log=Path(name) / "spark.log")
        try:
            return measure_equality(spark, Path(name), events, subscriptions, say)
        finally:
            spark.stop()


def measure_equality(spark: SparkSession, folder: Path, events: int, count: int, say: Say) -> dict[str, Any]:
    """A row for each plan, each partitioner, and each number of workers. `wrong` must be 0."""
    world = World(events)
    wanted, batch = world.subscriptions(count), world.events(0, events)
    happened = Events(batch["x"].to_numpy(), batch["y"].to_numpy(), batch["terms"])
    right = _keys(ReferenceMatcher(wanted).match(happened), count)
    say(f"brute force: {len(right)} matches")
    rows: list[dict[str, Any]] = []
    for name, workers, found in _found(spark, folder, world, wanted, happened):
        wrong = _differing(_keys(found, count), right)
        rows.append({"what": name, "workers": workers, "matches": len(found.event), "wrong": wrong})
        say("  ".join(f"{what} {value}" for what, value in rows[-1].items()))
    total = sum(row["wrong"] for row in rows)
    return {"events": events, "subscriptions": count, "rows": rows, "wrong": total}


def _found(
    spark: SparkSession, folder: Path, world: World, wanted: Subscriptions, happened: Events
) -> Iterator[tuple[str, int, Matches]]:
    records = write_events(spark, folder / "records", world, len(happened.x))
    for workers in (0, *_WORKERS):
        batches = Batches(folder / f"state-{workers}", wanted, records, workers=workers)
        yield "partitioned" if workers else "replicated", workers, _by_plan(batches)
    records.unpersist()
    for name, make in _PARTITIONERS.items():
        for workers in _WORKERS:
            yield name, workers, _by_partitioner(SimulatedWorkers(make(workers)), wanted, happened)


def _by_plan(batches: Batches) -> Matches:
    """One batch; events are dense_numbers as they lie in the journal, from 1 on."""
    page = batches.open(batches.records([]))
    sifted = batches.sifted(page)
    pairs = sifted["subscriptions"].combine_chunks()
    event = np.repeat(sifted["offset"].to_numpy() - 1, pc.list_value_length(pairs).to_numpy())
    rows = page.sieve.open_subscriptions().take(pairs.flatten().to_numpy(), ("handle",))
    return Matches(event, rows["handle"].to_numpy())


def _by_partitioner(workers: SimulatedWorkers, wanted: Subscriptions, happened: Events) -> Matches:
    rows = index_rows(np.arange(len(wanted.min_x)), wanted)
    for portion in np.array_split(np.arange(len(rows.handle)), _PORTIONS):
        workers.add(select_rows(rows, portion))
        workers.match(select_events(happened, np.arange(min(_OBSERVED, len(happened.x)))))
        workers.balance()
    found = [Matches(np.empty(0, np.int64), np.empty(0, np.int64))]
    for first in range(0, len(happened.x), _AT_ONCE):
        some = np.arange(first, min(first + _AT_ONCE, len(happened.x)))
        event, handle = workers.match(select_events(happened, some), observe=False).matches
        found.append(Matches(event + first, handle))
    return Matches(*(np.concatenate(column) for column in zip(*found, strict=True)))


def _differing(one: Integers, other: Integers) -> int:
    """How many pairs only one has; and how many are there twice."""
    twice = sum(len(keys) - len(np.unique(keys)) for keys in (one, other))
    return len(np.setxor1d(one, other)) + twice


def _keys(matches: Matches, subscriptions: int) -> Integers:
    """A number for each pair."""
    keys: Integers = matches.event * np.int64(subscriptions) + matches.subscription
    return keys
