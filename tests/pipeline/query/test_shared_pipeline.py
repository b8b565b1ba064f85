"""A pipeline on shared storage: moved there, and continued on another host."""

from __future__ import annotations

import shutil
from pathlib import Path

import orjson
import pytest
import shared_driver
from shared_pipelines import chain, opened, publish_row, record, run, subscriptions
from storages import new_folder
from worlds import event, journal

from roamcast.errors import ConflictError, CorruptionError, StorageError
from roamcast.journal.reader import open_journal
from roamcast.pipeline.query.identity import PipelineFolder, open_pipeline
from roamcast.pipeline.schemas import RECEIVERS
from roamcast.storage.port import Storage


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return new_folder(tmp_path / "storage")


def stored_files(storage: Storage, pipeline: PipelineFolder) -> set[str]:
    return {file.name.rpartition("-")[2] for file in storage.files(f"pipeline/{pipeline.id}/files")}


@pytest.mark.parametrize("batches", [0, 1, 2, 7])
@pytest.mark.parametrize("last_is_recorded", [True, False])
def test_another_host_continues(tmp_path: Path, storage: Storage, batches: int, last_is_recorded: bool) -> None:
    """With an empty folder: the same pipeline, state and plans."""
    first = opened(tmp_path / "one", storage)
    run(first, storage, batches, last_is_recorded=last_is_recorded)
    second = opened(tmp_path / "two", storage)
    assert (second.id, second.manifest) == (first.id, first.manifest)
    assert second.manifest.batch == batches - 1
    for number in range(max(0, batches - 2), batches):
        name = f"offsets/{number}"
        assert (second.checkpoint / name).read_text() == (first.checkpoint / name).read_text()
    run(second, storage, 2)
    assert opened(tmp_path / "three", storage).manifest == second.manifest


def test_what_is_planned_and_not_committed_is_repeated(tmp_path: Path, storage: Storage) -> None:
    """With the same records, on another host."""
    first = opened(tmp_path / "one", storage)
    run(first, storage, 3)
    planned = shared_driver.plan(first, 3)
    first.sync_checkpoint(3)
    second = opened(tmp_path / "two", storage)
    assert second.manifest.batch == 2
    assert shared_driver.plan(second, 3) == planned


def test_a_plan_that_was_never_synced_is_made_again(tmp_path: Path, storage: Storage) -> None:
    """Nothing of its batch was visible. This holds on the same host, too."""
    first = opened(tmp_path / "one", storage)
    run(first, storage, 3)
    planned = shared_driver.plan(first, 3)
    assert shared_driver.plan(opened(tmp_path / "one", storage), 3) != planned


def test_an_old_working_copy_is_replaced(tmp_path: Path, storage: Storage) -> None:
    """By what another host has done since; what of it is damaged is fetched again."""
    first = opened(tmp_path / "one", storage)
    run(first, storage, 2)
    second = opened(tmp_path / "two", storage)
    run(second, storage, 3)
    for path in second.state.parts.folder.iterdir():
        shutil.copy(path, first.state.parts.folder / path.name)
        (first.state.parts.folder / path.name).write_bytes(b"torn")
    again = opened(tmp_path / "one", storage)
    assert again.manifest == second.manifest
    assert chain(again) == chain(second)


def test_a_pipeline_moves_to_storage(tmp_path: Path, storage: Storage) -> None:
    """At the first start with it: with its identity, state and checkpoint."""
    local = opened(tmp_path / "one", None)
    local_only = new_folder(tmp_path / "letters")
    run(local, local_only, 4)
    moved = opened(tmp_path / "one", storage)
    assert (moved.id, moved.manifest) == (local.id, local.manifest)
    elsewhere = opened(tmp_path / "two", storage)
    assert (elsewhere.id, elsewhere.manifest) == (local.id, local.manifest)
    run(elsewhere, storage, 1)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refuses_local(tmp_path: Path, storage: Storage, message: str) -> None:
    """A start on host `one` with the storage fails, changes nothing there and overtakes nobody."""
    kept = contents(tmp_path / "one")
    claims = storage.files("pipeline/generations")
    with pytest.raises(ConflictError, match=f"{message}.*move the pipeline folder away"):
        opened(tmp_path / "one", storage)
    kept.pop(Path("pipeline/lock"))
    assert kept.items() <= contents(tmp_path / "one").items()
    assert storage.files("pipeline/generations") == claims


def test_a_local_pipeline_is_not_replaced_by_another(tmp_path: Path, storage: Storage) -> None:
    """With --new it is moved away, and the one on the storage is taken over."""
    other = opened(tmp_path / "two", storage)
    record(other, -1)
    shared_driver.plan(other, 0)
    other.sync_checkpoint(0)
    publish_row(other, 0, "theirs")
    local = opened(tmp_path / "one", None)
    run(local, new_folder(tmp_path / "letters"), 2)
    refuses_local(tmp_path, storage, "another pipeline")
    (tmp_path / "one" / "pipeline" / "state" / "1.json").unlink()
    (tmp_path / "one" / "pipeline" / "state" / "0.json").unlink()
    refuses_local(tmp_path, storage, "another pipeline")
    assert subscriptions(opened(tmp_path / "one", storage, new=True)) == ["theirs"]
    identity = orjson.loads((tmp_path / "one" / "pipeline" / "earlier-1" / "identity.json").read_bytes())
    assert identity["pipeline"] == local.id


