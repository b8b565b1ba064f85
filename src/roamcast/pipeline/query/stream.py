"""The pipeline's Structured Streaming query, and the steps of each of its batches.

read control records → prepare → match and make letters (a large batch: in one Spark job) → compute the result →
write the record of the outbox → commit
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from roamcast.deliver.outbox import LetterFiles, Outbox, PipelineStatus
from roamcast.errors import CapacityError, ConflictError, CorruptionError, RoamcastError, StorageError
from roamcast.failures import wall_time
from roamcast.journal.reader import open_journal
from roamcast.pipeline.letters.context import LetterContext, LetterReport
from roamcast.pipeline.letters.here import make_letters_here
from roamcast.pipeline.letters.job import make_letters_by_job
from roamcast.pipeline.query.archiving import BatchArchive
from roamcast.pipeline.query.batch_state import BatchResult, BatchSettings, BatchState
from roamcast.pipeline.query.dead_letters import DeadLetterFolder
from roamcast.pipeline.query.histories import Evaluate, deliver_histories
from roamcast.pipeline.query.identity import NEW_HINT, PipelineFolder
from roamcast.pipeline.query.partitioning_status import partitioning_status
from roamcast.pipeline.query.source import JournalSource
from roamcast.pipeline.state.control import ControlRecords, OffsetRanges, read_control_records, read_offset_ranges
from roamcast.pipeline.state.manifests import StateFolder
from roamcast.pipeline.state.state_server import StateFetcher
from roamcast.pipeline.tasks.match_job import OffsetRange, TooManyMatchesError, match_here, split_ranges

__all__ = ["PipelineLimits", "PipelineQuery", "StepTimer", "batch_metrics"]

log = logging.getLogger(__name__)

_STORAGE_PAUSE_S: Final = 1.0
_OFFICE_PAUSE_S: Final = 0.2
_HEARTBEAT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class PipelineLimits:
    """`records`: the maximum of one batch. `outbox`: matching pauses while an office has that many unread batches.
    `interval`: seconds between the starts of batches that take less.

    Batches with up to `driver_events` events and `driver_letters` matches are processed in the driver; a Spark job
    would take longer. Batches are archived if there are days for which the archive keeps them (`archive_days`);
    then `evaluate_history` makes the letters of the past that new subscriptions ask for.
    """

    records: int = 50_000
    driver_events: int = 20_000
    driver_letters: int = 20_000
    outbox: int = 1_000
    archive_days: float | None = None
    interval: float = 0.0
    batch: BatchSettings = field(default_factory=BatchSettings)
    evaluate_history: Evaluate | None = None


class PipelineQuery:
    """Runs the batches of one pipeline one after the other, each from the state that the previous one left."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: PipelineFolder,
        data: Path,
        limits: PipelineLimits,
        fetcher: StateFetcher | None = None,
        outbox: Outbox | None = None,
    ) -> None:
        """Executors on other hosts get the files of the state and the journal with the `fetcher`, and put letters into
        the folder of the `outbox`.
        """
        self._spark = spark
        self._fetcher = fetcher
        self._pipeline = pipeline
        self._data = data
        self._journal = open_journal(data)
        self._outbox = outbox or pipeline.open_outbox(data)
        self._limits = limits
        self._state = BatchState(pipeline.state, pipeline.manifest, limits.batch)
        self._archive: BatchArchive | None = None
        if limits.archive_days is not None:
            storage, committed = pipeline.archive_storage(data), pipeline.manifest.batch
            check = pipeline.check_generation
            self._archive = BatchArchive(storage, pipeline.id, committed, limits.archive_days, check)
        self._batch_lock = threading.Lock()  # held while a batch runs; `stop` takes it for good
        self._stopping = threading.Event()
        self._status = PipelineStatus(pipeline.id, pipeline.manifest.batch, pipeline.manifest.counters)
        self._status_lock = threading.Lock()
        self._status_changed = threading.Event()  # since the status was written
        self._status_writer = threading.Lock()  # held while it is written
        self._dead_letters = DeadLetterFolder(pipeline.dead_letters, self._journal)
        self._heartbeat_over = threading.Event()
        self._letters_per_event = 0.0  # in the last batch with events
        self._is_repeated = True  # an earlier attempt at the next batch may have left letter files
        self.failure: RoamcastError | None = None
        """Why the query has ended. Of an error in a batch Spark passes on no more than its text."""

    def start(self) -> StreamingQuery:
        """Start the query, or continue where the last run ended."""
        if (batch := self._state.manifest.batch) >= 0:
            ranges = read_offset_ranges(self._pipeline.checkpoint, batch)
            self._status = replace(self._status, read_offsets=_ends(ranges))
        self._outbox.sweep()
        self._write_status()
        self._spark.dataSource.register(JournalSource)
        reader = self._spark.readStream.format(JournalSource.name())
        reader = reader.option("data", str(self._data)).option("records", str(self._limits.records))
        writer = reader.load().writeStream.foreachBatch(self._on_batch)
        writer = writer.trigger(processingTime=f"{round(self._limits.interval * 1_000)} milliseconds")
        query = writer.option("checkpointLocation", str(self._pipeline.checkpoint)).start()
        threading.Thread(target=self._beat, args=(query,), name="pipeline-heartbeat", daemon=True).start()
        if self._archive is not None:
            self._archive.start()
        return query

    def stop(self) -> None:
        """Let the current batch finish, and start no other."""
        self._stopping.set()
        self._batch_lock.acquire()
        self._heartbeat_over.set()
        if self._archive is not None:
            self._archive.stop()

    def _on_batch(self, _: DataFrame, batch: int) -> None:
        with self._batch_lock:
            last = self._state.manifest.batch
            if batch == last:
                return  # its state was published before Spark recorded the batch as done
            self._update_status(running_batch=batch, running_since=wall_time())
            try:
                if batch != last + 1:
                    raise ConflictError(f"batch {batch} cannot follow batch {last}", hint=NEW_HINT)
                result, timer = self._retry_while_storage_fails(batch)
                self._report(result, timer)
            except RoamcastError as error:
                self.failure = self.failure or error
                raise

    def _retry_while_storage_fails(self, batch: int) -> tuple[BatchResult, StepTimer]:
        """Until it is committed, a batch can be repeated without effect."""
        waiting = False
        while True:
            try:
                if waiting:
                    self._outbox.sweep()  # or repeated ones would fill the disk
                    self._is_repeated = True
                self._pipeline.sync_checkpoint(batch)
                self._wait_for_offices()
                done = self._run(batch)
            except StorageError as error:
                self._update_status(waiting_for_storage=str(error))
                if not waiting:
                    log.warning("batch %d waits for storage: %s", batch, error)
                    waiting = True
                if self._stopping.wait(_STORAGE_PAUSE_S):
                    raise
            except CorruptionError:
                self._pipeline.check_uncommitted(batch)  # who commits it at the last moment deletes its records
                raise
            else:
                if waiting:
                    log.info("batch %d is done: storage works again", batch)
                    self._update_status(waiting_for_storage=None)
                return done

    def _run(self, batch: int) -> tuple[BatchResult, StepTimer]:
        timer = StepTimer()
        ranges = read_offset_ranges(self._pipeline.checkpoint, batch)
        control = read_control_records(self._journal, ranges)
        timer.step("control")
        prepared = self._state.prepare(control, batch)
        timer.step("prepare")
        reports, by_job = self._make_letters(prepared.letters, ranges, control.events, timer)
        if control.events:
            letters = sum(report.counters.get("letters", 0) for report in reports)
            self._letters_per_event = letters / control.events
        if self._archive is not None:
            self._archive.add(batch, self._journal, ranges, reports)
            timer.step("archive")
        if control.histories.num_rows:
            reports.append(self._deliver_histories(control, batch))
            timer.step("histories")
        result = self._state.compute_result(prepared, reports)
        timer.step("result")
        self._dead_letters.write(batch, result.dead_letters)
        self._pipeline.check_generation()
        self._outbox.commit(self._pipeline.id, batch, result.letters)
        if by_job or self._is_repeated:
            self._outbox.sweep_attempts(self._pipeline.id, batch, result.letters)
            self._is_repeated = False
        timer.step("outbox")
        self._pipeline.check_generation()
        self._state.commit(result)
        if self._archive is not None:
            self._archive.committed(batch)
        timer.step("commit")
        self._update_status(
            batch=batch,
            counters=self._state.manifest.counters,
            read_offsets=_ends(ranges),
            running_batch=None,
            running_since=None,
            batches_here=self._status.batches_here + (not by_job),
            batches_by_jobs=self._status.batches_by_jobs + by_job,
        )
        return result, timer

    def _deliver_histories(self, control: ControlRecords, batch: int) -> LetterReport:
        """Send the letters of the past that new subscriptions of a batch want."""
        evaluate = None if self._archive is None else self._limits.evaluate_history
        open_archive = None if self._archive is None else self._archive.open
        dead_letters = deliver_histories(
            control.histories, control.records, open_archive, evaluate, self._outbox, self._pipeline.id, batch
        )
        return LetterReport({}, {}, dead_letters=dead_letters)

    def _make_letters(
        self, context: LetterContext, ranges: OffsetRanges, events: int, timer: StepTimer
    ) -> tuple[list[LetterReport], bool]:
        """Match the events of a batch and write its letters; what was reported, and whether a Spark job did it."""
        split = split_ranges(self._journal, ranges) if events else []
        if self._is_small(context, events):
            reports = self._make_letters_here(context, split, timer)
            if reports is not None:
                return reports, False
        journal = self._journal if self._fetcher is None else self._fetcher.journal()
        context = context._replace(match=context.match._replace(fetcher=self._fetcher))
        reports = make_letters_by_job(self._spark, journal, split, context, self._outbox.folder)
        timer.step("job")
        return reports, True

    def _make_letters_here(
        self, context: LetterContext, split: Sequence[OffsetRange], timer: StepTimer
    ) -> list[LetterReport] | None:
        """Do both in the driver, unless it finds too many matches."""
        records = (batch for offsets in split for batch in self._journal.read(*offsets))
        try:
            matched = match_here(records, context.match, self._limits.driver_letters)
        except TooManyMatchesError:
            return None
        finally:
            timer.step("match")
        files = LetterFiles(self._outbox.folder, self._pipeline.id, context.match.batch)
        reports = make_letters_here(matched, context, files.write, files.close)
        timer.step("letters")
        return reports

    def _is_small(self, context: LetterContext, events: int) -> bool:
        """Whether the driver should match a batch: not if it would probably have too many letters, as the last one."""
        letters = self._letters_per_event * events
        is_few = events <= self._limits.driver_events and letters <= self._limits.driver_letters
        return not events or (is_few and not context.needs_job)

    def _wait_for_offices(self) -> None:
        """Apply back-pressure: match no batch while an office has too many to read."""
        warned = False
        while not self._stopping.is_set():
            office, waiting = self._outbox.fullest()
            if waiting < self._limits.outbox:
                return
            if not warned:
                log.warning("waiting: office %r has %d unread batches; is its node running?", office, waiting)
                warned = True
            self._stopping.wait(_OFFICE_PAUSE_S)
        raise CapacityError("stopped while an office had too many batches to read", hint="start its node")

    def _report(self, result: BatchResult, timer: StepTimer) -> None:
        """Update the status file. The batch is committed, so a disk that refuses does not matter."""
        try:
            metrics = batch_metrics(result, self._pipeline.state)
            partitioning = partitioning_status(result)
            self._update_status(metrics=metrics, step_seconds=timer.seconds, partitioning=partitioning)
            self._write_status()
        except StorageError as error:
            log.warning("batch %d is committed, but the status file was not written: %s", result.manifest.batch, error)

    def _update_status(self, **changes: Any) -> None:
        """Change what the next write of the status file says."""
        with self._status_lock:
            self._status = replace(self._status, **changes)

    def _write_status(self) -> None:
        """Write the status file. Raises StorageError.

        Does not wait for another thread that is writing it: that one writes it again, then.
        """
        self._status_changed.set()
        while self._status_changed.is_set() and self._status_writer.acquire(blocking=False):
            try:
                self._status_changed.clear()
                count, since = self._dead_letters.count()
                archive = None if self._archive is None else self._archive.status()
                self._update_status(
                    written_at=wall_time(), dead_letters=count, dead_letters_since=since, archive=archive
                )
                self._outbox.write_status(self._status)
            finally:
                self._status_writer.release()

    def _beat(self, query: StreamingQuery) -> None:
        """Write the status file regularly while the query is active, so that nodes can tell idle from dead."""
        warned = False
        while not self._heartbeat_over.wait(_HEARTBEAT_S):
            try:
                if not query.isActive:
                    return
                self._pipeline.check_generation()
                self._write_status()
                warned = False
            except StorageError as error:
                if not warned:
                    log.warning("the status file was not written: %s; retrying", error)
                warned = True
            except ConflictError as error:
                self.failure = self.failure or error
                self._stopping.set()  # a batch that waits
                query.stop()
                return
            except Exception as error:  # without Spark, this is not the pipeline any more
                log.debug("no more heartbeats: %s", error)
                return


def _ends(ranges: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """The last offset of each node's range."""
    return {node: through for node, (_, through) in ranges.items()}


class StepTimer:
    """Measures the duration of consecutive steps."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = perf_counter()

    def step(self, name: str) -> None:
        """Record the time since the last step under this name."""
        now = perf_counter()
        self.seconds[name] = round(now - self._last, 6)
        self._last = now


def batch_metrics(result: BatchResult, state: StateFolder) -> Mapping[str, float]:
    """The metrics of a batch.

    Of the batch: `postings_scanned` in the index, and `matches` of plan match. Of the state after it: `segments` of the
    index, `state_bytes` on disk, `moving_regions`.
    """
    return {
        "postings_scanned": result.postings_scanned,
        "matches": result.matches,
        "segments": len(result.manifest.index.segments),
        "state_bytes": state.nbytes(),
        "moving_regions": len(result.regions),
    }
