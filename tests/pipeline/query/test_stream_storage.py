"""The pipeline's query with shared storage."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from nodes import until
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from storages import new_folder
from worlds import event, journal, letters, subscription

from roamcast.deliver.outbox import Outbox
from roamcast.deliver.shared_outbox import OutboxCopy
from roamcast.errors import ConflictError, RoamcastError, UnavailableError
from roamcast.journal.reader import open_journal
from roamcast.pipeline.query.identity import PipelineFolder, open_pipeline
from roamcast.pipeline.query.stream import PipelineLimits, PipelineQuery
from roamcast.pipeline.state.shared_state import SharedState
from roamcast.storage.folder import FolderStorage

pytestmark = pytest.mark.spark


def test_a_batch_waits_for_shared_storage(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is repeated until the storage works again. Then the letters are there, and the state for another host."""
    place, elsewhere = tmp_path / "storage", tmp_path / "elsewhere"
    storage = new_folder(place)
    warnings: list[str] = []

    class Mount(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warnings.append(record.getMessage())
            if elsewhere.exists():
                elsewhere.rename(place)

    handler, logger = Mount(), logging.getLogger("roamcast.pipeline.query.stream")
    monkeypatch.setattr("roamcast.pipeline.query.stream._STORAGE_PAUSE_S", 0.01)
    pipeline = open_pipeline(tmp_path / "one", storage=storage)
    query = PipelineQuery(spark, pipeline, tmp_path / "one", PipelineLimits()).start()
    logger.addHandler(handler)
    try:
        place.rename(elsewhere)
        journal(tmp_path / "one", [subscription("s1", "ann"), event("cam", 1)])
        query.processAllAvailable()
    finally:
        logger.removeHandler(handler)
        query.stop()
        pipeline.close()
    assert "waits for storage" in warnings[0]
    OutboxCopy(storage, Outbox(tmp_path / "node"), "local").update()
    outbox = Outbox(tmp_path / "node")
    (record,) = outbox.waiting("local")
    assert [letter.number for letter in outbox.read(record)] == [1]
    status = outbox.read_status()
    assert status is not None
    assert (status.batch, status.waiting_for_storage) == (0, None)
    other = open_pipeline(tmp_path / "two", storage=storage)
    other.close()
    assert (other.manifest.batch, other.manifest.counters["letters"]) == (0, 1)


def share_journal(folder: Path, *hosts: str) -> list[Path]:
    """Data folders of several hosts with one journal."""
    (folder / "journal").mkdir()
    hosts_folders = [folder / host for host in hosts]
    for data in hosts_folders:
        data.mkdir()
        (data / "journal").symlink_to(folder / "journal")
    return hosts_folders


@pytest.mark.parametrize("driver_events", [0, 100])
@pytest.mark.parametrize("last", [0, 1])
def test_a_batch_that_an_overtaken_process_commits_at_the_last_moment_is_not_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver_events: int, last: int
) -> None:
    """Its records are deleted then: the successor has to start again, and does not take them for lost."""
    one, two = share_journal(tmp_path, "one", "two")
    storage = new_folder(tmp_path / "storage")
    journal(one, [subscription("s1", "ann")], *([event("cam", number)] for number in range(1, 5)))
    limits = PipelineLimits(records=2, driver_events=driver_events)
    overtaken: list[PipelineFolder] = []
    publish = SharedState.publish

    def stand_still(self: SharedState, batch: int, *arguments: Any) -> None:
        if batch == last and not overtaken:
            overtaken.append(open_pipeline(two, storage=storage))
        publish(self, batch, *arguments)

    monkeypatch.setattr(SharedState, "publish", stand_still)
    assert isinstance(failure(spark, open_pipeline(one, storage=storage), one, limits), ConflictError)
    assert open_journal(one).first_offset("local") == 2 * (last + 1)
    successor = failure(spark, overtaken[0], two, limits)
    assert isinstance(successor, UnavailableError)
    assert "start it again" in str(successor)
    assert failure(spark, open_pipeline(two, storage=storage), two, limits) is None
    OutboxCopy(storage, Outbox(tmp_path / "outbox"), "local").update()
    assert letters(tmp_path) == [("ann", number, "s1", f"cam:{number}") for number in range(1, 5)]


def failure(spark: SparkSession, pipeline: PipelineFolder, data: Path, limits: PipelineLimits) -> RoamcastError | None:
    """Run a pipeline until it has read everything; why it ended before that."""
    runner = PipelineQuery(spark, pipeline, data, limits)
    query = runner.start()
    try:
        query.processAllAvailable()
    except StreamingQueryException:
        assert runner.failure is not None
    finally:
        query.stop()
        pipeline.close()
    return runner.failure


def test_an_idle_pipeline_notices_that_it_was_overtaken(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And stops: its supervisor must not believe that it runs."""
    monkeypatch.setattr("roamcast.pipeline.query.stream._HEARTBEAT_S", 0.05)
    storage = new_folder(tmp_path / "storage")
    first = open_pipeline(tmp_path / "one", storage=storage)
    runner = PipelineQuery(spark, first, tmp_path / "one", PipelineLimits())
    query = runner.start()
    try:
        query.processAllAvailable()  # Spark is not to be stopped while it starts: other tests use it, too
        open_pipeline(tmp_path / "two", storage=storage).close()
        until(lambda: not query.isActive, "the query to stop")
        assert isinstance(runner.failure, ConflictError)
    finally:
        query.stop()
        first.close()


class SlowStatus(FolderStorage):
    """A storage that does not respond to a write of the status until it may."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.responds, self.is_asked = threading.Event(), threading.Event()
        self.responds.set()

    def put(self, name: str, content: bytes) -> None:
        if name == "outbox/status.json" and not self.responds.is_set():
            self.is_asked.set()
            self.responds.wait(60)
        super().put(name, content)


def test_a_slow_status_holds_up_no_batch(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is written when the storage responds, with the newest batch."""
    monkeypatch.setattr("roamcast.pipeline.query.stream._HEARTBEAT_S", 0.05)
    new_folder(tmp_path / "storage")
    storage = SlowStatus(tmp_path / "storage")
    pipeline = open_pipeline(tmp_path / "one", storage=storage)
    query = PipelineQuery(spark, pipeline, tmp_path / "one", PipelineLimits()).start()
    try:
        storage.responds.clear()
        assert storage.is_asked.wait(30)
        journal(tmp_path / "one", [subscription("s1", "ann"), event("cam", 1)])
        until(lambda: storage.get(f"pipeline/{pipeline.id}/state/0.json"), "the batch to be committed")
        assert not storage.responds.is_set()
        storage.responds.set()
        local = Outbox(tmp_path / "node")

        def reported() -> bool:
            OutboxCopy(storage, local, "local").update()
            status = local.read_status()
            return status is not None and status.batch == 0

        until(reported, "the status")
    finally:
        storage.responds.set()
        query.stop()
        pipeline.close()
