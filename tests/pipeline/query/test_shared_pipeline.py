"""A pipeline on shared storage: continued on another host, and run by one process at a time."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pyarrow as pa
import pytest
import shared_driver
from s3 import NotAvailableError, S3Server, s3_server
from storages import new_folder
from worlds import event, journal

from roamcast.errors import ConflictError, CorruptionError, StorageError, UnavailableError
from roamcast.journal.reader import open_journal
from roamcast.pipeline.query.identity import PipelineFolder, open_pipeline
from roamcast.pipeline.schemas import RECEIVERS, SUBSCRIPTIONS
from roamcast.pipeline.state.manifests import BEFORE_FIRST, Manifest
from roamcast.storage.folder import FolderStorage
from roamcast.storage.location import open_storage
from roamcast.storage.port import Storage


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return new_folder(tmp_path / "storage")


def opened(data: Path, storage: Storage | None, *, new: bool = False) -> PipelineFolder:
    """Open, and give up the lock."""
    pipeline = open_pipeline(data, new=new, storage=storage)
    pipeline.close()
    return pipeline


def run(pipeline: PipelineFolder, storage: Storage, batches: int, *, last_is_recorded: bool = True) -> None:
    """Run the next batches. Spark may not have recorded the last one as done; then it does so before the next."""
    first = pipeline.manifest.batch + 1
    for batch in range(first, first + batches):
        record(pipeline, batch - 1)
        shared_driver.run_batch(pipeline, storage, batch)
    if last_is_recorded:
        record(pipeline, pipeline.manifest.batch)


def record(pipeline: PipelineFolder, batch: int) -> None:
    if batch >= 0:
        (pipeline.checkpoint / "commits").mkdir(exist_ok=True)
        (pipeline.checkpoint / "commits" / str(batch)).write_text("v1\n{}")


def chain(pipeline: PipelineFolder) -> str:
    part = pipeline.manifest.parts(RECEIVERS)[-1]
    text: str = pipeline.state.parts.read(RECEIVERS, part)["receiver"][0].as_py()
    return text


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


def publish_row(pipeline: PipelineFolder, batch: int, id: str = "late") -> Manifest:
    """Commit a batch whose state has a subscription."""
    row = {"node": "local", "since": 1, "id": id, "subscriber": "ann", "terms": []}
    part = pipeline.state.parts.write(SUBSCRIPTIONS, pa.Table.from_pylist([row], SUBSCRIPTIONS.schema))
    manifest = replace(pipeline.manifest, batch=batch, tables={**pipeline.manifest.tables, SUBSCRIPTIONS.name: (part,)})
    pipeline.state.publish(manifest)
    return manifest


def subscriptions(pipeline: PipelineFolder) -> list[str]:
    ids: list[str] = pipeline.state.read_table(pipeline.manifest, SUBSCRIPTIONS)["id"].to_pylist()
    return ids


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


class Interrupted(FolderStorage):
    """A folder in which another process does something just before a call."""

    def __init__(self, folder: Path, calls: dict[str, Callable[[], None]]) -> None:
        super().__init__(folder)
        self._calls = calls

    def get_file(self, name: str, path: Path) -> bool:
        self._calls.pop("get_file", lambda: None)()
        return super().get_file(name, path)

    def create(self, name: str, content: bytes) -> bytes | None:
        self._calls.pop("create", lambda: None)()
        return super().create(name, content)


def test_a_pipeline_that_goes_on_is_copied(tmp_path: Path, storage: Storage) -> None:
    """It deletes files while another host copies them."""
    first = opened(tmp_path / "one", storage)
    run(first, storage, 3)
    interrupted = Interrupted(tmp_path / "storage", {"get_file": lambda: run(first, storage, 4)})
    second = opened(tmp_path / "two", interrupted)
    assert second.manifest == first.manifest
    assert second.manifest.batch == 6


LOST = ("state", "files", "checkpoint")


@pytest.mark.parametrize("loss", LOST)
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
    (tmp_path / "two" / "pipeline" / "state").mkdir(parents=True)
    (tmp_path / "two" / "pipeline" / "state" / "parts").write_text("not a folder")
    with pytest.raises(StorageError):
        opened(tmp_path / "two", storage)
    first.check_generation()


@pytest.mark.parametrize("moment", range(1, 6))
def test_a_replaced_pipeline_commits_nothing_that_is_lost(tmp_path: Path, storage: Storage, moment: int) -> None:
    """A process that stood still may go on while --new takes over: its batch is taken over, or refused."""
    first = opened(tmp_path / "one", storage)
    run(first, storage, 2)
    shared_driver.plan(first, 2)
    first.sync_checkpoint(2)
    first.check_generation()
    committed = []

    def go_on() -> None:
        try:
            publish_row(first, 2)
            committed.append("late")
        except ConflictError:
            pass

    class Late(FolderStorage):
        count = 0

        def create(self, name: str, content: bytes) -> bytes | None:
            self.count += 1
            if self.count == moment:
                go_on()
            return super().create(name, content)

    second = opened(tmp_path / "two", Late(tmp_path / "storage"), new=True)
    if not committed:
        go_on()
    assert subscriptions(second) == committed
    assert first.id != second.id


def test_an_interrupted_replacement_is_repeated(tmp_path: Path, storage: Storage) -> None:
    """Nobody can continue the pipeline any more, and nobody takes it for complete."""
    first = opened(tmp_path / "one", storage)
    run(first, storage, 1)
    shared_driver.plan(first, 1)
    first.sync_checkpoint(1)
    publish_row(first, 1)

    def crash() -> None:
        raise KeyboardInterrupt

    def crash_later() -> None:
        calls["create"] = lambda: calls.update(create=crash)  # after the claim and the end

    calls: dict[str, Callable[[], None]] = {"create": crash_later}
    with pytest.raises(KeyboardInterrupt):
        opened(tmp_path / "two", Interrupted(tmp_path / "storage", calls), new=True)
    for host in ("one", "two", "three"):
        with pytest.raises(ConflictError, match=r"interrupted.*--new again"):
            opened(tmp_path / host, storage)
    second = opened(tmp_path / "three", storage, new=True)
    assert subscriptions(second) == ["late"]
    assert opened(tmp_path / "two", storage).id == second.id


@pytest.mark.parametrize("is_newest", [True, False])
def test_new_takes_over_no_old_working_copy(tmp_path: Path, storage: Storage, is_newest: bool) -> None:
    """If what is on the storage is damaged. Its later subscriptions are in the registries, but not in the journal."""
    first = opened(tmp_path / "one", storage)
    run(first, storage, 1)
    shared_driver.plan(first, 1)
    first.sync_checkpoint(1)
    publish_row(first, 1, "early")
    record(first, 1)
    if not is_newest:
        run(opened(tmp_path / "two", storage), storage, 2)
    shutil.rmtree(tmp_path / "storage" / "pipeline" / first.id / "files")
    third = opened(tmp_path / "one", storage, new=True)
    assert subscriptions(third) == (["early"] if is_newest else [])
    assert ("registries" in third.takeover_note) == (not is_newest)


def test_new_replaces_the_pipeline_on_the_storage(tmp_path: Path, storage: Storage) -> None:
    """On any host; it takes over what the earlier one has."""
    first = opened(tmp_path / "one", storage)
    row = {"node": "local", "since": 1, "id": "s1", "subscriber": "ann", "terms": []}
    parts = (first.state.parts.write(SUBSCRIPTIONS, pa.Table.from_pylist([row], SUBSCRIPTIONS.schema)),)
    shared_driver.plan(first, 0)
    first.sync_checkpoint(0)
    first.state.publish(type(first.manifest)(first.id, 0, {SUBSCRIPTIONS.name: parts}))
    second = opened(tmp_path / "two", storage, new=True)
    assert second.id != first.id
    assert second.manifest.batch == BEFORE_FIRST
    assert second.state.read_table(second.manifest, SUBSCRIPTIONS)["id"].to_pylist() == ["s1"]
    with pytest.raises(ConflictError):
        first.check_generation()
    assert opened(tmp_path / "one", storage).id == second.id


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


class Driver:
    """A process that runs batches until it is killed or overtaken."""

    def __init__(self, data: Path, place: str, *stop: str) -> None:
        command = [sys.executable, shared_driver.__file__, str(data), place, *stop]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait_for(self, batches: int) -> bool:
        """Wait until it has started and has done some batches; False if it has ended before."""
        assert self.process.stdout is not None
        return all(self.process.stdout.readline() for _ in range(1 + batches))

    def wait_until_stopped(self) -> None:
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def end(self) -> None:
        """Kill it, unless it has been overtaken."""
        self.process.kill()
        _, errors = self.process.communicate()
        assert self.process.returncode in (-signal.SIGKILL, shared_driver.CONFLICT), errors


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    try:
        with s3_server(tmp_path_factory.mktemp("server")) as server, pytest.MonkeyPatch.context() as patch:
            for name, value in server.environment.items():
                patch.setenv(name, value)
            yield server
    except NotAvailableError as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_two_drivers_at_once_make_one_history(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    """One is stopped anywhere, overtaken and continued: no batch has two plans or two states before it."""
    if kind == "s3":
        request.getfixturevalue("server")
    (tmp_path / "storage").mkdir()
    place = {"folder": str(tmp_path / "storage"), "s3": "s3://bucket/drivers"}[kind]
    chance = random.Random(20)
    older = Driver(tmp_path / "host-0", place)
    assert older.wait_for(2)
    for turn in range(1, 4):
        for _ in range(chance.randrange(3)):
            older.wait_for(0)
        older.process.send_signal(signal.SIGSTOP)
        newer = Driver(tmp_path / f"host-{turn % 3}-{turn if turn % 2 else 0}", place)
        if turn % 2:
            newer.wait_for(chance.randrange(6))  # it is overtaken for long
        older.process.send_signal(signal.SIGCONT)
        newer.wait_for(3)
        older.process.wait(30)
        older.end()
        if newer.process.poll() is not None:
            newer.end()
            newer = Driver(tmp_path / f"host-again-{turn}", place)
            assert newer.wait_for(2)
        older = newer
    older.end()
    check_history(open_storage(place), tmp_path)


PLACES = {  # where a driver stands still, before the nth call of a method
    "plan": ("roamcast.pipeline.query.shared_pipeline", "SharedPipeline.put_checkpoint", "4"),
    "upload": ("roamcast.pipeline.state.shared_state", "SharedState.publish", "5"),
    "commit": ("roamcast.storage.folder", "FolderStorage.create", "12"),
    "sweep": ("roamcast.pipeline.state.shared_state", "SharedState._sweep", "5"),
    "deletion": ("roamcast.storage.folder", "FolderStorage.delete", "9"),
}


@pytest.mark.parametrize("batches", [0, 4])
@pytest.mark.parametrize("place", PLACES)
def test_a_driver_that_stood_still_anywhere_changes_nothing(tmp_path: Path, place: str, batches: int) -> None:
    """However many batches its successor has done meanwhile, and if that one starts again then."""
    (tmp_path / "storage").mkdir()
    storage = str(tmp_path / "storage")
    older = Driver(tmp_path / "one", storage, *PLACES[place])
    older.wait_until_stopped()
    newer = Driver(tmp_path / "two", storage)
    newer.wait_for(batches)
    older.process.send_signal(signal.SIGCONT)
    assert older.process.wait(60) == shared_driver.CONFLICT
    older.end()
    newer.wait_for(2)
    newer.end()
    last = Driver(tmp_path / "three", storage)
    assert last.wait_for(2)
    last.end()
    check_history(open_storage(storage), tmp_path)


@pytest.mark.parametrize("place", PLACES)
def test_a_batch_whose_letters_are_visible_keeps_its_plan(tmp_path: Path, place: str) -> None:
    """Its driver is killed before it commits the batch, and the one before it has gone on meanwhile."""
    (tmp_path / "storage").mkdir()
    storage = str(tmp_path / "storage")
    older = Driver(tmp_path / "one", storage, *PLACES[place])
    older.wait_until_stopped()
    newer = Driver(tmp_path / "two", storage, "roamcast.pipeline.state.shared_state", "SharedState.publish", "1")
    newer.wait_until_stopped()
    older.process.send_signal(signal.SIGCONT)
    assert older.process.wait(60) == shared_driver.CONFLICT
    older.end()
    newer.end()
    last = Driver(tmp_path / "three", storage)
    assert last.wait_for(2)
    last.end()
    check_history(open_storage(storage), tmp_path)


def check_history(storage: Storage, folder: Path) -> None:
    """Every batch has one plan and one state before it, and the final state follows from all."""
    letters = [orjson.loads(storage.get(file.name) or b"") for file in storage.files("letters")]
    by_batch = {letter["batch"]: letter for letter in letters}
    assert sorted(by_batch) == list(range(max(by_batch) + 1)), "a batch is missing"
    assert all(letter == by_batch[letter["batch"]] for letter in letters), "a batch was computed in two ways"
    assert all(by_batch[batch]["before"] == by_batch[batch - 1]["chain"] for batch in range(1, len(by_batch)))
    final = opened(folder / "last", storage)
    assert final.manifest.batch in (max(by_batch), max(by_batch) - 1)
    assert chain(final) == by_batch[final.manifest.batch]["chain"]
