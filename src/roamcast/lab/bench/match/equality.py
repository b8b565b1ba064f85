"""`roamcast bench equality`: compares both plans and all partitioners with the reference, on many events.

Plans run as in the pipeline, with its batch state and Spark. Partitioners run in one process; subscriptions are added
in parts, with events and balancing in between, so that subscriptions move and categories merge. `wrong` counts the
pairs that only one side has.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from roamcast.lab.batches import Batches, write_events
from roamcast.lab.bench.match.data import MatchData
from roamcast.lab.bench.match.pairs import count_differences
from roamcast.lab.models.matcher import ReferenceMatcher
from roamcast.lab.models.workers import SimulatedWorkers
from roamcast.match.index.rows import index_rows, select_events, select_rows
from roamcast.match.partitioners.categories import CategoryParameters
from roamcast.match.partitioners.curve import CurvePartitioner
from roamcast.match.partitioners.drtcluster import DrtCluster
from roamcast.match.partitioners.hashing import Hashing
from roamcast.match.partitioners.kdtree import KdTree
from roamcast.match.port import Events, Matches, Subscriptions
from roamcast.match.routing.partitioner import Partitioner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["bench_equality", "measure_equality"]

Integers = npt.NDArray[np.int64]
Say = Callable[[str], None]

_WORKERS: Final = (1, 2, 4)
_PARTS: Final = 4
_CHUNK: Final = 10_000  # events: with hashing, each may have a thousand candidates
_OBSERVED: Final = 2_000  # events after each part
_PARTITIONERS: Final[dict[str, Callable[[int], Partitioner]]] = {
    "DRt-Cluster": lambda workers: DrtCluster(workers, CategoryParameters(400)),
    "kd-tree": KdTree,
    "hashing": Hashing,
    "curve": CurvePartitioner,
}


def bench_equality(events: int, subscriptions: int, say: Say) -> dict[str, Any]:
    """Run `measure_equality` in its own session and folder."""
    from roamcast.pipeline.query.session import session

    with tempfile.TemporaryDirectory(prefix="roamcast-bench-") as name:
        spark = session("roamcast-bench", log=Path(name) / "spark.log")
        try:
            return measure_equality(spark, Path(name), events, subscriptions, say)
        finally:
            spark.stop()


def measure_equality(spark: SparkSession, folder: Path, events: int, count: int, say: Say) -> dict[str, Any]:
    """Return a row for each plan or partitioner and number of workers. `wrong` must be 0."""
    data = MatchData(events)
    subscriptions, all_events = data.subscriptions(count), data.first_events(events)
    expected = _keys(ReferenceMatcher(subscriptions).match(all_events), count)
    say(f"reference: {len(expected)} matches")
    rows: list[dict[str, Any]] = []
    for name, workers, matches in _results(spark, folder, subscriptions, all_events):
        wrong = count_differences(_keys(matches, count), expected)
        rows.append({"what": name, "workers": workers, "matches": len(matches.event), "wrong": wrong})
        say("  ".join(f"{what} {value}" for what, value in rows[-1].items()))
    total = sum(row["wrong"] for row in rows)
    return {"events": events, "subscriptions": count, "rows": rows, "wrong": total}


def _results(
    spark: SparkSession, folder: Path, subscriptions: Subscriptions, all_events: Events
) -> Iterator[tuple[str, int, Matches]]:
    from roamcast.pipeline.query.batch_state import BatchSettings

    records = write_events(spark, folder / "records", all_events)
    for workers in (0, *_WORKERS):
        batches = Batches(folder / f"state-{workers}", subscriptions, records, BatchSettings(workers=workers))
        yield "partitioned" if workers else "replicated", workers, _by_plan(batches)
    records.unpersist()
    for name, make in _PARTITIONERS.items():
        for workers in _WORKERS:
            yield name, workers, _by_partitioner(SimulatedWorkers(make(workers)), subscriptions, all_events)


def _by_plan(batches: Batches) -> Matches:
    """Match one batch. Events are numbered from 1, as in the journal."""
    prepared = batches.prepare(batches.records([]))
    matched = batches.match(prepared)
    pairs = matched["subscriptions"].combine_chunks()
    event = np.repeat(matched["offset"].to_numpy() - 1, pc.list_value_length(pairs).to_numpy())
    rows = prepared.context.open_subscriptions().take(pairs.flatten().to_numpy(), ("handle",))
    return Matches(event, rows["handle"].to_numpy())


def _by_partitioner(workers: SimulatedWorkers, subscriptions: Subscriptions, all_events: Events) -> Matches:
    rows = index_rows(np.arange(len(subscriptions.min_x)), subscriptions)
    for part in np.array_split(np.arange(len(rows.handle)), _PARTS):
        workers.add(select_rows(rows, part))
        workers.match(select_events(all_events, np.arange(min(_OBSERVED, len(all_events.x)))))
        workers.balance()
    matches = [Matches(np.empty(0, np.int64), np.empty(0, np.int64))]
    for first in range(0, len(all_events.x), _CHUNK):
        some = np.arange(first, min(first + _CHUNK, len(all_events.x)))
        event, handle = workers.match(select_events(all_events, some), observe=False).matches
        matches.append(Matches(event + first, handle))
    return Matches(*(np.concatenate(column) for column in zip(*matches, strict=True)))


def _keys(matches: Matches, subscriptions: int) -> Integers:
    """Return a number for each pair."""
    keys: Integers = matches.event * np.int64(subscriptions) + matches.subscription
    return keys
