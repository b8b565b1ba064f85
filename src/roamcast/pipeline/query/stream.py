"""The stream: one Structured Streaming query over the journal, and what happens in each of its batches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.streaming.query import StreamingQuery

from roamcast.deliver.outbox import Outbox, PipelineStatus
from roamcast.durable import storage_errors, write_atomic
from roamcast.errors import CapacityError, ConflictError, RoamcastError, StorageError
from roamcast.pipeline.query.batch_metrics import Watch, figures_of
from roamcast.pipeline.query.identity import NEW_HINT, Pipeline
from roamcast.pipeline.query.source import JournalSource
from roamcast.pipeline.schemas import SIFTED_SCHEMA
from roamcast.pipeline.state.batch_state import BALANCE, HISTORY, Books, Entry, Page
from roamcast.pipeline.state.control import SetAside, control_of, offset_ranges
from roamcast.pipeline.state.state_server import Supplier
from roamcast.pipeline.tasks.sharded_match import sifted_by

__all__ = ["Limits", "Stream"]

log = logging.getLogger(__name__)

_DISK_PAUSE: Final = 1.0
_OFFICE_PAUSE: Final = 0.2


@dataclass(frozen=True, slots=True)
class Limits:
    """`records`: the most that one batch takes. `outbox`: how many may wait for an office before matching waits.

    `history`: for how many microseconds ended bindings are kept, for events that come late. `workers` share the index
    (the partitioned plan; 0: replicated), and their load is balanced after every `balance` events.
    """

    records: int = 50_000
    outbox: int = 1_000
    history: int = HISTORY
    workers: int = 0
    balance: int = BALANCE


class Stream:
    """Runs the batches of one pipeline, one after the other, each from the state the one before left."""

    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, data: Path, limits: Limits, supplier: Supplier | None = None
    ) -> None:
        """Executors on other hosts have the state's files and the journal from the `supplier`."""
        self._spark = spark
        self._supplier = supplier
        self._pipeline = pipeline
        self._journal = data / "journal"
        self._outbox = Outbox(data / "outbox")
        self._limits = limits
        self._books = Books(
            pipeline.state, pipeline.manifest, history=limits.history, workers=limits.workers, balance=limits.balance
        )
        self._between_batches = threading.Lock()
        self._stopping = threading.Event()
        self._read: dict[str, int] = {}
        self.failure: RoamcastError | None = None  # what a batch failed with: Spark hands on no more than its text

    def start(self) -> StreamingQuery:
        """Begin, or go on where the last run was cut off."""
        with storage_errors(self._journal):
            self._journal.mkdir(parents=True, exist_ok=True)
        if (batch := self._books.manifest.batch) >= 0:
            done = offset_ranges(self._pipeline.checkpoint, batch)
            self._read = {node: through for node, (_, through) in done.items()}
        self._show()
        self._spark.dataSource.register(JournalSource)
        reading = (
            self._spark.readStream.format(JournalSource.name())
            .option("root", str(self._journal))
            .option("records", str(self._limits.records))
        )
        if self._supplier is not None:
            reading = reading.option("supplier_secret", self._supplier.to_json())
        writer = reading.load().writeStream.foreachBatch(self._on_batch)
        return writer.option("checkpointLocation", str(self._pipeline.checkpoint)).start()

    def stop(self) -> None:
        """Let the batch under way finish; no other begins."""
        self._stopping.set()
        self._between_batches.acquire()

    def _on_batch(self, records: DataFrame, batch: int) -> None:
        with self._between_batches:
            if batch == self._books.manifest.batch:
                return  # its state was published before Spark noted the batch as done
            try:
                if batch != self._books.manifest.batch + 1:
                    raise ConflictError(
                        f"batch {batch} cannot follow batch {self._books.manifest.batch}", hint=NEW_HINT
                    )
                self._pipeline.sync_checkpoint(batch)
                self._wait_for_offices()
                self._tell(*self._run_when_the_disk_allows(records, batch))
            except RoamcastError as error:
                self.failure = error
                raise

    def _run_when_the_disk_allows(self, records: DataFrame, batch: int) -> tuple[Entry, Watch]:
        """A full disk is waited for: until the batch has happened, repeating it changes nothing."""
        said = False
        while True:
            try:
                return self._run(records, batch)
            except StorageError as error:
                if not said:
                    log.warning("batch %d waits for the disk: %s", batch, error)
                    said = True
                if self._stopping.wait(_DISK_PAUSE):
                    raise

    def _run(self, records: DataFrame, batch: int) -> tuple[Entry, Watch]:
        """One Spark job at most: the driver has read beforehand what the batch changes."""
        watch = Watch()
        ranges = offset_ranges(self._pipeline.checkpoint, batch)
        control = control_of(self._journal, ranges)
        watch.step("control")
        page = self._books.open(control, batch)
        watch.step("state")
        sifted = self._sifted(records, page, control.events)
        watch.step("match")
        entry = self._books.close(page, sifted)
        watch.step("letters")
        self._put_aside(records, batch, entry.set_aside)
        self._pipeline.check_generation()
        for office, letters in entry.numbered.letters.items():
            self._outbox.put(office, self._pipeline.id, batch, letters)
        watch.step("outbox")
        self._pipeline.check_generation()
        self._pipeline.state.publish(entry.manifest)  # batch N happens here, whole or not at all
        self._books.turn(entry)
        watch.step("publish")
        self._read = {node: through for node, (_, through) in ranges.items()}
        return entry, watch

    def _sifted(self, records: DataFrame, page: Page, events: int) -> pa.Table:
        """The events as the executors sifted them."""
        if not events:
            return SIFTED_SCHEMA.empty_table()
        sieve = page.sieve._replace(supplier=self._supplier)
        return sifted_by(records, sieve)

    def _put_aside(self, records: DataFrame, batch: int, items: Sequence[SetAside]) -> None:
        """Keep what cannot be processed, with the reason, where a person finds it."""
        if not items:
            return
        reasons = records.sparkSession.createDataFrame(pa.Table.from_pylist([item._asdict() for item in items]))
        rows = records.join(reasons, ["node", "offset"])
        # As a text, since a time that cannot be processed may be one that Python has no date for.
        found = rows.withColumn("time", F.col("time").cast("string")).toArrow()
        found = found.sort_by([("node", "ascending"), ("offset", "ascending")])
        lines = [orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in found.to_pylist()]
        folder = self._pipeline.set_aside
        with storage_errors(folder):
            folder.mkdir(exist_ok=True)
        write_atomic(folder / f"{batch:020d}.ndjson", b"".join(lines))
        log.warning("batch %d: %d records set aside in %s", batch, len(lines), folder)

    def _wait_for_offices(self) -> None:
        """A full outbox pushes back: no batch is matched while an office has too many to take."""
        said = False
        while not self._stopping.is_set():
            office, waiting = self._outbox.fullest()
            if waiting < self._limits.outbox:
                return
            if not said:
                log.warning("waiting: office %r has %d batches to take; is its node running?", office, waiting)
                said = True
            self._stopping.wait(_OFFICE_PAUSE)
        raise CapacityError("stopped while an office had too many batches to take", hint="start its node")

    def _tell(self, entry: Entry, watch: Watch) -> None:
        """The batch has happened; a disk that refuses to have it shown changes nothing about that."""
        try:
            self._show(figures_of(entry, self._pipeline.state), watch.seconds)
        except StorageError as error:
            log.warning("batch %d is done, but cannot be shown: %s", entry.manifest.batch, error)

    def _show(self, figures: Mapping[str, float] | None = None, seconds: Mapping[str, float] | None = None) -> None:
        done = self._books.manifest
        self._outbox.write_status(
            PipelineStatus(self._pipeline.id, done.batch, done.counters, figures or {}, seconds or {}, self._read)
        )
