"""Batches of a pipeline for measurements: journal records go through the batch state as in the streaming query."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from roamcast.journal.bodies import SubscriptionBody
from roamcast.journal.records import EVENT, RECORD_SCHEMA, Record, to_batch
from roamcast.match.index.rows import select_events
from roamcast.match.port import Events, Subscriptions
from roamcast.model import Box

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from roamcast.pipeline.query.batch_state import BatchSettings, PreparedBatch
    from roamcast.pipeline.state.load import LoadRows

__all__ = ["Batches", "bodies_of", "event_records", "shard_balance", "write_events"]

_NODE: Final = "bench"
_SOURCES: Final = 1_000
_FILES: Final = 8


class Batches:
    """A batch state with these subscriptions, and the same events in every batch, each time as new ones.

    A batch is prepared with its control records. Its events come after these and are matched by Spark. No letters are
    written: they are not part of what is measured. `run_here` runs a batch with other events, without Spark.
    """

    def __init__(
        self, folder: Path, subscriptions: Subscriptions, events: DataFrame, settings: BatchSettings | None = None
    ) -> None:
        from roamcast.pipeline.query.batch_state import BatchState
        from roamcast.pipeline.schemas import SUBSCRIPTIONS
        from roamcast.pipeline.state.manifests import StateFolder

        state_folder = StateFolder(folder)
        state_folder.create("bench", {SUBSCRIPTIONS.name: _rows(subscriptions)})
        manifest = state_folder.newest()
        if manifest is None:
            raise LookupError(f"no state in {folder}")
        self._folder = state_folder
        self.state = BatchState(state_folder, manifest, settings)
        self._events, self.event_count = events, events.count()
        self._last_offset = 0

    def records(self, records: Sequence[Record]) -> pa.Table:
        """Return records as a table, at the next offsets of the journal."""
        table = pa.Table.from_batches([to_batch(_NODE, self._last_offset + 1, records)], RECORD_SCHEMA)
        self._last_offset += len(records)
        return table

    def prepare(self, records: pa.Table) -> PreparedBatch:
        """Apply the control records of the next batch."""
        from roamcast.pipeline.state.control import ControlRecords

        return self.state.prepare(ControlRecords(records, self.event_count), self.state.manifest.batch + 1)

    def run_here(self, records: Sequence[Record], events: Events) -> None:
        """Run a whole batch in this process, with these events."""
        from roamcast.pipeline.state.control import ControlRecords
        from roamcast.pipeline.tasks.match_job import match_here

        control = ControlRecords(self.records(records), len(events.x))
        prepared = self.state.prepare(control, self.state.manifest.batch + 1)
        records_of_events = event_records(events, self._last_offset).to_batches()
        self.commit(prepared, match_here(records_of_events, prepared.context))
        self._last_offset += len(events.x)

    def restart(self, settings: BatchSettings) -> None:
        """Read the state again, to go on with other settings."""
        from roamcast.pipeline.query.batch_state import BatchState

        self.state = BatchState(self._folder, self.state.manifest, settings)

    def count_matches(self, prepared: PreparedBatch) -> int:
        """Match the events, and count the matches."""
        return int(pc.sum(pc.list_value_length(self.match(prepared)["subscriptions"])).as_py() or 0)

    def match(self, prepared: PreparedBatch) -> pa.Table:
        """Match the events, which come after the records of the batch."""
        from roamcast.pipeline.tasks.match_job import match_events

        return match_events(self._next_events(prepared.context.batch), prepared.context)

    def worker_seconds(self, prepared: PreparedBatch) -> list[float]:
        """Match the events; return the CPU time of the Python process of each worker that got some."""
        from roamcast.pipeline.schemas import spark_schema
        from roamcast.pipeline.tasks.match_job import match_shards, route_events
        from roamcast.pipeline.tasks.packing import PACKED_SCHEMA, exchange

        context, events = prepared.context, self._next_events(prepared.context.batch)
        workers = len(context.sharded.shards) if context.sharded else 1
        routed = exchange(events.mapInArrow(route_events(context), spark_schema(PACKED_SCHEMA)), workers)
        seconds = routed.mapInArrow(_cpu_time(match_shards(context)), "seconds double")
        return [row["seconds"] for row in seconds.collect()]

    def _next_events(self, batch: int) -> DataFrame:
        from pyspark.sql import functions as f

        added = {"offset": self._last_offset, "seq": batch * self.event_count}
        self._last_offset += self.event_count
        return self._events.withColumns({name: f.col(name) + number for name, number in added.items()})

    def commit(self, prepared: PreparedBatch, matched: pa.Table | None = None) -> None:
        """Publish the state after the batch: as if it had no events, or with the events that `match` returned."""
        from roamcast.pipeline.letters.here import make_letters_here
        from roamcast.pipeline.schemas import MATCHED_SCHEMA

        rows = MATCHED_SCHEMA.empty_table() if matched is None else matched
        reports = make_letters_here(rows, prepared.letters, lambda office, letters: None)
        self.state.commit(self.state.compute_result(prepared, reports))


def write_events(spark: SparkSession, folder: Path, events: Events) -> DataFrame:
    """Write events as journal records and cache them in Spark."""
    folder.mkdir()
    for first, last in pairwise(np.linspace(0, len(events.x), _FILES + 1).astype(int).tolist()):
        records = event_records(select_events(events, np.arange(first, last)), first)
        pq.write_table(records, folder / f"{first}.parquet")
    return spark.read.parquet(str(folder)).persist()


def event_records(events: Events, first: int) -> pa.Table:
    """Return events as journal records; the first has the number `first`, from 0 on."""
    numbers = range(first, first + len(events.x))
    columns = {
        "node": [_NODE] * len(numbers), "offset": [n + 1 for n in numbers], "kind": [EVENT] * len(numbers),
        "entity": [f"c{n % _SOURCES}" for n in numbers], "seq": [n // _SOURCES + 1 for n in numbers],
        "id": [f"e{n}" for n in numbers], "time": [n + 1 for n in numbers],
        "x": events.x, "y": events.y, "terms": events.terms,
    }  # fmt: skip
    rows = [columns.get(field.name, pa.nulls(len(numbers), field.type)) for field in RECORD_SCHEMA]
    return pa.table(rows, schema=RECORD_SCHEMA)


def _cpu_time(
    work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for mapInArrow: it does the work, and returns the seconds that it took instead of a result."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        began, rows = time.process_time(), 0
        for result in work(batches):
            rows += result.num_rows
        if rows:
            yield pa.RecordBatch.from_pydict({"seconds": [time.process_time() - began]})

    return run


def shard_balance(load: LoadRows, workers: int) -> float:
    """Return the work of the busiest shard, messages and checks, relative to the mean."""
    shards = load.of_shards
    work = np.bincount(shards.worker, shards.messages + shards.checks, minlength=workers)
    return float(work.max() / work.mean()) if work.any() else 1.0


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
