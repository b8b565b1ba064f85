"""A pipeline on shared storage is run by one process at a time."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
import shared_driver
from shared_pipelines import Interrupted, opened, publish_row, record, run
from storages import new_folder

from roamcast.errors import ConflictError, CorruptionError, StorageError, UnavailableError
from roamcast.storage.folder import FolderStorage
from roamcast.storage.port import Storage


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return new_folder(tmp_path / "storage")


def test_the_older_process_is_overtaken(tmp_path: Path, storage: Storage) -> None:
    """It notices before letters become visible."""
    first = opened(tmp_path / "one", storage)
    run(first, storage, 1)
    second = opened(tmp_path / "two", storage)
    with pytest.raises(ConflictError, match="another process has started this pipeline"):
        first.check_generation()
    with pytest.raises(ConflictError, match="another process has started this pipeline"):
        run(first, storage, 1)
    run(second, storage, 1)


def test_a_batch_that_an_overtaken_process_commits_is_taken_over(tmp_path: Path, storage: Storage) -> None:
    """The newer process starts again and goes on after it: its own attempt may have found fewer records."""
    first = opened(tmp_path / "one", storage)
    run(first, storage, 2)
    record(first, 1)
    shared_driver.plan(first, 2)
    first.sync_checkpoint(2)
    second = opened(tmp_path / "two", storage)
    manifest = publish_row(first, 2)  # it stood still after the last check
    with pytest.raises(UnavailableError, match="start it again"):
        second.check_uncommitted(2)
    with pytest.raises(UnavailableError, match="start it again"):
        run(second, storage, 1)
    again = opened(tmp_path / "two", storage)
    assert again.manifest == manifest
    run(again, storage, 1)
    again.check_uncommitted(3)
    with pytest.raises(ConflictError):
        publish_row(first, 3)
    assert opened(tmp_path / "three", storage).manifest == again.manifest


class LostAnswers(FolderStorage):
    """A storage that creates a manifest, and fails then."""

    def create(self, name: str, content: bytes) -> bytes | None:
        answer = super().create(name, content)
        if "/state/2.json" in name and answer is None:
            raise StorageError("no answer")
        return answer


def test_an_own_manifest_is_found_again(tmp_path: Path, storage: Storage) -> None:
    """If the storage did not answer when it was created, and the batch is repeated."""
    first = opened(tmp_path / "one", LostAnswers(tmp_path / "storage"))
    run(first, storage, 2)
    with pytest.raises(StorageError):
        run(first, storage, 1)
    run(first, storage, 3)
    assert opened(tmp_path / "two", storage).manifest == first.manifest


def test_a_batch_has_one_plan(tmp_path: Path, storage: Storage) -> None:
    """If an overtaken process has planned it just before, the newer one has to start again, and takes that plan."""
    first = opened(tmp_path / "one", storage)
    run(first, storage, 1)
    second = opened(tmp_path / "two", storage)
    planned = shared_driver.plan(first, 1)
    assert first._shared is not None
    first._shared.put_checkpoint(1)
    shared_driver.plan(second, 1)
    with pytest.raises(UnavailableError, match="start it again"):
        second.sync_checkpoint(1)
    assert shared_driver.plan(opened(tmp_path / "two", storage), 1) == planned


def test_a_pipeline_that_goes_on_is_copied(tmp_path: Path, storage: Storage) -> None:
    """It deletes files while another host copies them."""
    first = opened(tmp_path / "one", storage)
    run(first, storage, 3)
    interrupted = Interrupted(tmp_path / "storage", {"get_file": lambda: run(first, storage, 4)})
    second = opened(tmp_path / "two", interrupted)
    assert second.manifest == first.manifest
    assert second.manifest.batch == 6


def test_a_pipeline_that_cannot_be_copied_is_not_overtaken(tmp_path: Path, storage: Storage) -> None:
    """If it deletes files faster than they are copied, or some are damaged and it goes on."""
    first = opened(tmp_path / "one", storage)
    run(first, storage, 3)

    class Slow(FolderStorage):
        lock = threading.Lock()

        def get_file(self, name: str, path: Path) -> bool:
            with self.lock:
                run(first, storage, 4)
            return super().get_file(name, path)

    with pytest.raises(CorruptionError, match="missing"):
        opened(tmp_path / "two", Slow(tmp_path / "storage"))
    first.check_generation()


def test_a_generation_is_not_used_again_unnoticed(tmp_path: Path, storage: Storage) -> None:
    """Though somebody has deleted what the older process had written."""
    first = opened(tmp_path / "one", storage)
    storage.delete([file.name for file in storage.files("pipeline/generations")])
    opened(tmp_path / "two", storage)
    with pytest.raises(ConflictError, match="another process has started this pipeline"):
        first.check_generation()


def test_an_unreadable_claim_is_an_error(tmp_path: Path, storage: Storage) -> None:
    """It says what to do, and then it works."""
    first = opened(tmp_path / "one", storage)
    opened(tmp_path / "one", storage)
    (tmp_path / "storage" / "pipeline" / "generations" / "2.json").write_bytes(b"{")
    with pytest.raises(CorruptionError, match="delete it"):
        opened(tmp_path / "two", storage)
    storage.delete(["pipeline/generations/2.json"])
    assert opened(tmp_path / "two", storage).id == first.id


@pytest.mark.parametrize("loss", ["state", "files", "checkpoint"])
def test_who_cannot_start_overtakes_nobody(tmp_path: Path, storage: Storage, loss: str) -> None:
    """The process that runs the pipeline has all that it needs, and goes on."""
    first = opened(tmp_path / "one", storage)
    run(first, storage, 3)
    shutil.rmtree(tmp_path / "storage" / "pipeline" / first.id / loss)
    with pytest.raises((CorruptionError, ConflictError)):
        opened(tmp_path / "two", storage)
    first.check_generation()


def test_a_full_disk_overtakes_nobody(tmp_path: Path, storage: Storage) -> None:
    """Nor does another error of the new host's disk."""
    first = opened(tmp_path / "one", storage)
    run(first, storage, 3)
    (tmp_path / "two" / "pipeline").mkdir(parents=True)
    (tmp_path / "two" / "pipeline" / "checkpoint").write_text("not a folder")
    with pytest.raises(StorageError):
        opened(tmp_path / "two", storage)
    first.check_generation()
