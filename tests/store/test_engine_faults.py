"""Stores when the process is killed or the disk fails."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from roamcast.deliver.office import Office
from roamcast.deliver.requests import Acknowledge, Acknowledged, Deposit, Deposited, Pull, Pulled, Register
from roamcast.errors import ConflictError, StorageError
from roamcast.journal.records import SUBSCRIPTION, Record
from roamcast.model import Letter, Subscription
from roamcast.ranges import Ranges
from roamcast.store.engine import open_sqlite
from roamcast.store.office.schema import OFFICE_FORMAT
from roamcast.store.office.sql import SqlOfficeStore
from roamcast.store.registry.schema import REGISTRY_FORMAT
from roamcast.store.registry.sql import SqlRegistry
from roamcast.store.registry.values import SubscriptionAdded

BUNDLE = 10
NAME = "d.host.r"

CHILD = f"""
import sys
from pathlib import Path
from roamcast.deliver.requests import Acknowledge, Deposit, Register
from roamcast.deliver.office import Office
from roamcast.model import Letter
from roamcast.store.office.sql import open_office

office = Office("d", open_office(Path(sys.argv[1]), "d"))
office.handle(Register("{NAME}"), 0)
number = int(sys.argv[2])
while True:
    letters = [Letter("{NAME}", "s", n, f"letter {{n}}") for n in range(number, number + {BUNDLE})]
    office.handle(Deposit(tuple(letters)), 0)
    number += {BUNDLE}
    print("delivered", number - 1, flush=True)
    offset = (number - 1) // 2
    office.handle(Acknowledge("{NAME}", offset), 0)
    print("acknowledged", offset, flush=True)
"""


def letters(first: int, count: int, size: int = 200) -> list[Letter]:
    return [Letter(NAME, "s", number, "x" * size) for number in range(first, first + count)]


class OfficeClient:
    """An office with one subscriber that gets letters."""

    def __init__(self, engine: Engine) -> None:
        self._store = SqlOfficeStore(engine)
        self._office = Office("d", self._store)
        self._office.handle(Register(NAME), 0)

    def deliver(self, letters: list[Letter]) -> tuple[int, int]:
        """Returns how many letters were new, and how many were not."""
        (deposited,) = [it for it in self._office.handle(Deposit(tuple(letters)), 0) if isinstance(it, Deposited)]
        return deposited.accepted - deposited.duplicates, deposited.duplicates

    def acknowledge(self, through: int) -> int:
        (acknowledged,) = self._office.handle(Acknowledge(NAME, through), 0)
        assert isinstance(acknowledged, Acknowledged)
        return acknowledged.count

    def pull(self) -> list[tuple[int | None, int, str]]:
        (pulled,) = self._office.handle(Pull(NAME, 10**6), 0)
        assert isinstance(pulled, Pulled)
        return [(offset, letter.number, letter.body) for letter, offset in pulled.letters]

    def received(self) -> Ranges:
        with self._store.transaction():
            return self._store.bookkeeping(NAME).mailbox.received.get("s", Ranges())

    def waiting(self) -> int:
        with self._store.transaction():
            return self._store.loads([NAME])[NAME].readable


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"mounting a file system is not permitted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def on_connect(engine: Engine, pragma: str) -> None:
    """Run `pragma` on all further connections."""

    def connected(connection: sqlite3.Connection, _: object) -> None:
        connection.execute(pragma)

    event.listen(engine, "connect", connected)
    engine.dispose()


def test_committed_letters_survive_sigkill(tmp_path: Path) -> None:
    """However often the process is killed; each deposit is complete, and offsets continue."""
    path = tmp_path / "office.sqlite"
    chance = random.Random(7)
    delivered = acknowledged = 0
    for _ in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path), str(delivered + 1)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(chance.randint(3, 40))]
        child.send_signal(signal.SIGKILL)
        # The kill can cut the last line short; an incomplete line says nothing.
        reports = [line.split() for line in (*lines, *child.stdout) if line.endswith("\n")]
        child.wait()
        child.stdout.close()

        engine = open_sqlite(path, OFFICE_FORMAT)
        post = OfficeClient(engine)
        ranges, entries = post.received(), post.pull()
        engine.dispose()
        received, lowest = ranges.prefix, ranges.prefix - len(entries)
        delivered = max([delivered, *(int(n) for what, n in reports if what == "delivered")])
        acknowledged = max([acknowledged, *(int(n) for what, n in reports if what == "acknowledged")])
        assert delivered <= received
        assert acknowledged <= lowest
        assert received % BUNDLE == 0
        assert entries == [(n, n, f"letter {n}") for n in range(lowest + 1, received + 1)]


def check_full(post: OfficeClient) -> int:
    """Deposit until the disk is full. Returns how many letters were accepted."""

    def fill() -> None:
        for first in range(1, 100_000, 100):
            post.deliver(letters(first, 100))

    with pytest.raises(StorageError, match="the disk is full") as caught:
        fill()
    assert caught.value.hint
    count = post.waiting()
    assert count > 0
    assert count % 100 == 0
    assert post.received().prefix == count
    assert [number for _, number, _ in post.pull()] == list(range(1, count + 1))
    return count


def test_full_database_raises_storage_error_and_changes_nothing(tmp_path: Path) -> None:
    """All earlier letters stay readable."""
    engine = open_sqlite(tmp_path / "store.db", OFFICE_FORMAT)
    on_connect(engine, "PRAGMA max_page_count = 100")
    check_full(OfficeClient(engine))
    engine.dispose()


def test_full_file_system_raises_storage_error_and_changes_nothing(small_disk: Path) -> None:
    """The store works again once there is space."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(400_000))
    engine = open_sqlite(small_disk / "store.db", OFFICE_FORMAT)
    post = OfficeClient(engine)
    count = check_full(post)
    ballast.unlink()
    assert post.deliver(letters(1, count + 100)) == (100, count)
    engine.dispose()