def test_a_newer_local_state_is_not_replaced(tmp_path: Path, storage: Storage) -> None:
    """An operator may have removed the mark of a working copy, and run the pipeline locally for a while."""
    first = opened(tmp_path / "one", storage)
    run(first, storage, 2)
    (tmp_path / "one" / "pipeline" / "storage").unlink()
    again = opened(tmp_path / "one", storage)  # nothing has changed yet
    assert again.manifest == first.manifest
    (tmp_path / "one" / "pipeline" / "storage").unlink()
    run(opened(tmp_path / "one", None), storage, 2)
    refuses_local(tmp_path, storage, "a newer state")


def test_a_new_storage_gets_no_pipeline_for_a_journal_that_was_read(tmp_path: Path, storage: Storage) -> None:
    """It may be the wrong one, or not mounted: the records that are gone had subscriptions. The same holds without."""
    opened(tmp_path / "one", storage)
    journal(tmp_path / "one", [event("cam", 1)], [event("cam", 2)])
    shutil.rmtree(tmp_path / "one" / "pipeline")
    open_journal(tmp_path / "one").delete_before("local", 2)
    other = new_folder(tmp_path / "other")
    for wrong in (other, None):
        with pytest.raises(ConflictError, match=r"before offset 2.*pass that one as --storage"):
            opened(tmp_path / "one", wrong)
    assert other.files("pipeline") == []
    opened(tmp_path / "one", storage)
    opened(tmp_path / "two", other)


def test_a_storage_that_is_not_mounted_any_more_is_not_written(tmp_path: Path, storage: Storage) -> None:
    """A mount point is an empty folder then, and still there. Batches wait until it is back."""
    first = opened(tmp_path / "one", storage)
    run(first, storage, 1)
    (tmp_path / "storage").rename(tmp_path / "unmounted")
    (tmp_path / "storage").mkdir()
    with pytest.raises(StorageError, match="mounted"):
        first.check_generation()
    with pytest.raises(StorageError, match="mounted"):
        run(first, storage, 1)
    assert storage.files("letters") == []
    (tmp_path / "storage").rmdir()
    (tmp_path / "unmounted").rename(tmp_path / "storage")
    run(first, storage, 1)


def test_a_working_copy_is_not_used_alone(tmp_path: Path, storage: Storage) -> None:
    """Nor with another storage: what is there may be newer."""
    opened(tmp_path / "one", storage)
    for other in (None, new_folder(tmp_path / "other")):
        for new in (False, True):
            with pytest.raises(ConflictError, match=r"working copy.*--storage .*/storage;"):
                open_pipeline(tmp_path / "one", storage=other, new=new)


def test_an_empty_storage_is_no_new_one(tmp_path: Path, storage: Storage) -> None:
    """If the folder is a working copy of what was there: its state may be old."""
    first = opened(tmp_path / "one", storage)
    shutil.rmtree(tmp_path / "storage")
    with pytest.raises(StorageError, match="is it mounted"):
        opened(tmp_path / "one", storage)
    (tmp_path / "storage").mkdir()
    with pytest.raises(ConflictError, match="no pipeline on the storage any more"):
        opened(tmp_path / "one", storage)
    assert opened(tmp_path / "one", storage, new=True).id != first.id


def test_files_that_only_old_manifests_name_are_deleted(tmp_path: Path, storage: Storage) -> None:
    """And what processes that were killed have uploaded. The storage keeps what two manifests name."""
    first = opened(tmp_path / "one", storage)
    run(first, storage, 5)
    first.state.shared._upload(  # type: ignore[union-attr]
        5, [f"parts/{path.name}" for path in first.state.parts.folder.iterdir()]
    )
    second = opened(tmp_path / "two", storage)
    before = stored_files(storage, second)
    run(second, storage, 1)
    run(second, storage, 1)
    newest = {part.name for part in second.manifest.parts(RECEIVERS)}
    assert newest < stored_files(storage, second)
    assert len(stored_files(storage, second)) <= len(newest) + 1
    assert not before <= stored_files(storage, second)
    names = [file.name for file in storage.files(f"pipeline/{second.id}")]
    assert len([name for name in names if "/state/" in name]) == 2
    assert len([name for name in names if "/checkpoint/" in name]) == 2


def test_batches_leave_no_folders(tmp_path: Path, storage: Storage) -> None:
    """Of a storage that is a folder: nobody would delete them."""

    def folders() -> int:
        return sum(path.is_dir() for path in (tmp_path / "storage").rglob("*"))

    first = opened(tmp_path / "one", storage)
    run(first, storage, 3)
    before = folders()
    run(first, storage, 7)
    assert folders() == before


LOST = ("state", "files", "checkpoint")


@pytest.mark.parametrize("loss", LOST)
def test_an_incomplete_storage_is_refused(tmp_path: Path, storage: Storage, loss: str) -> None:
    """With a hint. --new starts another pipeline there."""
    first = opened(tmp_path / "one", storage)
    run(first, storage, 3)
    shutil.rmtree(tmp_path / "storage" / "pipeline" / first.id / loss)
    with pytest.raises((CorruptionError, ConflictError), match="--new"):
        opened(tmp_path / "two", storage)
    assert opened(tmp_path / "two", storage, new=True).id != first.id


@pytest.mark.parametrize("folder", LOST)
def test_damaged_files_are_refused(tmp_path: Path, storage: Storage, folder: str) -> None:
    """Everything there is verified, or read as JSON."""
    first = opened(tmp_path / "one", storage)
    run(first, storage, 3)
    for path in (tmp_path / "storage" / "pipeline" / first.id / folder).rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(CorruptionError, match=r"unreadable|damaged"):
        opened(tmp_path / "two", storage)
