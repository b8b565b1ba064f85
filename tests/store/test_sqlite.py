"""What the store in a SQLite file adds to the contracts: it lasts, and it knows what it opens."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from roamcast.bind.messages import Bound, Unbound
from roamcast.deliver.ranges import Ranges
from roamcast.errors import ConflictError, CorruptionError
from roamcast.journal.records import SUBSCRIPTION, Record
from roamcast.model import Letter, Position, Standing, Subscription
from roamcast.store.engine import reading
from roamcast.store.sql import SqlMailboxes, SqlRegistry, open_sqlite
from roamcast.store.values import Entity, EntityAdded, SubscriptionAdded


def letters(*numbers: int) -> list[Letter]:
    return [Letter("r", "s", number, f"{number}") for number in numbers]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def test_mailboxes_are_still_there_after_reopening(path: Path) -> None:
    """Readable and held letters, places, acknowledgements and what was received all last."""
    store = SqlMailboxes(open_sqlite(path))
    store.deliver(letters(1, 2, 3, 5))
    store.acknowledge("r", 2)
    store.close()
    store = SqlMailboxes(open_sqlite(path))
    assert store.received("r") == {"s": Ranges().add_range(1, 3).add(5)}
    assert store.deliver(letters(1, 2, 3, 5)).duplicates == 4
    store.deliver(letters(4))
    assert [(e.place, e.number) for e in store.pull("r", 10)] == [(3, 3), (4, 4), (5, 5)]
    store.close()


def test_an_emptied_mailbox_goes_on_after_reopening(path: Path) -> None:
    """Places and numbers are remembered although no letter is left."""
    store = SqlMailboxes(open_sqlite(path))
    store.deliver(letters(1, 2))
    store.acknowledge("r", 2)
    store.close()
    store = SqlMailboxes(open_sqlite(path))
    assert store.deliver(letters(2)).duplicates == 1
    store.deliver(letters(3))
    assert [e.place for e in store.pull("r", 10)] == [3]
    store.close()


def test_the_registry_is_still_there_after_reopening(path: Path) -> None:
    """Entities, positions, bounds, subscriptions, bindings, waiting records, time and the pipeline all last."""
    entity = Entity("s", "source", "hash", {"floor": 2.0}, Position("s", 1.0, 2.0, 3))
    subscription = Subscription("q", "ann", "Select …", None, 4, ("room",), Standing("active", None, 5, joined=True))
    record = Record(SUBSCRIPTION, "ann", id="q", time=1, body="{}")
    registry = SqlRegistry(open_sqlite(path))
    registry.apply([EntityAdded(entity), SubscriptionAdded(subscription), Bound("q", "s", 9), record], at=9)
    registry.raise_sequence_bound("s", 77)
    registry.set_pipeline("pipe")
    waiting = registry.unjournalled()
    registry.close()
    registry = SqlRegistry(open_sqlite(path))
    assert registry.entity("s") == entity
    assert registry.sequence_bound("s") == 77
    assert registry.subscriptions() == [subscription]
    assert registry.live_bindings() == [Bound("q", "s", 9)]
    assert registry.unjournalled() == waiting
    assert registry.latest() == 9
    assert registry.pipeline() == "pipe"
    registry.close()


def test_registry_and_mailboxes_share_an_engine(path: Path) -> None:
    """Closing one leaves the other at work."""
    engine = open_sqlite(path)
    registry, mailboxes = SqlRegistry(engine), SqlMailboxes(engine)
    registry.set_pipeline("pipe")
    registry.close()
    assert mailboxes.deliver(letters(1)).accepted == 1
    mailboxes.close()


def test_what_somebody_else_delivered_is_noticed(path: Path) -> None:
    """Two stores on one file, each with what it remembers, still take every letter once."""
    one, other = SqlMailboxes(open_sqlite(path)), SqlMailboxes(open_sqlite(path))
    one.deliver(letters(1))
    assert other.deliver(letters(1, 3)).duplicates == 1
    assert one.deliver(letters(1, 2, 3)).duplicates == 2
    assert [(e.place, e.number) for e in other.pull("r", 10)] == [(1, 1), (2, 2), (3, 3)]
    one.close()
    other.close()


def test_writers_take_turns(path: Path) -> None:
    """Two stores and the registry that write to one file at once wait for each other; none is refused."""
    engine = open_sqlite(path)
    one, other, registry = SqlMailboxes(engine), SqlMailboxes(engine), SqlRegistry(engine)

    def register(number: int) -> None:
        registry.apply([EntityAdded(Entity(f"e{number}", "source", f"hash {number}"))], at=number)

    def deliver(store: SqlMailboxes, number: int) -> None:
        store.deliver(letters(number))

    with ThreadPoolExecutor(3) as pool:
        tasks = [
            task
            for number in range(1, 61)
            for task in (
                pool.submit(deliver, one, number),
                pool.submit(deliver, other, number),
                pool.submit(register, number),
            )
        ]
        for task in tasks:
            task.result()
    assert [e.number for e in one.pull("r", 100)] == list(range(1, 61))
    assert len(registry.entities()) == 60
    engine.dispose()


def test_only_its_owner_can_read_the_files(path: Path) -> None:
    """The database and the files beside it are readable and writable for their owner alone."""
    store = SqlMailboxes(open_sqlite(path))
    store.deliver(letters(1))
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    store.close()
    assert modes == {"store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600}


def test_every_commit_is_synced(path: Path) -> None:
    """The settings on which durability rests are those in force on a connection."""
    engine = open_sqlite(path)
    with reading(engine) as connection:
        values = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    engine.dispose()
    assert values == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


def plans(engine: Engine, act: Callable[[], object], table: str = "letters") -> list[str]:
    """How SQLite carries out the statements on a table that `act` makes."""
    statements: list[tuple[str, Any]] = []

    def noted(_c: object, _u: object, statement: str, parameters: Any, _x: object, many: bool) -> None:
        if f" {table}" in statement and not statement.startswith("INSERT"):
            statements.append((statement, parameters[0] if many else parameters))

    event.listen(engine, "before_cursor_execute", noted)
    act()
    event.remove(engine, "before_cursor_execute", noted)
    with reading(engine) as connection:
        return [
            row.detail.replace("COVERING ", "")
            for statement, parameters in statements
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        ]


def test_each_letter_is_found_by_an_index(path: Path) -> None:
    """No question about a mailbox reads other mailboxes, sorts, or goes through all that is held back."""
    engine = open_sqlite(path)
    store = SqlMailboxes(engine)
    store.deliver(letters(2))
    questions: dict[str, Callable[[], object]] = {
        "letters_held (receiver=? AND sender=? AND number>? AND number<?)": lambda: store.deliver(letters(1)),
        "letters_readable (receiver=? AND place>?)": lambda: store.pull("r", 9),
        "letters_held (receiver=?)": lambda: store.held_back("r"),
        "letters_readable (receiver=? AND place<?)": lambda: store.acknowledge("r", 1),
    }
    found = {expected: plans(engine, ask) for expected, ask in questions.items()}
    engine.dispose()
    assert found == {expected: [f"SEARCH letters USING INDEX {expected}"] for expected in questions}


def test_bindings_are_found_by_an_index(path: Path) -> None:
    """Neither ending one, nor the history, nor pruning reads the history of others, or all of one's own."""
    engine = open_sqlite(path)
    registry = SqlRegistry(engine)
    subscription = Subscription("q", "ann", "Select …", standing=Standing("start", None, 1))
    registry.apply([SubscriptionAdded(subscription), Bound("q", "a", 1)], at=1)
    questions: dict[str, Callable[[], object]] = {
        "SEARCH bindings USING INDEX bindings_live (subscription=? AND source=?)": lambda: registry.apply(
            [Unbound("q", "a", 2)], at=2
        ),
        "SEARCH bindings USING PRIMARY KEY (subscription=?)": lambda: registry.bindings("q", 9),
        "SEARCH bindings USING INDEX bindings_ended (unbound_at<?)": lambda: registry.prune(1, 9),
        "SCAN bindings USING INDEX bindings_live": lambda: registry.live_bindings(),
    }
    found = {expected: plans(engine, ask, "bindings")[0] for expected, ask in questions.items()}
    engine.dispose()
    assert found == {expected: expected for expected in questions}


def test_a_store_of_another_version_is_refused(path: Path) -> None:
    """The error names both versions and says what to do."""
    open_sqlite(path).dispose()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET value = 'roamcast-store/99' WHERE name = 'schema'")
    connection.close()
    with pytest.raises(ConflictError, match=r"roamcast-store/99.*roamcast-store/3") as caught:
        open_sqlite(path)
    assert caught.value.hint


def test_somebody_elses_database_is_refused(path: Path) -> None:
    """A database that is no store of ours is left as it is."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()
    with pytest.raises(CorruptionError):
        open_sqlite(path)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("recipes",)]
    connection.close()


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    """Whatever is in it, the answer is an error with a hint."""
    path.write_bytes(b"not a database at all " * 500)
    with pytest.raises(CorruptionError) as caught:
        open_sqlite(path)
    assert caught.value.hint


def test_spoilt_ranges_are_refused(path: Path) -> None:
    """What was received is never guessed."""
    store = SqlMailboxes(open_sqlite(path))
    store.deliver(letters(1))
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE received SET ranges = '5-1'")
    connection.close()
    store = SqlMailboxes(open_sqlite(path))
    with pytest.raises(CorruptionError):
        store.deliver(letters(2))
    store.close()
