"""The pipeline's query with an archive."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from storages import new_folder
from worlds import event, journal, letters, removal, run, subscription

from roamcast.archive.reader import open_archive
from roamcast.archive.writer import ArchiveWriter
from roamcast.deliver.outbox import Outbox
from roamcast.errors import StorageError
from roamcast.journal.records import TRACK, Record
from roamcast.pipeline.query.identity import open_pipeline
from roamcast.pipeline.query.stream import PipelineLimits, PipelineQuery
from roamcast.pipeline.state.manifests import StateFolder

pytestmark = pytest.mark.spark

BY_JOB = PipelineLimits(records=3, driver_events=0, archive_days=1.0)
HERE = PipelineLimits(records=3, archive_days=1.0)
TRACKED = Record(TRACK, "cam", 5, time=5, x=1.0, y=2.0)


def archived(place: Path) -> list[tuple[str, int]]:
    rows = open_archive(place).events_table()
    return list(zip(rows["node"].to_pylist(), rows["offset"].to_pylist(), strict=True))


@pytest.mark.parametrize("limits", [BY_JOB, HERE])
def test_events_that_count_are_archived_once(spark: SparkSession, tmp_path: Path, limits: PipelineLimits) -> None:
    """Not the copies, nor what cannot be processed. Tracking records are archived, and are no dead letters."""
    unusable = event("cam", 7, float("nan"))
    records = [event("cam", 1), TRACKED, event("cam", 1), subscription("s", "ann"), event("cam", 2), unusable]
    journal(tmp_path, records)
    journal(
        tmp_path, [event("dog", 1), event("cam@local", 2), event("cam@local", 3), removal("s", "ann")], node="south"
    )
    run(spark, tmp_path, limits=limits)
    assert archived(tmp_path) == [("local", 1), ("local", 5), ("south", 1), ("south", 3)]
    archive = open_archive(tmp_path)
    assert [(each.first_offset, each.last_offset) for each in archive.coverage()["local"]] == [(1, 6)]
    status = Outbox(tmp_path / "outbox").read_status()
    assert status is not None
    assert status.counters["dead_letters"] == 1
    assert status.archive is not None
    assert {node: one["offset"] for node, one in status.archive["nodes"].items()} == {"local": 6, "south": 4}


@pytest.mark.parametrize("limits", [BY_JOB, HERE])
def test_a_batch_that_is_not_committed_is_archived_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: PipelineLimits
) -> None:
    """A crash between archive and commit, and then one before the archive."""
    journal(tmp_path, [subscription("s", "ann"), *(event("cam", seq) for seq in range(1, 8))])

    def crash(*_: object) -> None:
        raise RuntimeError("planted")

    for owner, method in ((StateFolder, "publish"), (ArchiveWriter, "add")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, method, crash_later(getattr(owner, method), crash))
            pipeline = open_pipeline(tmp_path)
            query = PipelineQuery(spark, pipeline, tmp_path, limits).start()
            with pytest.raises(Exception, match="planted"):
                query.processAllAvailable()
            pipeline.close()
    run(spark, tmp_path, limits=limits)
    assert archived(tmp_path) == [("local", offset) for offset in range(2, 9)]
    assert len(letters(tmp_path)) == 7


def crash_later(method: Callable[..., object], crash: Callable[..., object]) -> Callable[..., object]:
    """The second call crashes."""
    calls: list[None] = []

    def call(*arguments: object) -> object:
        calls.append(None)
        return (crash if len(calls) > 1 else method)(*arguments)

    return call


def test_a_batch_waits_for_the_archive(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal(tmp_path, [event("cam", 1)])
    add, failures = ArchiveWriter.add, [StorageError("full")] * 2

    def fail(self: ArchiveWriter, *arguments: object) -> None:
        if failures:
            raise failures.pop()
        add(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("roamcast.pipeline.query.stream._STORAGE_PAUSE_S", 0.01)
    monkeypatch.setattr(ArchiveWriter, "add", fail)
    run(spark, tmp_path, limits=HERE)
    assert archived(tmp_path) == [("local", 1)]


def test_the_archive_of_a_pipeline_on_storage_is_there(spark: SparkSession, tmp_path: Path) -> None:
    """It is found from the data folder, too."""
    storage, data = new_folder(tmp_path / "storage"), tmp_path / "data"
    journal(data, [event("cam", 1)])
    pipeline = open_pipeline(data, storage=storage)
    query = PipelineQuery(spark, pipeline, data, HERE).start()
    query.processAllAvailable()
    query.stop()
    pipeline.close()
    assert archived(tmp_path / "storage") == archived(data) == [("local", 1)]
    assert not (data / "archive").exists()
