"""The partitioned plan compared with the replicated one: events per second, and the memory of each worker."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.lab.bench.match.data import EVENTS_SCHEMA, MatchData
from roamcast.lab.bench.match.plans import MATCHES_SCHEMA, IndexFiles, by_index, match_batches, read_events
from roamcast.lab.bench.match.timing import best
from roamcast.match.index.lsm import IndexStore, SegmentRef, build_index
from roamcast.match.index.rows import IndexRows, index_rows, select_rows
from roamcast.match.partitioners.cuts import Cuts
from roamcast.match.partitioners.hilbert import curve_keys_of_rows
from roamcast.match.port import Events
from roamcast.match.routing.router import Router, RoutingTableRef, RoutingTables, new_secret

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Shards", "by_shards", "divide", "measure_shards"]

Batches = Iterator[pa.RecordBatch]
Say = Callable[[str], None]

_ROUTED_SCHEMA: Final = EVENTS_SCHEMA.append(pa.field("worker", pa.int32()))


class WorkerMemory(NamedTuple):
    """Bytes mapped by the worker with the largest shard, and by how much a process grows that matches with it."""

    mapped: int
    resident: int


class Shards(NamedTuple):
    """An index in a folder, divided among workers, and its router."""

    folder: Path
    stacks: tuple[tuple[SegmentRef, ...], ...]
    routes: tuple[RoutingTableRef, ...]

    def nbytes(self) -> list[int]:
        """Return the bytes of each worker: its shard of the index, and the router, which all have."""
        router = RoutingTables(self.folder).open(self.routes).nbytes
        return [IndexStore(self.folder).nbytes(stack) + router for stack in self.stacks]


def divide(rows: IndexRows, folder: Path, workers: int) -> Shards:
    """Give each worker the same number of subscriptions, in the order of the curve."""
    key = curve_keys_of_rows(rows)
    worker = Cuts.even(workers, key).workers_of(key)
    store = IndexStore(folder)
    stacks = (store.apply((), added=select_rows(rows, np.flatnonzero(worker == each))) for each in range(workers))
    return Shards(folder, tuple(stacks), RoutingTables(folder).push((), rows, worker, new_secret()))


def by_shards(events: DataFrame, shards: Shards) -> int:
    """Route events, shuffle them by worker and match them there. Counts the pairs."""
    from pyspark.sql import functions as f

    from roamcast.pipeline.schemas import spark_schema

    messages = events.mapInArrow(_routing(shards), spark_schema(_ROUTED_SCHEMA))
    results = messages.repartitionById(len(shards.stacks), "worker").mapInArrow(
        _matching(shards), spark_schema(MATCHES_SCHEMA)
    )
    return int(results.agg(f.sum(f.size("subscriptions"))).collect()[0][0] or 0)


def measure_shards(
    spark: SparkSession,
    folder: Path,
    count: int,
    data: MatchData,
    sizes: Sequence[int],
    workers: Sequence[int],
    say: Say,
) -> list[dict[str, Any]]:
    """Return a row for each size and number of workers; 1 is the replicated plan.

    The events are the Parquet files in `folder`/events.
    """
    results, events = [], spark.read.parquet(str(folder / "events"))
    for size in sizes:
        rows = index_rows(np.arange(size), data.subscriptions(size))
        here = folder / f"shards-{size}"
        here.mkdir()
        files = IndexFiles(here, IndexStore(here).apply((), added=rows))
        whole = IndexStore(here).nbytes(files.stack)
        seconds, expected = best(lambda files=files: by_index(events, files))  # type: ignore[misc]
        held = WorkerMemory(whole, resident_bytes(folder / "events", files))
        results.append(_row(size, "replicated", 1, count / seconds, expected, 0, held, say))
        for number in workers:
            shards = divide(rows, here, number)
            seconds, pairs = best(lambda shards=shards: by_shards(events, shards))  # type: ignore[misc]
            most = int(np.argmax(shards.nbytes()))
            held = WorkerMemory(shards.nbytes()[most], resident_bytes(folder / "events", shards, most))
            results.append(_row(size, "partitioned", number, count / seconds, pairs, int(pairs != expected), held, say))
    return results


def _row(
    size: int, plan: str, workers: int, rate: float, matches: int, wrong: int, held: WorkerMemory, say: Say
) -> dict[str, Any]:
    row = {
        "subscriptions": size, "plan": plan, "workers": workers, "events_per_s": round(rate), "matches": matches,
        "wrong": wrong, "bytes_per_worker": held.mapped, "resident_per_worker": held.resident,
    }  # fmt: skip
    say("  ".join(f"{name} {value}" for name, value in row.items()))
    return row


def resident_bytes(events: Path, held: IndexFiles | Shards, worker: int = 0) -> int:
    """Return by how many bytes a process grows that matches all these events like a worker. Linux only."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_growth, events, held, worker).result()


def _growth(events: Path, held: IndexFiles | Shards, worker: int) -> int:
    batch = next(read_events(events))
    some = Events(batch["x"].to_numpy(), batch["y"].to_numpy(), batch["terms"])
    build_index(MatchData(1_000).subscriptions(1_000)).match(some)  # do not count the memory of Arrow and numba
    before = _resident()
    for batch in read_events(events):
        if isinstance(held, IndexFiles):
            results = match_batches(held)(iter([batch]))
        else:
            sent = (messages.filter(pc.equal(messages["worker"], worker)) for messages in _routing(held)(iter([batch])))
            results = _matching(held)(sent)
        for _ in results:
            pass
    return _resident() - before


def _resident() -> int:
    """Return the resident memory of this process in bytes, including the pages it has read of mapped files."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@lru_cache(maxsize=2)
def _router(shards: Shards) -> Router:
    return RoutingTables(shards.folder).open(shards.routes)


def _routing(shards: Shards) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        for batch in batches:
            results = _router(shards).route(Events(batch["x"].to_numpy(), batch["y"].to_numpy(), batch["terms"]))
            sent = batch.take(pa.array(results.event))
            yield pa.RecordBatch.from_arrays(
                [*sent.columns, pa.array(results.worker, pa.int32())], schema=_ROUTED_SCHEMA
            )

    return run


def _matching(shards: Shards) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        for batch in batches:
            for worker in pc.unique(batch["worker"]).to_pylist():
                mine = batch.filter(pc.equal(batch["worker"], worker))
                yield from match_batches(IndexFiles(shards.folder, shards.stacks[worker]))(iter([mine]))

    return run
