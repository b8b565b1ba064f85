"""The partitioned plan beside the replicated one: events a second, and what each worker must hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.bench.match_data import EVENTS_SCHEMA, World
from roamcast.bench.match_plans import MATCHED_SCHEMA, Opening, by_index, matching
from roamcast.match.build import Rows
from roamcast.match.choosing import chosen_rows
from roamcast.match.layers import Layer, Layers, rows_of
from roamcast.match.partitioners.cuts import Cuts
from roamcast.match.partitioners.places import places_of_rows
from roamcast.match.port import Events
from roamcast.match.router import Router, Routes, Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Shares", "by_shares", "measure_shares", "share_out"]

Batches = Iterator[pa.RecordBatch]
Say = Callable[[str], None]

_ROUTED: Final = EVENTS_SCHEMA.append(pa.field("worker", pa.int32()))
_TIMES: Final = 3


class Shares(NamedTuple):
    """An index in a folder, divided among workers, and the router to them."""

    folder: Path
    stacks: tuple[tuple[Layer, ...], ...]
    routes: tuple[Routes, ...]

    def nbytes(self) -> list[int]:
        """By worker: its share of the index and the router, which all have."""
        router = Tables(self.folder).open(self.routes).nbytes
        return [Layers(self.folder).nbytes(stack) + router for stack in self.stacks]


def share_out(rows: Rows, folder: Path, workers: int) -> Shares:
    """Equal numbers of subscriptions, in the order of the curve."""
    place = places_of_rows(rows)
    worker = Cuts.even(workers, place).workers_of(place)
    layers = Layers(folder)
    stacks = (layers.change((), added=chosen_rows(rows, np.flatnonzero(worker == each))) for each in range(workers))
    return Shares(folder, tuple(stacks), Tables(folder).push((), rows, worker))


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
    events: DataFrame, count: int, world: World, folder: Path, sizes: Sequence[int], workers: Sequence[int], say: Say
) -> list[dict[str, Any]]:
    """A row for each size and number of workers, 1 being the replicated plan over the same data frame."""
    found = []
    for size in sizes:
        rows = rows_of(np.arange(size), world.subscriptions(size))
        here = folder / f"shares-{size}"
        here.mkdir()
        opening = Opening(here, Layers(here).change((), added=rows))
        whole = Layers(here).nbytes(opening.stack)
        seconds, right = _best(lambda opening=opening: by_index(events, opening))  # type: ignore[misc]
        found.append(_row(size, "replicated", 1, count / seconds, right, 0, whole, say))
        for number in workers:
            shares = share_out(rows, here, number)
            seconds, pairs = _best(lambda shares=shares: by_shares(events, shares))  # type: ignore[misc]
            most = max(shares.nbytes())
            found.append(_row(size, "partitioned", number, count / seconds, pairs, int(pairs != right), most, say))
    return found


def _row(
    size: int, plan: str, workers: int, rate: float, matches: int, wrong: int, nbytes: int, say: Say
) -> dict[str, Any]:
    row = {
        "subscriptions": size, "plan": plan, "workers": workers, "events_per_s": round(rate), "matches": matches,
        "wrong": wrong, "bytes_per_worker": nbytes,
    }  # fmt: skip
    say("  ".join(f"{name} {value}" for name, value in row.items()))
    return row


@lru_cache(maxsize=2)
def _router(shares: Shares) -> Router:
    return Tables(shares.folder).open(shares.routes)


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
