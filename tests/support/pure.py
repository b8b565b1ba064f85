"""The pipeline's batch without Spark: the books, driven as the stream drives them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from roamcast.journal.records import EVENT, RECORD_SCHEMA, Record, to_batch
from roamcast.pipeline.schemas import SIFTED_SCHEMA
from roamcast.pipeline.state.balancing import UNEVEN
from roamcast.pipeline.state.batch_state import BALANCE, HISTORY, Books, Entry
from roamcast.pipeline.state.control import Control
from roamcast.pipeline.state.manifests import StateFolder
from roamcast.pipeline.tasks.match import Sieve, sift
from roamcast.pipeline.tasks.sharded_match import gathered, match_share, route


class Placed(NamedTuple):
    """A record at its place in a journal."""

    node: str
    offset: int
    record: Record


def placed(records: Sequence[Record], node: str = "local", first: int = 1) -> list[Placed]:
    """Records at dense offsets of one node."""
    return [Placed(node, offset, record) for offset, record in enumerate(records, first)]


def is_whole(record: Record) -> bool:
    """Whether an event has all it needs."""
    point = record.x is not None and record.y is not None and math.isfinite(record.x) and math.isfinite(record.y)
    named = None not in (record.entity, record.id, record.time)
    return point and named and record.seq is not None and record.seq >= 1


def batches_of(rows: Sequence[Placed]) -> Iterator[pa.RecordBatch]:
    """Each record in an Arrow batch of its own."""
    return (to_batch(node, offset, [record]) for node, offset, record in rows)


def brief(rows: Sequence[Placed]) -> pa.Table:
    """What the driver is told of each event where there is no subscription."""
    run = sift(Sieve(Path(), (), (), (), 0))
    return pa.Table.from_batches(list(run(batches_of(rows))), SIFTED_SCHEMA)


def control(rows: Sequence[Placed]) -> Control:
    """The control records among these, as the driver reads them."""
    ordered = sorted(rows, key=lambda row: (row.node, row.offset))
    batches = list(batches_of([row for row in ordered if row.record.kind != EVENT]))
    return Control(pa.Table.from_batches(batches, RECORD_SCHEMA), len(rows) - len(batches))


def sifted_by(sieve: Sieve, rows: Sequence[Placed]) -> pa.Table:
    """What the executors would make of these records, in whichever plan."""
    partition = sieve.partition
    if partition is None:
        return pa.Table.from_batches(list(sift(sieve)(batches_of(rows))), SIFTED_SCHEMA)
    alone = sieve._replace(subscriptions=(), stack=(), moving=())
    found = match_share(sieve, partition)(route(sieve, partition)(batches_of(rows)))
    told = pa.Table.from_batches([*sift(alone)(batches_of(rows)), *found], SIFTED_SCHEMA)
    return gathered(told, sieve.open_subscriptions())


class PureStream:
    """Runs batch after batch over a state in `folder`, as the stream does, but for Spark and the outbox."""

    def __init__(
        self,
        folder: Path,
        *,
        history: int = HISTORY,
        workers: int = 0,
        balance: int = BALANCE,
        uneven: float = UNEVEN,
    ) -> None:
        self.state = StateFolder(folder)
        self.history = history
        self.workers = workers
        self.balance = balance
        self.uneven = uneven
        self.state.create("pure", {})
        self.restart()

    def restart(self) -> None:
        """Read the state again."""
        manifest = self.state.newest()
        assert manifest is not None
        self.books = Books(
            self.state, manifest, history=self.history, workers=self.workers, balance=self.balance, uneven=self.uneven
        )

    def run(self, rows: Sequence[Placed]) -> Entry:
        """The next batch, its records in the order given."""
        page = self.books.open(control(rows), self.books.manifest.batch + 1)
        sifted = sifted_by(page.sieve, rows)
        entry = self.books.close(page, sifted)
        self.state.publish(entry.manifest)
        self.books.turn(entry)
        return entry
