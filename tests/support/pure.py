"""The pipeline's batch without Spark: intake, matching and numbering chained as the stream chains them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from roamcast.deliver.ranges import Ranges
from roamcast.journal.records import Record, to_batch
from roamcast.pipeline.intake import Intake, Source, take_in, without
from roamcast.pipeline.matching import admission, sift
from roamcast.pipeline.numbering import Numbered, Receiver, number_letters
from roamcast.pipeline.parts import Part, PartFolder
from roamcast.pipeline.schemas import SIFTED_SCHEMA, SUBSCRIPTIONS


class Placed(NamedTuple):
    """A record at its place in a journal."""

    node: str
    position: int
    record: Record


def placed(records: Sequence[Record], node: str = "local", first: int = 1) -> list[Placed]:
    """Records at dense positions of one node."""
    return [Placed(node, position, record) for position, record in enumerate(records, first)]


def is_whole(record: Record) -> bool:
    """Whether an event has all it needs."""
    point = record.x is not None and record.y is not None and math.isfinite(record.x) and math.isfinite(record.y)
    named = None not in (record.entity, record.id, record.time)
    return point and named and record.seq is not None and record.seq >= 1


def sifted(rows: Sequence[Placed], folder: Path, stack: tuple[Part, ...] = (), batch: int = 0) -> pa.Table:
    """What the driver is told of each record, each sifted in an Arrow batch of its own."""
    sieve = sift(folder, stack, batch, removals=True)
    batches = (to_batch(node, position, [record]) for node, position, record in rows)
    return pa.Table.from_batches(list(sieve(batches)), SIFTED_SCHEMA)


def brief(rows: Sequence[Placed]) -> pa.Table:
    """What the driver is told of each record where there is no subscription."""
    return sifted(rows, Path())


class PureStream:
    """Runs batch after batch over parts in `folder`; everything else is in memory."""

    def __init__(self, folder: Path) -> None:
        self.parts = PartFolder(folder)
        self.stack: tuple[Part, ...] = ()
        self.seen: dict[Source, Ranges] = {}
        self.last: dict[Receiver, int] = {}
        self.live = 0
        self.batch = -1

    def run(self, rows: Sequence[Placed]) -> tuple[Intake, Numbered]:
        """The next batch, its records in the order given."""
        self.batch += 1
        intake = take_in(brief(rows), self.batch, self.seen, self.lookup)
        self.stack = self.parts.push(SUBSCRIPTIONS, self.stack, intake.subscriptions, self.batch)
        matched = without(sifted(rows, self.parts.folder, self.stack, self.batch), intake.dropped)
        admitted = admission(self.parts.folder, self.stack, self.batch, removals=True)
        numbered = number_letters(matched, admitted.rows, self.last)
        self.seen.update(intake.seen)
        self.last.update(numbered.last)
        self.live += intake.growth
        return intake, numbered

    def lookup(self, ids: Sequence[str]) -> list[Mapping[str, Any]]:
        rows = admission(self.parts.folder, self.stack, self.batch, removals=False).rows
        return [row for row in rows.to_pylist() if row["id"] in ids]
