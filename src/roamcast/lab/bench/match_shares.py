"""The partitioned plan beside the replicated one: events a second, and what each worker must hold."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.lab.bench.match_data import EVENTS_SCHEMA, World
from roamcast.lab.bench.match_plans import MATCHED_SCHEMA, Opening, by_index, matching, read_events
from roamcast.match.index.lsm import IndexStore, SegmentRef, build_index
from roamcast.match.index.rows import IndexRows, index_rows, select_rows
from roamcast.match.partitioners.cuts import Cuts
from roamcast.match.partitioners.hilbert import curve_keys_of_rows
from roamcast.match.port import Events
from roamcast.match.routing.router import Router, RoutingTableRef, RoutingTables, new_secret

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Shares", "by_shares", "measure_shares", "share_out"]

Batches = Iterator[pa.RecordBatch]
Say = Callable[[str], None]

_ROUTED: Final = EVENTS_SCHEMA.append(pa.field("worker", pa.int32()))
_TIMES: Final = 3


class Held(NamedTuple):
    """What the worker that holds the most maps, in bytes; and by how much a process grows that matches with it."""

    mapped: int
    resident: int


class Shares(NamedTuple):
    """An index in a folder, divided among workers, and the router to them."""

    folder: Path
    stacks: tuple[tuple[SegmentRef, ...], ...]
    routes: tuple[RoutingTableRef, ...]

    def nbytes(self) -> list[int]:
        """By worker: its share of the index and the router, which all have."""
        router = RoutingTables(self.folder).open(self.routes).nbytes
        return [IndexStore(self.folder).nbytes(stack) + router for stack in self.stacks]


def share_out(rows: IndexRows, folder: Path, workers: int) -> Shares:
    """Equal numbers of subscriptions, in the order of the curve."""
    place = curve_keys_of_rows(rows)
    worker = Cuts.even(workers, place).workers_of(place)
    layers = IndexStore(folder)
    stacks = (layers.apply((), added=select_rows(rows, np.flatnonzero(worker == each))) for each in range(workers))
    return Shares(folder, tuple(stacks), RoutingTables(folder).push((), rows, worker, new_secret()))


def by_shares(events: DataFrame, shares: Shares) -> int:
    """Route, shuffle by worker, match there. Counts the pairs."""
    from pyspark.sql import functions as f

    from roamcast.pipeline.schemas import spark_schema

    messages = events.mapInArrow(_routing(shares), spark_schema(_ROUTED))
    found = messages.repartitionById(len(shares.stacks), "worker").mapInArrow(
        _matching(shares), spark_schema(MATCHED_SCHEMA)
    )
    return int(found.agg(f.sum(f.size("subscriptions"))).collect()[0][0] or 0)


def measure_shares(
    spark: SparkSession, folder: Path, count: int, world: World, sizes: Sequence[int], workers: Sequence[int], say: Say
) -> list[dict[str, Any]]:
    """A row for each size and number of workers, 1 being the replicated plan over the same events.

    These are Parquet files in `folder`/events.
    """
    found, events = [], spark.read.parquet(str(folder / "events"))
    for size in sizes:
        rows = index_rows(np.arange(size), world.subscriptions(size))
        here = folder / f"shares-{size}"
        here.mkdir()
        opening = Opening(here, IndexStore(here).apply((), added=rows))
        whole = IndexStore(here).nbytes(opening.stack)
        seconds, right = _best(lambda opening=opening: by_index(events, opening))  # type: ignore[misc]
        held = Held(whole, resident_bytes(folder / "events", opening))
        found.append(_row(size, "replicated", 1, count / seconds, right, 0, held, say))
        for number in workers:
            shares = share_out(rows, here, number)
            seconds, pairs = _best(lambda shares=shares: by_shares(events, shares))  # type: ignore[misc]
            most = int(np.argmax(shares.nbytes()))
            held = Held(shares.nbytes()[most], resident_bytes(folder / "events", shares, most))
            found.append(_row(size, "partitioned", number, count / seconds, pairs, int(pairs != right), held, say))
    return found


def _row(
    size: int, plan: str, workers: int, rate: float, matches: int, wrong: int, held: Held, say: Say
) -> dict[str, Any]:
    row = {
        "subscriptions": size, "plan": plan, "workers": workers, "events_per_s": round(rate), "matches": matches,
        "wrong": wrong, "bytes_per_worker": held.mapped, "resident_per_worker": held.resident,
    }  # fmt: skip
    say("  ".join(f"{name} {value}" for name, value in row.items()))
    return row


def resident_bytes(events: Path, held: Opening | Shares, worker: int = 0) -> int:
    """By how much a process grows that does what a worker does with all these events. Asks Linux."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_grown, events, held, worker).result()


def _grown(events: Path, held: Opening | Shares, worker: int) -> int:
    batch = next(read_events(events))
    some = Events(batch["x"].to_numpy(), batch["y"].to_numpy(), batch["terms"])
    build_index(World(1_000).subscriptions(1_000)).match(some)  # what Arrow and numba take is not counted
    before = _resident()
    for batch in read_events(events):
        if isinstance(held, Opening):
            found = matching(held)(iter([batch]))
        else:
            sent = (messages.filter(pc.equal(messages["worker"], worker)) for messages in _routing(held)(iter([batch])))
            found = _matching(held)(sent)
        for _ in found:
            pass
    return _resident() - before


def _resident() -> int:
    """The memory of this process that is not elsewhere, in bytes; files that it has mapped are among it, as far as it
    has read them."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@lru_cache(maxsize=2)
def _router(shares: Shares) -> Router:
    return RoutingTables(shares.folder).open(shares.routes)


def _routing(shares: Shares) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        for batch in batches:
            found = _router(shares).route(Events(batch["x"].to_numpy(), batch["y"].to_numpy(), batch["terms"]))
            sent = batch.take(pa.array(found.event))
            yield pa.RecordBatch.from_arrays([*sent.columns, pa.array(found.worker, pa.int32())], schema=_ROUTED)

    return run


def _matching(shares: Shares) -> Callable[[Batches], Batches]:
    def run(batches: Batches) -> Batches:
        for batch in batches:
            for worker in pc.unique(batch["worker"]).to_pylist():
                mine = batch.filter(pc.equal(batch["worker"], worker))
                yield from matching(Opening(shares.folder, shares.stacks[worker]))(iter([mine]))

    return run


def _best(work: Callable[[], int]) -> tuple[float, int]:
    """The shortest of several times, after one that counts not."""
    work()
    times = []
    for _ in range(_TIMES):
        began = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - began)
    return min(times), result
