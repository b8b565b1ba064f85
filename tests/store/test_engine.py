"""What a SQLite file adds to the contracts: durability, permissions and format checks."""

from __future__ import annotations

import hashlib
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from roamcast.bind.lcesm.messages import Bound, Unbound
from roamcast.errors import ConflictError, CorruptionError
from roamcast.journal.records import SUBSCRIPTION, Record
from roamcast.model import Lifecycle, Position, Subscription
from roamcast.store.engine import StoreFormat, open_sqlite, read_transaction
from roamcast.store.office.schema import OFFICE_FORMAT
from roamcast.store.registry.schema import REGISTRY_FORMAT
from roamcast.store.registry.sql import SqlRegistry
from roamcast.store.registry.values import Entity, EntityAdded, SubscriptionAdded
from roamcast.store.registry.visitors import SqlVisitors


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def test_registry_survives_reopening(path: Path) -> None:
    """Entities, positions, bounds, subscriptions, bindings, outbox, time and pipeline."""
    entity = Entity("s", "source", "hash", {"floor": 2.0}, Position("s", 1.0, 2.0, 3))
    subscription = Subscription(
        "q", "ann", "Select …", None, 4, ("room",), Lifecycle("active", None, 5, was_active=True)
    )
    record = Record(SUBSCRIPTION, "ann", id="q", time=1, body="{}")
    registry = SqlRegistry(open_sqlite(path, REGISTRY_FORMAT))
    registry.apply([EntityAdded(entity), SubscriptionAdded(subscription), Bound("q", "s", 9), record], at=9)
    registry.raise_sequence_bounds({"s": 77})
    registry.set_pipeline("pipe")
    waiting = registry.control_outbox()
    registry.close()
    registry = SqlRegistry(open_sqlite(path, REGISTRY_FORMAT))
    assert registry.entity("s") == entity
    assert registry.sequence_bounds(["s"])["s"] == 77
    assert registry.subscriptions() == [subscription]
    assert registry.live_bindings() == [Bound("q", "s", 9)]
    assert registry.control_outbox() == waiting
    assert registry.latest() == 9
    assert registry.pipeline() == "pipe"
    registry.close()


def test_files_are_accessible_by_their_owner_only(path: Path) -> None:
    """The database and the files beside it."""
    store = SqlRegistry(open_sqlite(path, REGISTRY_FORMAT))
    store.set_pipeline("pipe")
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    store.close()
    assert modes == {"store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600}


def test_connections_have_the_durability_settings(path: Path) -> None:
    engine = open_sqlite(path, REGISTRY_FORMAT)
    with read_transaction(engine) as connection:
        values = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    engine.dispose()
    assert values == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


def plans(engine: Engine, act: Callable[[], object], table: str) -> list[str]:
    """How SQLite executes the statements of `act` on a table."""
    statements: list[tuple[str, Any]] = []

    def noted(_c: object, _u: object, statement: str, parameters: Any, _x: object, many: bool) -> None:
        if f" {table}" in statement and not statement.startswith("INSERT"):
            statements.append((statement, parameters[0] if many else parameters))

    event.listen(engine, "before_cursor_execute", noted)
    act()
    event.remove(engine, "before_cursor_execute", noted)
    with read_transaction(engine) as connection:
        return [
            row.detail.replace("COVERING ", "")
            for statement, parameters in statements
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        ]


def test_binding_queries_use_an_index(path: Path) -> None:
    """None scans the history of others, or all of one's own."""
    engine = open_sqlite(path, REGISTRY_FORMAT)
    registry = SqlRegistry(engine)
    subscription = Subscription("q", "ann", "Select …", lifecycle=Lifecycle("start", None, 1))
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


def test_store_of_another_version_is_refused(path: Path) -> None:
    """The error names both versions and has a hint."""
    open_sqlite(path, REGISTRY_FORMAT).dispose()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET value = 'roamcast-store/99' WHERE name = 'schema'")
    connection.close()
    with pytest.raises(ConflictError, match=r"roamcast-store/99.*roamcast-store/10") as caught:
        open_sqlite(path, REGISTRY_FORMAT)
    assert caught.value.hint


def test_visitors_of_another_version_are_refused_with_the_store(path: Path) -> None:
    """When the store is opened, not when the first visitor comes."""
    open_sqlite(path, REGISTRY_FORMAT).dispose()
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE visitors")
        connection.execute("CREATE TABLE visitors (name TEXT PRIMARY KEY, epoch BIGINT, link BLOB, token_hash TEXT)")
        connection.execute("UPDATE meta SET value = 'roamcast-store/4' WHERE name = 'schema'")
    connection.close()
    with pytest.raises(ConflictError):
        SqlVisitors(open_sqlite(path, REGISTRY_FORMAT))


FORMATS = {"roamcast-store/10": "2a5bf1cd69536633", "roamcast-office/4": "ead84206e99f8f3f"}


@pytest.mark.parametrize("kind", [REGISTRY_FORMAT, OFFICE_FORMAT], ids=lambda kind: kind.name)
def test_changed_tables_need_a_new_format_version(path: Path, kind: StoreFormat) -> None:
    """Otherwise old stores would fail later."""
    open_sqlite(path, kind).dispose()
    with sqlite3.connect(path) as connection:
        made = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name").fetchall()
    connection.close()
    digest = hashlib.sha256("\n".join(" ".join(sql.split()) for (sql,) in made).encode()).hexdigest()
    assert digest.startswith(FORMATS[kind.version])


def test_foreign_database_is_refused_and_unchanged(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    connection.close()
    with pytest.raises(CorruptionError):
        open_sqlite(path, REGISTRY_FORMAT)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("recipes",)]
    connection.close()


def test_file_that_is_not_a_database_is_refused(path: Path) -> None:
    """With a hint."""
    path.write_bytes(b"not a database at all " * 500)
    with pytest.raises(CorruptionError) as caught:
        open_sqlite(path, REGISTRY_FORMAT)
    assert caught.value.hint
