"""The archive of a pipeline is compacted in a thread, and says how it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from nodes import until
from worlds import event, journal

from roamcast.archive.compaction import CompactionLimits
from roamcast.archive.reader import open_archive
from roamcast.errors import ConflictError, StorageError
from roamcast.journal.reader import open_journal
from roamcast.pipeline.query import archiving
from roamcast.pipeline.query.archiving import BatchArchive
from roamcast.storage.folder import FolderStorage


@pytest.fixture
def check() -> list[Exception]:
    """What the check of the generation raises, last one first."""
    return []


@pytest.fixture
def archive(tmp_path: Path, check: list[Exception], monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchArchive]:
    def raise_planted() -> None:
        if check:
            raise check.pop()

    monkeypatch.setattr(archiving, "_PERIOD_S", 0.01)
    limits = CompactionLimits(recent=1)
    made = BatchArchive(FolderStorage(tmp_path), "p", -1, 1.0, raise_planted, limits)
    yield made
    made.stop()


def add(archive: BatchArchive, data: Path, batch: int) -> None:
    journal(data, [event("cam", batch + 1)])
    archive.add(batch, open_journal(data), {"local": (batch, batch + 1)}, [])


def test_only_what_is_committed_is_compacted(archive: BatchArchive, tmp_path: Path) -> None:
    add(archive, tmp_path, 0)
    archive.committed(0)
    add(archive, tmp_path, 1)
    archive.start()
    until(lambda: archive.status()["files"] == 1, "compaction")
    assert sorted(open_archive(tmp_path).events_table()["batch"].to_pylist()) == [0, 1]
    assert [file.statistics.rows for file in open_archive(tmp_path).files()] == [1, 1]
    status = archive.status()
    assert (status["nodes"]["local"]["offset"], status["problem"]) == (2, None)


def test_a_batch_that_ends_inside_an_append_does_not_cover_its_time(archive: BatchArchive, tmp_path: Path) -> None:
    """More was written at that time."""
    journal(tmp_path, [event("cam", 1), event("cam", 2)])
    covered = []
    for batch in range(2):
        archive.add(batch, open_journal(tmp_path), {"local": (batch, batch + 1)}, [])
        written = archive.open().events_table()["written"].cast(pa.int64())[-1].as_py()
        covered.append(written <= archive.open().coverage()["local"][-1].end)
    assert covered == [False, True]


def test_a_failure_is_told_and_compaction_is_tried_again(
    archive: BatchArchive, tmp_path: Path, check: list[Exception]
) -> None:
    check.append(StorageError("the disk is full"))
    seen: list[str | None] = []
    add(archive, tmp_path, 0)
    archive.committed(0)
    failed = archive._failures.failed
    archive._failures.failed = lambda *reason: (failed(*reason), seen.append(archive.status()["problem"]))[0]  # type: ignore[method-assign]
    archive.start()
    until(lambda: archive.status()["files"] == 1, "compaction")
    until(lambda: archive.status()["problem"] is None, "success")
    assert seen == ["the disk is full"]


def test_an_overtaken_process_does_not_compact(archive: BatchArchive, tmp_path: Path, check: list[Exception]) -> None:
    check.append(ConflictError("another process has started this pipeline"))
    add(archive, tmp_path, 0)
    archive.committed(0)
    archive.start()
    archive._thread.join(10)
    assert not archive._thread.is_alive()
    assert archive.status()["files"] == 0
    assert open_archive(tmp_path).events_table().num_rows == 1
