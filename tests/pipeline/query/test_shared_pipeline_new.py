"""A pipeline on shared storage is replaced by a new one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import shared_driver
from shared_pipelines import Interrupted, opened, publish_row, record, run, subscriptions
from storages import new_folder

from roamcast.errors import ConflictError
from roamcast.pipeline.schemas import SUBSCRIPTIONS
from roamcast.pipeline.state.manifests import BEFORE_FIRST
from roamcast.storage.folder import FolderStorage
from roamcast.storage.port import Storage


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return new_folder(tmp_path / "storage")


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