def test_acknowledging_works_on_a_full_disk(tmp_path: Path) -> None:
    """It makes room for new letters."""
    engine = open_sqlite(tmp_path / "store.db", OFFICE_FORMAT)
    on_connect(engine, "PRAGMA max_page_count = 100")
    post = OfficeClient(engine)
    count = check_full(post)
    assert post.acknowledge(count) == count
    assert post.deliver(letters(count + 1, 100)) == (100, 0)
    engine.dispose()


def test_read_only_office_store_changes_nothing(tmp_path: Path) -> None:
    """Everything raises a StorageError with a hint until it is writable again."""
    engine = open_sqlite(tmp_path / "store.db", OFFICE_FORMAT)
    post = OfficeClient(engine)
    post.deliver(letters(1, 2))
    on_connect(engine, "PRAGMA query_only = ON")
    with pytest.raises(StorageError, match="read-only") as caught:
        post.deliver(letters(3, 1))
    assert caught.value.hint
    with pytest.raises(StorageError, match="read-only"):
        post.acknowledge(1)
    engine.dispose()
    engine = open_sqlite(tmp_path / "store.db", OFFICE_FORMAT)
    assert [number for _, number, _ in OfficeClient(engine).pull()] == [1, 2]
    engine.dispose()


def test_read_only_registry_changes_nothing(tmp_path: Path) -> None:
    """Neither the change nor its control record is stored."""
    engine = open_sqlite(tmp_path / "store.db", REGISTRY_FORMAT)
    registry = SqlRegistry(engine)
    on_connect(engine, "PRAGMA query_only = ON")
    with pytest.raises(StorageError, match="read-only"):
        registry.apply([SubscriptionAdded(Subscription("q", "ann", "…")), Record(SUBSCRIPTION, "ann", id="q")], at=1)
    assert registry.subscriptions() == []
    assert registry.control_outbox() == []
    engine.dispose()


def test_file_without_write_permission_is_refused(tmp_path: Path) -> None:
    """With a hint."""
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    path = tmp_path / "store.db"
    open_sqlite(path, REGISTRY_FORMAT).dispose()
    path.chmod(0o400)
    with pytest.raises(StorageError, match="not permitted"):
        open_sqlite(path, REGISTRY_FORMAT)


def test_read_only_file_system_is_refused(small_disk: Path) -> None:
    """With a hint."""
    path = small_disk / "store.db"
    open_sqlite(path, REGISTRY_FORMAT).dispose()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StorageError, match="read-only") as caught:
        open_sqlite(path, REGISTRY_FORMAT)
    assert caught.value.hint


def test_missing_folder_is_refused(tmp_path: Path) -> None:
    """The error names the file."""
    path = tmp_path / "nowhere" / "store.db"
    with pytest.raises(StorageError) as caught:
        open_sqlite(path, REGISTRY_FORMAT)
    assert caught.value.where == str(path)


def test_locked_store_raises_storage_error(tmp_path: Path) -> None:
    """It works again when the other writer has ended."""
    engine = open_sqlite(tmp_path / "store.db", OFFICE_FORMAT)
    post = OfficeClient(engine)
    on_connect(engine, "PRAGMA busy_timeout = 0")
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="locked"):
        post.deliver(letters(1, 1))
    other.execute("ROLLBACK")
    other.close()
    assert post.deliver(letters(1, 1)) == (1, 0)
    engine.dispose()


def test_failed_deposit_is_rolled_back_completely(tmp_path: Path) -> None:
    """In memory too."""
    engine = open_sqlite(tmp_path / "store.db", OFFICE_FORMAT)
    post = OfficeClient(engine)
    post.deliver(letters(1, 2))
    fail = "CREATE TRIGGER refuse BEFORE UPDATE ON counters BEGIN SELECT RAISE(ABORT, 'no'); END"
    with engine.begin() as connection:
        connection.exec_driver_sql(fail)
    with pytest.raises(ConflictError):
        post.deliver(letters(3, 1))
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TRIGGER refuse")
    assert post.waiting() == 2
    assert post.deliver(letters(3, 1)) == (1, 0)
    assert [offset for offset, _, _ in post.pull()] == [1, 2, 3]
    engine.dispose()
