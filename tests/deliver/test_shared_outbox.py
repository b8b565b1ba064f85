"""The outbox on shared storage: batches reach the copy of their office in order, and are deleted when they are done."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from storages import storage_at

from roamcast.deliver.batch_records import LetterFile, pack_records
from roamcast.deliver.outbox import LETTERS_SCHEMA, Outbox, PipelineStatus
from roamcast.deliver.shared_outbox import OutboxCopy, SharedOutbox
from roamcast.errors import CorruptionError, StorageError
from roamcast.storage.port import Storage

OFFICES = ("local", "other", "local@link", "loc")


@pytest.fixture(params=["folder", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """A folder, and something that is none."""
    place = str(tmp_path / "storage") if request.param == "folder" else f"memory://bucket{tmp_path}"
    return checked(place)


def checked(place: str) -> Storage:
    if "://" not in place:
        Path(place).mkdir()
    storage = storage_at(place)
    storage.check()
    return storage


def letters(batch: int) -> pa.Table:
    return pa.Table.from_pylist([{"receiver": "ann", "number": batch + 1, "body": str(batch)}], LETTERS_SCHEMA)


def bodies(outbox: Outbox, office: str) -> list[str]:
    return [letter.body for path in outbox.waiting(office) for letter in outbox.read(path)]


def remove_all(outbox: Outbox, office: str) -> None:
    for path in outbox.waiting(office):
        outbox.remove(path)


def test_a_node_gets_the_batches_of_its_office_and_links(storage: Storage, tmp_path: Path) -> None:
    """In order, and no others."""
    shared, local = SharedOutbox(storage, tmp_path / "there"), Outbox(tmp_path / "here")
    for batch, office in itertools.product(range(3), OFFICES):
        shared.put(office, "p", batch, letters(batch))
    assert [bodies(shared, office) for office in OFFICES] == [[]] * 4  # nothing stays on the way
    OutboxCopy(storage, local, "local").update()
    assert [bodies(local, office) for office in OFFICES] == [["0", "1", "2"], [], ["0", "1", "2"], []]
    assert local.links_of("local") == ["local@link"]
    assert shared.fullest() == ("other", 3)


def test_what_is_done_is_deleted(storage: Storage, tmp_path: Path) -> None:
    """At the next look. What is not done stays, also if the node starts again."""
    shared, local = SharedOutbox(storage, tmp_path / "there"), Outbox(tmp_path / "here")
    for batch in range(3):
        shared.put("local", "p", batch, letters(batch))
    copy = OutboxCopy(storage, local, "local")
    copy.update()
    local.remove(local.waiting("local")[0])
    copy.update()
    assert len(storage.files("outbox/local")) == 4  # records and files
    again = OutboxCopy(storage, local, "local")
    again.update()
    assert bodies(local, "local") == ["1", "2"]
    remove_all(local, "local")
    again.update()
    assert storage.files("outbox/local") == []


def test_a_repeated_batch_is_there_once(storage: Storage, tmp_path: Path) -> None:
    """If it was done before, it comes again: the mailboxes know its letters."""
    shared, local = SharedOutbox(storage, tmp_path / "there"), Outbox(tmp_path / "here")
    copy = OutboxCopy(storage, local, "local")
    for _ in range(2):
        shared.put("local", "p", 0, letters(0))
    copy.update()
    assert bodies(local, "local") == ["0"]
    shared.put("local", "p", 0, letters(0))
    remove_all(local, "local")
    copy.update()
    assert storage.files("outbox/local") == []
    shared.put("local", "p", 0, letters(0))
    copy.update()
    assert bodies(local, "local") == ["0"]


def test_a_copy_holds_some_batches_at_a_time(storage: Storage, tmp_path: Path) -> None:
    """The rest follows when they are done."""
    shared, local = SharedOutbox(storage, tmp_path / "there"), Outbox(tmp_path / "here")
    for batch in range(250):
        shared.put("local", "p", batch, letters(batch))
    copy = OutboxCopy(storage, local, "local")
    found: list[str] = []
    for _ in range(4):
        copy.update()
        waiting = bodies(local, "local")
        assert len(waiting) <= 100
        found += waiting
        remove_all(local, "local")
    assert found == [str(batch) for batch in range(250)]


def test_events_for_links_do_not_hold_up_letters(storage: Storage, tmp_path: Path) -> None:
    """However many wait for a peer that does not take them."""
    shared, local = SharedOutbox(storage, tmp_path / "there"), Outbox(tmp_path / "here")
    for batch in range(150):
        shared.put("local@link", "p", batch, letters(batch))
    copy = OutboxCopy(storage, local, "local")
    copy.update()
    for batch in range(150, 270):
        shared.put("local", "p", batch, letters(batch))
    found: list[str] = []
    for _ in range(2):
        copy.update()
        found += bodies(local, "local")
        remove_all(local, "local")
    assert found == [str(batch) for batch in range(150, 270)]
    assert len(local.waiting("local@link")) == 150


def test_each_node_has_a_status_of_its_own(storage: Storage, tmp_path: Path) -> None:
    """In one data folder. It does not count batches that were copied for others only."""
    shared = SharedOutbox(storage, tmp_path / "there")
    north, south = (Outbox(tmp_path / "here", f"status-{node}.json") for node in ("north", "south"))
    shared.put("south@link", "p", 0, letters(0))
    shared.write_status(PipelineStatus("p", 0, {}, read_offsets={"south": 5}))
    OutboxCopy(storage, north, "north").update()
    assert north.read_status() is not None
    assert south.read_status() is None
    OutboxCopy(storage, south, "south").update()
    status = south.read_status()
    assert status is not None
    assert (status.read_offsets, len(south.waiting("south@link"))) == ({"south": 5}, 1)


def test_the_status_needs_no_local_disk(storage: Storage, tmp_path: Path) -> None:
    """It says that this disk is full."""
    (tmp_path / "there").write_text("not a folder")
    SharedOutbox(storage, tmp_path / "there").write_status(PipelineStatus("p", 0, {}, waiting_for_storage="full"))
    local = Outbox(tmp_path / "here")
    OutboxCopy(storage, local, "local").update()
    status = local.read_status()
    assert status is not None
    assert status.waiting_for_storage == "full"


@pytest.mark.parametrize("name", ["../../../a.parquet", "/a.parquet", "", "..", "a/b"])
def test_a_record_names_files_only(tmp_path: Path, name: str) -> None:
    """None outside of the folder of letters."""
    storage = checked(str(tmp_path / "storage"))
    (record,) = pack_records("p", 0, [LetterFile("local", name, 1)])
    storage.put(f"outbox/local/office/{record.name}", record.content)
    with pytest.raises(CorruptionError, match="it names a file"):
        OutboxCopy(storage, Outbox(tmp_path / "here"), "local").update()


def test_the_status_is_copied_after_what_it_tells_of(storage: Storage, tmp_path: Path) -> None:
    """So that a reader of the copy finds every batch that the status counts."""
    shared, local = SharedOutbox(storage, tmp_path / "there"), Outbox(tmp_path / "here")
    copy = OutboxCopy(storage, local, "local")
    copy.update()
    assert local.read_status() is None
    shared.put("local", "p", 0, letters(0))
    shared.write_status(PipelineStatus("p", 0, {}, waiting_for_storage="it is full"))
    copy.update()
    status = local.read_status()
    assert status is not None
    assert (status.batch, status.waiting_for_storage) == (0, "it is full")


@pytest.mark.parametrize("node", ["local", "letters"])
def test_old_files_without_a_record_are_swept(tmp_path: Path, node: str) -> None:
    """Newer ones may get a record yet; those of a batch with a record are needed, or deleted by who lost."""
    storage = checked(str(tmp_path / "storage"))
    shared = SharedOutbox(storage, tmp_path / "there")
    shared.put(node, "p", 1, letters(1))
    for batch in (0, 1, 2):
        storage.put(f"outbox/{node}/office/letters/{batch:020d}-p-ab12.parquet", b"")
    folder = tmp_path / "storage" / "outbox" / node / "office" / "letters"
    records = [*folder.parent.glob("*.json")]
    for path in [*records, *folder.iterdir()]:
        if not path.name.startswith(f"{2:020d}"):
            os.utime(path, (0, 0))
    before = {path.name for path in folder.iterdir()}
    shared.sweep()
    assert before - {path.name for path in folder.iterdir()} == {f"{0:020d}-p-ab12.parquet"}
    assert [*folder.parent.glob("*.json")] == records


def test_missing_letters_are_an_error(tmp_path: Path) -> None:
    """The batches after them do not come first."""
    storage = checked(str(tmp_path / "storage"))
    shared, local = SharedOutbox(storage, tmp_path / "there"), Outbox(tmp_path / "here")
    for batch in range(2):
        shared.put("local", "p", batch, letters(batch))
    storage.delete([file.name for file in storage.files("outbox/local/office/letters")][:1])
    copy = OutboxCopy(storage, local, "local")
    for _ in range(2):
        with pytest.raises(CorruptionError, match="letters is missing"):
            copy.update()
        assert bodies(local, "local") == []


class FailingStorage:
    """A storage that fails at some of its calls, before or after they have had their effect."""

    def __init__(self, storage: Storage, failures: list[int]) -> None:
        self._storage = storage
        self._failures = failures

    def __getattr__(self, name: str) -> object:
        method = getattr(self._storage, name)
        if not callable(method):
            return method

        def call(*arguments: object) -> object:
            failure = self._failures.pop(0) if self._failures else 0
            if failure == 1:
                raise StorageError("failed before")
            result = method(*arguments)
            if failure == 2:
                raise StorageError("failed after")
            return result

        return call


@given(failures=st.lists(st.integers(0, 2), max_size=40), taken=st.lists(st.booleans(), min_size=30, max_size=30))
def test_nothing_is_lost_or_out_of_order_while_the_storage_fails(
    tmp_path_factory: pytest.TempPathFactory, failures: list[int], taken: list[bool]
) -> None:
    """Whatever call fails, and if node and pipeline start again then: first comings are in order and complete."""
    folder = tmp_path_factory.mktemp("failing")
    storage = checked(f"memory://bucket{folder}")
    failing: Storage = FailingStorage(storage, failures)  # type: ignore[assignment]
    local = Outbox(folder / "here")
    copy = OutboxCopy(failing, local, "local")
    batch, got = 0, list[str]()
    for take in [*taken, *[True] * 60]:
        try:
            if batch < 10:
                SharedOutbox(failing, folder / "there").put("local", "p", batch, letters(batch))
                batch += 1
        except StorageError:
            pass  # the pipeline repeats the batch
        try:
            copy.update()
        except StorageError:
            copy = OutboxCopy(failing, local, "local")
        if take:
            got += [body for body in bodies(local, "local") if body not in got]
            remove_all(local, "local")
    assert got == [str(batch) for batch in range(10)]
    assert [file.name for file in storage.files("outbox") if file.name.endswith(".json")] == []
