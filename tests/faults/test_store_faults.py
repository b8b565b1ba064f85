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

from roamcast.errors import StorageError
from roamcast.journal.records import SUBSCRIPTION, Record
from roamcast.model import Letter, Subscription
from roamcast.store.port import Delivery
from roamcast.store.sql import SqlMailboxes, SqlRegistry, open_sqlite
from roamcast.store.values import SubscriptionAdded

BUNDLE = 10

CHILD = f"""
import sys
from pathlib import Path
from roamcast.model import Letter
from roamcast.store.sql import SqlMailboxes, open_sqlite

store = SqlMailboxes(open_sqlite(Path(sys.argv[1])))
number = int(sys.argv[2])
while True:
    store.deliver([Letter("r", "s", n, f"letter {{n}}") for n in range(number, number + {BUNDLE})])
    number += {BUNDLE}
    print("delivered", number - 1, flush=True)
    place = (number - 1) // 2
    store.acknowledge("r", place)
    print("acknowledged", place, flush=True)
"""


def letters(first: int, count: int, size: int = 200) -> list[Letter]:
    return [Letter("r", "s", number, "x" * size) for number in range(first, first + count)]


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
    path = tmp_path / "store.db"
    chance = random.Random(7)
    delivered = acknowledged = 0
    for _ in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(path), str(delivered + 1)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(chance.randint(3, 40))]
        child.send_signal(signal.SIGKILL)
        said = [line.split() for line in (*lines, *child.stdout)]
        child.wait()
        child.stdout.close()

        store = SqlMailboxes(open_sqlite(path))
        (ranges,) = store.received("r").values()
        entries = store.pull("r", 10**6)
        store.close()
        had, lowest = ranges.prefix, ranges.prefix - len(entries)
        delivered = max([delivered, *(int(n) for what, n in said if what == "delivered")])
        acknowledged = max([acknowledged, *(int(n) for what, n in said if what == "acknowledged")])
        assert delivered <= had
        assert acknowledged <= lowest
        assert had % BUNDLE == 0
        assert [(e.place, e.number, e.body) for e in entries] == [
            (n, n, f"letter {n}") for n in range(lowest + 1, had + 1)
        ]


def check_full(store: SqlMailboxes) -> int:
    """Deliver until the disk refuses; how many letters were accepted."""

    def fill() -> None:
        for first in range(1, 100_000, 100):
            store.deliver(letters(first, 100))

    with pytest.raises(StorageError, match="the disk is full") as caught:
        fill()
    assert caught.value.hint
    count = store.waiting("r")
    assert count > 0
    assert count % 100 == 0
    assert store.received("r")["s"].prefix == count
    assert [e.number for e in store.pull("r", 10**6)] == list(range(1, count + 1))
    return count


def test_a_full_disk_refuses_and_changes_nothing(tmp_path: Path) -> None:
    """SQLite's own answer to a full disk becomes a StorageError; all that was delivered stays readable."""
    engine = open_sqlite(tmp_path / "store.db")
    on_connect(engine, "PRAGMA max_page_count = 60")
    check_full(SqlMailboxes(engine))
    engine.dispose()


def test_a_really_full_disk_refuses_and_changes_nothing(small_disk: Path) -> None:
    """The same on a file system with no room left, and once there is room again the store goes on."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(400_000))
    engine = open_sqlite(small_disk / "store.db")
    store = SqlMailboxes(engine)
    count = check_full(store)
    ballast.unlink()
    assert store.deliver(letters(1, count + 100)) == Delivery(100, count, frozenset({"r"}))
    engine.dispose()


def test_acknowledging_works_on_a_full_disk(tmp_path: Path) -> None:
    """Room is made by reading: what is acknowledged gives its room to new letters."""
    engine = open_sqlite(tmp_path / "store.db")
    on_connect(engine, "PRAGMA max_page_count = 60")
    store = SqlMailboxes(engine)
    count = check_full(store)
    assert store.acknowledge("r", count) == count
    assert store.deliver(letters(count + 1, 100)).accepted == 100
    engine.dispose()


def test_a_read_only_store_refuses_and_changes_nothing(tmp_path: Path) -> None:
    """Writes of either kind raise a StorageError with a hint, and reading goes on."""
    engine = open_sqlite(tmp_path / "store.db")
    mailboxes, registry = SqlMailboxes(engine), SqlRegistry(engine)
    mailboxes.deliver(letters(1, 2))
    on_connect(engine, "PRAGMA query_only = ON")
    with pytest.raises(StorageError, match="read-only") as caught:
        mailboxes.deliver(letters(3, 1))
    assert caught.value.hint
    with pytest.raises(StorageError, match="read-only"):
        mailboxes.acknowledge("r", 1)
    with pytest.raises(StorageError, match="read-only"):
        registry.apply([SubscriptionAdded(Subscription("q", "ann", "…")), Record(SUBSCRIPTION, "ann", id="q")], at=1)
    assert mailboxes.waiting("r") == 2
    assert registry.subscriptions() == []
    assert registry.unjournalled() == []
    engine.dispose()


def test_a_file_that_may_not_be_written_is_not_opened(tmp_path: Path) -> None:
    """A file without write permission is refused at once, with a hint."""
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    path = tmp_path / "store.db"
    open_sqlite(path).dispose()
    path.chmod(0o400)
    with pytest.raises(StorageError, match="not permitted"):
        open_sqlite(path)


def test_a_read_only_file_system_is_not_opened(small_disk: Path) -> None:
    """A store on a file system mounted read-only is refused at once, with a hint."""
    path = small_disk / "store.db"
    open_sqlite(path).dispose()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StorageError, match="read-only") as caught:
        open_sqlite(path)
    assert caught.value.hint


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The error names the file that could not be made."""
    path = tmp_path / "nowhere" / "store.db"
    with pytest.raises(StorageError) as caught:
        open_sqlite(path)
    assert caught.value.where == str(path)


def test_a_store_locked_by_somebody_else_refuses(tmp_path: Path) -> None:
    """A foreign writer that does not end is named as the cause, and afterwards the store goes on."""
    engine = open_sqlite(tmp_path / "store.db")
    on_connect(engine, "PRAGMA busy_timeout = 0")
    store = SqlMailboxes(engine)
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageError, match="locked"):
        store.deliver(letters(1, 1))
    other.execute("ROLLBACK")
    other.close()
    assert store.deliver(letters(1, 1)).accepted == 1
    engine.dispose()


def test_a_delivery_that_fails_midway_leaves_no_trace(tmp_path: Path) -> None:
    """When a late statement fails, what earlier ones of the same delivery did is undone, in memory too."""
    engine = open_sqlite(tmp_path / "store.db")
    store = SqlMailboxes(engine)
    store.deliver(letters(1, 2))
    fail = "CREATE TRIGGER refuse BEFORE UPDATE ON meta BEGIN SELECT RAISE(ABORT, 'no'); END"
    with engine.begin() as connection:
        connection.exec_driver_sql(fail)
    with pytest.raises(StorageError):
        store.deliver(letters(3, 1))
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TRIGGER refuse")
    assert store.waiting("r") == 2
    assert store.deliver(letters(3, 1)) == Delivery(1, 0, frozenset({"r"}))
    assert [e.place for e in store.pull("r", 10)] == [1, 2, 3]
    engine.dispose()
