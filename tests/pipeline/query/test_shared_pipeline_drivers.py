"""Processes that run a pipeline on shared storage, stopped, overtaken and continued anywhere."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
import shared_driver
from s3 import NotAvailableError, S3Server, s3_server
from shared_pipelines import chain, opened

from roamcast.storage.location import open_storage
from roamcast.storage.port import Storage


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
