"""Processes that run a pipeline on shared storage, stopped, overtaken and continued anywhere."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import orjson
import pytest
import shared_driver
from nodes import until
from s3 import NotAvailableError, S3Server, s3_server
from shared_pipelines import chain, opened

from roamcast.storage.location import open_storage
from roamcast.storage.port import Storage


class Driver:
    """A process that runs batches until it is killed or overtaken."""

    def __init__(self, forks: socket.socket, data: Path, place: str, *stop: str) -> None:
        output = shared_driver.start(forks, [str(data), place, *stop], os.environ)
        self._output = os.fdopen(output)
        self._pid = int(self._output.readline())
        self._errors = ""
        self._code: int | None = None

    def wait_for(self, batches: int) -> bool:
        """Wait until it has started and has done some batches; False if it has ended before."""
        return all(self._read() for _ in range(1 + batches))

    def _read(self) -> bool:
        """Whether it has started or has done a batch; False if it has ended."""
        for line in self._output:
            if line.strip() == "ready" or line.strip().isdecimal():
                return True
            if line.startswith("exit "):
                self._code = int(line.split()[1])
            else:
                self._errors += line
        return False

    def wait_until_stopped(self) -> None:
        stat = Path(f"/proc/{self._pid}/stat")
        until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "the driver to stop itself")

    def stop(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    def wait(self) -> None:
        """Until it has been overtaken."""
        while self._read():
            pass
        assert self._code == shared_driver.CONFLICT, self._errors

    @property
    def has_ended(self) -> bool:
        return not Path(f"/proc/{self._pid}").exists()

    def end(self) -> None:
        """Kill it, unless it has been overtaken."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        while self._read():
            pass
        self._output.close()
        assert self._code in (None, shared_driver.CONFLICT), self._errors


@pytest.fixture(scope="module")
def driver() -> Iterator[Callable[..., Driver]]:
    """Starts drivers. They are forks of one process, which has imported everything."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here, there:
        command = [sys.executable, shared_driver.__file__, str(there.fileno())]
        server = subprocess.Popen(command, pass_fds=[there.fileno()])
        there.close()
        yield partial(Driver, here)
    server.wait(30)


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
def test_two_drivers_at_once_make_one_history(
    driver: Callable[..., Driver], tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """One is stopped anywhere, overtaken and continued: no batch has two plans or two states before it."""
    if kind == "s3":
        request.getfixturevalue("server")
    (tmp_path / "storage").mkdir()
    place = {"folder": str(tmp_path / "storage"), "s3": "s3://bucket/drivers"}[kind]
    chance = random.Random(20)
    older = driver(tmp_path / "host-0", place)
    assert older.wait_for(2)
    for turn in range(1, 4):
        for _ in range(chance.randrange(3)):
            older.wait_for(0)
        older.stop()
        newer = driver(tmp_path / f"host-{turn % 3}-{turn if turn % 2 else 0}", place)
        if turn % 2:
            newer.wait_for(chance.randrange(6))  # it is overtaken for long
        older.resume()
        newer.wait_for(3)
        older.wait()
        older.end()
        if newer.has_ended:
            newer.end()
            newer = driver(tmp_path / f"host-again-{turn}", place)
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
def test_a_driver_that_stood_still_anywhere_changes_nothing(
    driver: Callable[..., Driver], tmp_path: Path, place: str, batches: int
) -> None:
    """However many batches its successor has done meanwhile, and if that one starts again then."""
    (tmp_path / "storage").mkdir()
    storage = str(tmp_path / "storage")
    older = driver(tmp_path / "one", storage, *PLACES[place])
    older.wait_until_stopped()
    newer = driver(tmp_path / "two", storage)
    newer.wait_for(batches)
    older.resume()
    older.wait()
    older.end()
    newer.wait_for(2)
    newer.end()
    last = driver(tmp_path / "three", storage)
    assert last.wait_for(2)
    last.end()
    check_history(open_storage(storage), tmp_path)


@pytest.mark.parametrize("place", PLACES)
def test_a_batch_whose_letters_are_visible_keeps_its_plan(
    driver: Callable[..., Driver], tmp_path: Path, place: str
) -> None:
    """Its driver is killed before it commits the batch, and the one before it has gone on meanwhile."""
    (tmp_path / "storage").mkdir()
    storage = str(tmp_path / "storage")
    older = driver(tmp_path / "one", storage, *PLACES[place])
    older.wait_until_stopped()
    newer = driver(tmp_path / "two", storage, "roamcast.pipeline.state.shared_state", "SharedState.publish", "1")
    newer.wait_until_stopped()
    older.resume()
    older.wait()
    older.end()
    newer.end()
    last = driver(tmp_path / "three", storage)
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
