"""All partitioners in the plan of the pipeline: speed, messages, balance, memory, and the cost of new subscriptions."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.journal.records import SUBSCRIPTION, Record
from roamcast.lab.batches import Batches, bodies_of, event_records, shard_balance, write_events
from roamcast.lab.bench.match.data import MatchData
from roamcast.lab.bench.match.shards import Shards, WorkerMemory, resident_bytes
from roamcast.lab.bench.match.timing import best, timed
from roamcast.match.port import Events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from roamcast.pipeline.query.batch_state import PreparedBatch
    from roamcast.pipeline.state.partitioning import PartitionerName

__all__ = ["measure_partitioners"]

Say = Callable[[str], None]

_ADDITIONS: Final = 3  # of which the shortest counts
_ROUTED: Final = 50_000  # events that are routed in one process, to time routing alone


def measure_partitioners(
    spark: SparkSession,
    folder: Path,
    data: MatchData,
    size: int,
    partitioners: Sequence[PartitionerName],
    say: Say,
    *,
    events: int = 100_000,
    workers: int = 4,
    added: int = 50_000,
) -> list[dict[str, Any]]:
    """Return a row for each partitioner. `wrong` is 1 if it finds another number of matches than the replicated plan.

    A batch is matched and learned from, so that the load is balanced; then `events` are matched several times, and
    `added` subscriptions are added several times. The best of each counts. `over_curve` has ratios to `curve`, if that
    is among the partitioners. The Parquet files in `folder`/events are used to measure memory.
    """
    records = write_events(spark, folder / f"records-{size}", data.first_events(events))
    whole = Batches(folder / f"whole-{size}", data.subscriptions(size), records)
    expected = whole.count_matches(whole.prepare(whole.records([])))
    rows = []
    for name in partitioners:
        here = folder / f"{name}-{size}"
        row = {
            "subscriptions": size, "partitioner": name, "workers": workers,
            **_measure(here, records, folder / "events", data, size, name, expected, workers, added),
        }  # fmt: skip
        say("  ".join(f"{what} {value}" for what, value in row.items()))
        rows.append(row)
        shutil.rmtree(here)
    records.unpersist()
    return _with_ratios(rows)


def _measure(
    folder: Path,
    records: DataFrame,
    events: Path,
    data: MatchData,
    size: int,
    name: PartitionerName,
    expected: int,
    workers: int,
    added: int,
) -> dict[str, Any]:
    from roamcast.pipeline.query.batch_state import BatchSettings
    from roamcast.pipeline.state.load import LoadRows
    from roamcast.pipeline.state.partitioning import PartitioningSettings

    count = records.count()
    # Balancing is due after every batch.
    settings = BatchSettings(workers=workers, rebalance_events=count, partitioning=PartitioningSettings(name))
    batches = Batches(folder, data.subscriptions(size), records, settings)
    placing, prepared = timed(lambda: batches.prepare(batches.records([])))
    batches.commit(prepared, batches.match(prepared))
    prepared = batches.prepare(batches.records([]))
    seconds, matched = best(partial(batches.match, prepared))
    matches = int(pc.sum(pc.list_value_length(matched["subscriptions"])).as_py() or 0)
    load = LoadRows.of_matched(matched)
    routing, _ = best(partial(_route, prepared, data.first_events(min(count, _ROUTED))))
    memory = _memory(prepared, events)
    batches.commit(prepared)
    return {
        "events_per_s": round(count / seconds),
        "messages_per_event": round(int(load.of_shards.messages.sum()) / count, 4),
        "balance": round(shard_balance(load, workers), 3),
        "mapped_mb": round(memory.mapped / 1e6, 1),
        "growth_mb": round(memory.resident / 1e6, 1),
        "place_s": round(placing, 2),
        "add_s": round(min(_add(batches, data, added, number) for number in range(_ADDITIONS)), 3),
        "route_us": round(1e6 * routing / min(count, _ROUTED), 3),
        "wrong": int(matches != expected),
    }


def _route(prepared: PreparedBatch, events: Events) -> int:
    """Route events as tasks do, in this process. Counts the messages."""
    from roamcast.pipeline.tasks.match_job import route_events

    batches: Iterator[pa.RecordBatch] = iter(event_records(events, 0).to_batches())
    return sum(batch.num_rows for batch in route_events(prepared.context)(batches))


def _memory(prepared: PreparedBatch, events: Path) -> WorkerMemory:
    """Return the memory of the worker with the largest shard."""
    sharded = prepared.context.sharded
    if sharded is None:
        return WorkerMemory(0, 0)
    stacks = tuple(shard.stack for shard in sharded.shards)
    shards = Shards(prepared.context.folder / "segments", stacks, sharded.routes)
    largest = int(np.argmax(shards.nbytes()))
    return WorkerMemory(shards.nbytes()[largest], resident_bytes(events, shards, largest))


def _add(batches: Batches, data: MatchData, count: int, number: int) -> float:
    """Return the seconds from the records of new subscriptions to shards and routing tables that have them."""
    bodies = enumerate(bodies_of(data.subscriptions(count, seed=6 + number)))
    names = ((f"new{number}-{n}", body) for n, body in bodies)
    added = batches.records([Record(SUBSCRIPTION, name, id=name, time=1, body=body) for name, body in names])
    seconds, prepared = timed(lambda: batches.prepare(added))
    batches.commit(prepared)
    return seconds


def _with_ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    curve = next((row for row in rows if row["partitioner"] == "curve"), None)
    if curve is None:
        return rows
    ratios = ("add_s", "route_us")
    return [{**row, **{f"{what}_over_curve": round(row[what] / curve[what], 2) for what in ratios}} for row in rows]
