"""Batches of a pipeline for benchmarks: journal records go through the batch state as in the streaming query."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from roamcast.journal.bodies import SubscriptionBody
from roamcast.journal.records import EVENT, RECORD_SCHEMA, Record, to_batch
from roamcast.lab.bench.match_data import MatchData
from roamcast.match.port import Subscriptions
from roamcast.model import Box

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from roamcast.pipeline.state.batch_state import Page

__all__ = ["Batches", "bodies_of", "write_events"]

_NODE: Final = "bench"
_SOURCES: Final = 1_000
_FILES: Final = 8


class Batches:
    """The books of a state with these subscriptions, and the same events again and again, each time as new ones.

    A batch is opened with its control records, and its events, which come after them, are sifted by Spark. Letters are
    not written: they are no part of the match.
    """

    def __init__(self, folder: Path, subscriptions: Subscriptions, events: DataFrame, *, workers: int = 0) -> None:
        """With `workers` above 0, use the partitioned plan."""
        from roamcast.pipeline.schemas import SUBSCRIPTIONS
        from roamcast.pipeline.state.batch_state import Books
        from roamcast.pipeline.state.manifests import StateFolder

        self._state = StateFolder(folder)
        self._state.create("bench", {SUBSCRIPTIONS.name: _rows(subscriptions)})
        manifest = self._state.newest()
        if manifest is None:
            raise LookupError(f"no state in {folder}")
        self.books = Books(self._state, manifest, workers=workers)
        self._events, self._count = events, events.count()
        self._place = 0

    def records(self, records: Sequence[Record]) -> pa.Table:
        """Return records as a table, at the next offsets of the journal."""
        table = pa.Table.from_batches([to_batch(_NODE, self._place + 1, records)], RECORD_SCHEMA)
        self._place += len(records)
        return table

    def open(self, records: pa.Table) -> Page:
        """Apply control records; afterwards the index is usable."""
        from roamcast.pipeline.state.control import Control

        return self.books.open(Control(records, self._count), self.books.manifest.batch + 1)

    def sift(self, page: Page) -> int:
        """As `sifted`. Counts the matches."""
        return int(pc.sum(pc.list_value_length(self.sifted(page)["subscriptions"])).as_py() or 0)

    def sifted(self, page: Page) -> pa.Table:
        """Bring the events after the page's records to the driver, as the executors sift them."""
        from pyspark.sql import functions as f

        from roamcast.pipeline.tasks.sharded_match import sifted_by

        columns = {"offset": self._place, "seq": page.sieve.batch * self._count}
        events = self._events.withColumns({name: f.col(name) + more for name, more in columns.items()})
        self._place += self._count
        return sifted_by(events, page.sieve)

    def close(self, page: Page) -> None:
        """Publish the state after the batch."""
        from roamcast.pipeline.schemas import SIFTED_SCHEMA

        entry = self.books.close(page, SIFTED_SCHEMA.empty_table())
        self._state.publish(entry.manifest)
        self.books.turn(entry)


def write_events(spark: SparkSession, folder: Path, data: MatchData, count: int) -> DataFrame:
    """Write events as journal records and cache them in Spark."""
    folder.mkdir()
    for first, last in pairwise(np.linspace(0, count, _FILES + 1).astype(int).tolist()):
        pq.write_table(_events(data, first, last), folder / f"{first}.parquet")
    return spark.read.parquet(str(folder)).persist()


def _events(data: MatchData, first: int, last: int) -> pa.Table:
    numbers, events = range(first, last), data.events(first, last)
    columns = {
        "node": [_NODE] * len(numbers), "offset": [n + 1 for n in numbers], "kind": [EVENT] * len(numbers),
        "entity": [f"c{n % _SOURCES}" for n in numbers], "seq": [n // _SOURCES + 1 for n in numbers],
        "id": [f"e{n}" for n in numbers], "time": [n + 1 for n in numbers],
        "x": events["x"], "y": events["y"], "terms": events["terms"],
    }  # fmt: skip
    rows = [columns.get(field.name, pa.nulls(len(numbers), field.type)) for field in RECORD_SCHEMA]
    return pa.table(rows, schema=RECORD_SCHEMA)


def bodies_of(subscriptions: Subscriptions) -> Iterable[str]:
    """Return the record bodies of subscriptions, as nodes write them."""
    boxes = zip(*(side.tolist() for side in subscriptions[:4]), strict=True)
    for box, terms in zip(boxes, subscriptions.terms.to_pylist(), strict=True):
        yield SubscriptionBody(Box(*box), tuple(terms)).to_json()


def _rows(subscriptions: Subscriptions) -> pa.Table:
    """Return subscriptions as rows of the state, at offsets before the journal."""
    from roamcast.pipeline.schemas import SUBSCRIPTIONS

    count = len(subscriptions.min_x)
    names = [str(number) for number in range(count)]
    columns = {
        **subscriptions._asdict(), "node": [_NODE] * count, "since": np.arange(-count, 0), "id": names,
        "subscriber": names, "begin": np.zeros(count, np.int64), "space": ["geographic"] * count,
    }  # fmt: skip
    rows = [columns.get(field.name, pa.nulls(count, field.type)) for field in SUBSCRIPTIONS.schema]
    return pa.table(rows, schema=SUBSCRIPTIONS.schema)
