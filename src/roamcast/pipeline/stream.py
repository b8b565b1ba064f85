"""The stream: one Structured Streaming query over the journal, and what happens in each of its batches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.streaming.query import StreamingQuery

from roamcast.deliver.outbox import Outbox, Sender
from roamcast.deliver.ranges import Ranges
from roamcast.durable import refusals_named, write_whole
from roamcast.errors import CapacityError, ConflictError, RoamcastError, StorageError
from roamcast.pipeline.identity import NEW_HINT, Pipeline
from roamcast.pipeline.intake import Intake, SetAside, Source, take_in, without
from roamcast.pipeline.matching import admission, sift
from roamcast.pipeline.numbering import Numbered, Receiver, number_letters
from roamcast.pipeline.parts import Part
from roamcast.pipeline.schemas import RECEIVERS, SIFTED_SCHEMA, SOURCES, SUBSCRIPTIONS, Table, spark_schema
from roamcast.pipeline.source import JournalSource

__all__ = ["Limits", "Stream"]

log = logging.getLogger(__name__)

_COUNTERS: Final = ("events", "duplicates_dropped", "set_aside", "letters", "subscriptions")

_DISK_PAUSE: Final = 1.0
_OFFICE_PAUSE: Final = 0.2


@dataclass(frozen=True, slots=True)
class Limits:
    """`records`: the most that one batch takes. `outbox`: how many may wait for an office before matching waits."""

    records: int = 50_000
    outbox: int = 1_000


class Stream:
    """Runs the batches of one pipeline, one after the other, each from the state the one before left."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, data: Path, limits: Limits) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._journal = data / "journal"
        self._outbox = Outbox(data / "outbox")
        self._limits = limits
        self._manifest = pipeline.manifest
        self._parts = pipeline.state.parts
        self._seen, self._last = self._load()
        self._between_batches = threading.Lock()
        self._stopping = threading.Event()
        self.failure: RoamcastError | None = None  # what a batch failed with: Spark hands on no more than its text

    def start(self) -> StreamingQuery:
        """Begin, or go on where the last run was cut off."""
        with refusals_named(self._journal):
            self._journal.mkdir(parents=True, exist_ok=True)
        self._show()
        self._spark.dataSource.register(JournalSource)
        records = (
            self._spark.readStream.format(JournalSource.name())
            .option("root", str(self._journal))
            .option("records", str(self._limits.records))
            .load()
        )
        writer = records.writeStream.foreachBatch(self._on_batch)
        return writer.option("checkpointLocation", str(self._pipeline.checkpoint)).start()

    def stop(self) -> None:
        """Let the batch under way finish; no other begins."""
        self._stopping.set()
        self._between_batches.acquire()

    def _on_batch(self, records: DataFrame, batch: int) -> None:
        with self._between_batches:
            if batch == self._manifest.batch:
                return  # its state was published before Spark noted the batch as done
            try:
                if batch != self._manifest.batch + 1:
                    raise ConflictError(f"batch {batch} cannot follow batch {self._manifest.batch}", hint=NEW_HINT)
                self._pipeline.sync_checkpoint(batch)
                self._wait_for_offices()
                self._run_when_the_disk_allows(records, batch)
            except RoamcastError as error:
                self.failure = error
                raise

    def _run_when_the_disk_allows(self, records: DataFrame, batch: int) -> None:
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

    def _run(self, records: DataFrame, batch: int) -> None:
        """One Spark job; two where subscriptions change, since only the first tells which do."""
        parts = self._manifest.parts(SUBSCRIPTIONS.name)
        sifted, subscriptions = self._sift(records, parts, batch, removals=False)
        intake = take_in(sifted, batch, self._seen, self._live_subscriptions)
        if intake.subscriptions.num_rows:
            parts = self._parts.push(SUBSCRIPTIONS, parts, intake.subscriptions, batch)
            sifted, subscriptions = self._sift(records, parts, batch, removals=True)
        numbered = number_letters(without(sifted, intake.dropped), subscriptions, self._last)
        self._put_aside(records, batch, intake.set_aside)
        self._pipeline.check_generation()
        for office, letters in numbered.letters.items():
            self._outbox.put(office, self._pipeline.id, batch, letters)
        self._publish(batch, intake, parts, numbered)

    def _sift(
        self, records: DataFrame, parts: tuple[Part, ...], batch: int, *, removals: bool
    ) -> tuple[pa.Table, pa.Table]:
        """The records as the executors sifted them, and the subscriptions that their rows speak of."""
        run = sift(self._parts.folder, parts, batch, removals=removals)
        sifted = records.mapInArrow(run, spark_schema(SIFTED_SCHEMA)).toArrow()
        return sifted, admission(self._parts.folder, parts, batch, removals=removals).rows

    def _publish(self, batch: int, intake: Intake, parts: tuple[Part, ...], numbered: Numbered) -> None:
        """Batch N happens here, whole or not at all."""
        seen: dict[str, list[Any]] = {
            "node": [source.node for source in intake.seen],
            "source": [source.name for source in intake.seen],
            "seen": [ranges.to_text() for ranges in intake.seen.values()],
        }
        last: dict[str, list[Any]] = {
            "office": [receiver.office for receiver in numbered.last],
            "receiver": [receiver.name for receiver in numbered.last],
            "last": list(numbered.last.values()),
        }
        tables = {
            SUBSCRIPTIONS.name: parts,
            SOURCES.name: self._push(SOURCES, seen, batch),
            RECEIVERS.name: self._push(RECEIVERS, last, batch),
        }
        grown = {
            "events": intake.events - intake.duplicates,
            "duplicates_dropped": intake.duplicates,
            "set_aside": len(intake.set_aside),
            "letters": sum(letters.num_rows for letters in numbered.letters.values()),
            "subscriptions": intake.growth,
        }
        counters = {name: self._manifest.counters.get(name, 0) + grown[name] for name in _COUNTERS}
        manifest = replace(self._manifest, batch=batch, tables=tables, counters=counters)
        self._pipeline.check_generation()
        self._pipeline.state.publish(manifest)
        self._manifest = manifest
        self._seen.update(intake.seen)
        self._last.update(numbered.last)
        self._show()

    def _push(self, table: Table, columns: Mapping[str, list[Any]], batch: int) -> tuple[Part, ...]:
        rows = pa.table(columns, schema=table.schema)
        return self._parts.push(table, self._manifest.parts(table.name), rows, batch)

    def _load(self) -> tuple[dict[Source, Ranges], dict[Receiver, int]]:
        sources = self._parts.read_all(SOURCES, self._manifest.parts(SOURCES.name)).to_pydict()
        receivers = self._parts.read_all(RECEIVERS, self._manifest.parts(RECEIVERS.name)).to_pydict()
        known = map(Source, sources["node"], sources["source"])
        seen = dict(zip(known, map(Ranges.from_text, sources["seen"]), strict=True))
        names = map(Receiver, receivers["office"], receivers["receiver"])
        return seen, dict(zip(names, receivers["last"], strict=True))

    def _live_subscriptions(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        admitted = admission(
            self._parts.folder, self._manifest.parts(SUBSCRIPTIONS.name), self._manifest.batch, removals=False
        )
        rows = admitted.rows.filter(pc.is_in(admitted.rows["id"], pa.array(ids, pa.string())))
        return list(rows.to_pylist())

    def _put_aside(self, records: DataFrame, batch: int, items: Sequence[SetAside]) -> None:
        """Keep what cannot be processed, with the reason, where a person finds it."""
        if not items:
            return
        reasons = records.sparkSession.createDataFrame(pa.Table.from_pylist([item._asdict() for item in items]))
        rows = records.join(reasons, ["node", "position"])
        # As a text, since a time that cannot be processed may be one that Python has no date for.
        found = rows.withColumn("time", F.col("time").cast("string")).toArrow()
        found = found.sort_by([("node", "ascending"), ("position", "ascending")])
        lines = [orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in found.to_pylist()]
        folder = self._pipeline.set_aside
        with refusals_named(folder):
            folder.mkdir(exist_ok=True)
        write_whole(folder / f"{batch:020d}.ndjson", b"".join(lines))
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

    def _show(self) -> None:
        self._outbox.show_sender(Sender(self._pipeline.id, self._manifest.batch, self._manifest.counters))
