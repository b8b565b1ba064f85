"""The store when its process is killed and when the disk refuses."""

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
    place = (number - 1) // 2
    office.handle(Acknowledge("{NAME}", place), 0)
    print("acknowledged", place, flush=True)
"""


def letters(first: int, count: int, size: int = 200) -> list[Letter]:
    return [Letter(NAME, "s", number, "x" * size) for number in range(first, first + count)]


class Post:
    """An office whose only subscriber gets letters."""

    def __init__(self, engine: Engine) -> None:
        self._store = SqlOfficeStore(engine)
        self._office = Office("d", self._store)
        self._office.handle(Register(NAME), 0)

    def deliver(self, letters: list[Letter]) -> tuple[int, int]:
        """How many were new, and how many were not."""
        (deposited,) = [it for it in self._office.handle(Deposit(tuple(letters)), 0) if isinstance(it, Deposited)]
        return deposited.filed - deposited.duplicates, deposited.duplicates

    def acknowledge(self, through: int) -> int:
        (acknowledged,) = self._office.handle(Acknowledge(NAME, through), 0)
        assert isinstance(acknowledged, Acknowledged)
        return acknowledged.count

    def pull(self) -> list[tuple[int | None, int, str]]:
        (pulled,) = self._office.handle(Pull(NAME, 10**6), 0)
        assert isinstance(pulled, Pulled)
        return [(place, letter.number, letter.body) for letter, place in pulled.letters]

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
    """Have all further connections begin with `pragma`."""

    def connected(connection: sqlite3.Connection, _: object) -> None:
        connection.execute(pragma)

    event.listen(engine, "connect", connected)
    engine.dispose()


def test_what_was_committed_survives_sigkill(tmp_path: Path) -> None:
    """However often the process is killed, what it said is true, each delivery is whole, and places go on."""
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
        said = [line.split() for line in (*lines, *child.stdout)]
        child.wait()
        child.stdout.close()

        engine = open_sqlite(path, OFFICE_FORMAT)
        post = Post(engine)
        ranges, entries = post.received(), post.pull()
        engine.dispose()
        had, lowest = ranges.prefix, ranges.prefix - len(entries)
        delivered = max([delivered, *(int(n) for what, n in said if what == "delivered")])
        acknowledged = max([acknowledged, *(int(n) for what, n in said if what == "acknowledged")])
        assert delivered <= had
        assert acknowledged <= lowest
        assert had % BUNDLE == 0
        assert entries == [(n, n, f"letter {n}") for n in range(lowest + 1, had + 1)]


def check_full(post: Post) -> int:
    """Deliver until the disk refuses; how many letters were accepted."""

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


def test_a_full_disk_refuses_and_changes_nothing(tmp_path: Path) -> None:
    """SQLite's own answer to a full disk becomes a StorageError; all that was delivered stays readable."""
    engine = open_sqlite(tmp_path / "store.db", OFFICE_FORMAT)
    on_connect(engine, "PRAGMA max_page_count = 100")
    check_full(Post(engine))
    engine.dispose()


def test_a_really_full_disk_refuses_and_changes_nothing(small_disk: Path) -> None:
    """The same on a file system with no room left, and once there is room again the store goes on."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(400_000))
    engine = open_sqlite(small_disk / "store.db", OFFICE_FORMAT)
    post = Post(engine)
    count = check_full(post)
    ballast.unlink()
    assert post.deliver(letters(1, count + 100)) == (100, count)
    engine.dispose()


def test_acknowledging_works_on_a_full_disk(tmp_path: Path) -> None:
    """Room is made by reading: what is acknowledged gives its room to new letters."""
    engine = open_sqlite(tmp_path / "store.db", OFFICE_FORMAT)
    on_connect(engine, "PRAGMA max_page_count = 100")
    post = Post(engine)
    count = check_full(post)
    assert post.acknowledge(count) == count
    assert post.deliver(letters(count + 1, 100)) == (100, 0)
    engine.dispose()


def test_a_read_only_office_refuses_and_changes_nothing(tmp_path: Path) -> None:
    """Everything raises a StorageError with a hint until it can be written again."""
    engine = open_sqlite(tmp_path / "store.db", OFFICE_FORMAT)
    post = Post(engine)
    post.deliver(letters(1, 2))
    on_connect(engine, "PRAGMA query_only = ON")
    with pytest.raises(StorageError, match="read-only") as caught:
        post.deliver(letters(3, 1))
    assert caught.value.hint
    with pytest.raises(StorageError, match="read-only"):
        post.acknowledge(1)
    engine.dispose()
    engine = open_sqlite(tmp_path / "store.db", OFFICE_FORMAT)
    assert [number for _, number, _ in Post(engine).pull()] == [1, 2]
    engine.dispose()


def test_a_read_only_registry_refuses_and_changes_nothing(tmp_path: Path) -> None:
    """A change and its record are refused as one."""
    engine = open_sqlite(tmp_path / "store.db", REGISTRY_FORMAT)
    registry = SqlRegistry(engine)
    on_connect(engine, "PRAGMA query_only = ON")
    with pytest.raises(StorageError, match="read-only"):
        registry.apply([SubscriptionAdded(Subscription("q", "ann", "…")), Record(SUBSCRIPTION, "ann", id="q")], at=1)
    assert registry.subscriptions() == []
    assert registry.control_outbox() == []
    engine.dispose()


def test_a_file_that_may_not_be_written_is_not_opened(tmp_path: Path) -> None:
    """A file without write permission is refused at once, with a hint."""
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    path = tmp_path / "store.db"
    open_sqlite(path, REGISTRY_FORMAT).dispose()
    path.chmod(0o400)
    with pytest.raises(StorageError, match="not permitted"):
        open_sqlite(path, REGISTRY_FORMAT)


def test_a_read_only_file_system_is_not_opened(small_disk: Path) -> None:
    """A store on a file system mounted read-only is refused at once, with a hint."""
    path = small_disk / "store.db"
    open_sqlite(path, REGISTRY_FORMAT).dispose()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StorageError, match="read-only") as caught:
        open_sqlite(path, REGISTRY_FORMAT)
    assert caught.value.hint


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The error names the file that could not be made."""
    path = tmp_path / "nowhere" / "store.db"
    with pytest.raises(StorageError) as caught:
        open_sqlite(path, REGISTRY_FORMAT)
    assert caught.value.where == str(path)


def test_a_store_locked_by_somebody_else_refuses(tmp_path: Path) -> None:
    """A foreign writer that does not end is named as the cause, and afterwards the store goes on."""
    engine = open_sqlite(tmp_path / "store.db", OFFICE_FORMAT)
    post = Post(engine)
    on_connect(engine, "PRAGMA busy_timeout = 0")
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="locked"):
        post.deliver(letters(1, 1))
    other.execute("ROLLBACK")
    other.close()
    assert post.deliver(letters(1, 1)) == (1, 0)
    engine.dispose()


def test_a_delivery_that_fails_midway_leaves_no_trace(tmp_path: Path) -> None:
    """When a late statement fails, what earlier ones of the same delivery did is undone, in memory too."""
    engine = open_sqlite(tmp_path / "store.db", OFFICE_FORMAT)
    post = Post(engine)
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
    assert [place for place, _, _ in post.pull()] == [1, 2, 3]
    engine.dispose()
