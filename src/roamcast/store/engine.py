"""Databases: how a file of SQLite is opened, how transactions begin, and what refusals mean."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry

from roamcast.durable import storage_errors, sync_folder
from roamcast.errors import ConflictError, CorruptionError, RoamcastError, StorageError
from roamcast.store.kinds import Kind, prepare
from roamcast.store.registry.schema import REGISTRY

__all__ = ["begins", "open_sqlite", "opened", "portions", "reading", "writing"]

T = TypeVar("T")

_WRITES = "roamcast_writes"

_PRAGMAS = (
    "PRAGMA busy_timeout = 10000",  # first, so that the others wait for their turn too
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA cache_size = -65536",  # 64 MB: what a batch touches should fit
    "PRAGMA wal_autocheckpoint = 16000",  # pages, 64 MB: letters for many mailboxes touch the same pages every time
)

_REFUSALS = {
    sqlite3.SQLITE_FULL: ("the disk is full", "free some space; what was acknowledged is safe"),
    sqlite3.SQLITE_READONLY: (
        "the store is read-only",
        "make it writable, or choose another folder with --data",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        "the store cannot be opened",
        "check who owns the data folder, and the space left",
    ),
    sqlite3.SQLITE_IOERR: (
        "the disk reports an input/output error",
        "check the disk, and the space left on it",
    ),
    sqlite3.SQLITE_BUSY: (
        "another process keeps the store locked",
        "end it: a folder serves one node at a time",
    ),
}
# By the beginning of PostgreSQL's SQLSTATE.
_STATES = {
    "53100": ("the disk is full", "free some space; what was acknowledged is safe"),
    "53": ("the database is short of resources", "see what its log says"),
    "25006": ("the store is read-only", "give the URL of the server that takes writes"),
    "28": ("the database does not let us in", "check user and password in the URL of the store"),
    "42501": ("the database does not permit it", "grant this user CREATE on the database"),
}
_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def open_sqlite(path: Path, kind: Kind = REGISTRY) -> Engine:
    """The store in the file at `path`, made (readable for its owner alone) if it is not there.

    Raises StorageError when the disk refuses, CorruptionError when the file is not a store, ConflictError
    when it is a store of another version.
    """
    with storage_errors(path):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        sync_folder(path.parent)
    # Overflow without bound: there are no more connections than threads that ask for one.
    engine = create_engine(URL.create("sqlite", database=str(path)), max_overflow=-1)
    event.listen(engine, "connect", _connected)
    # A transaction that turns from reading to writing may fail for good; a writer says so at once, and waits.
    begins(engine, reading="BEGIN", writing="BEGIN IMMEDIATE")
    return opened(engine, kind, str(path))


def begins(engine: Engine, *, reading: str, writing: str) -> None:
    """How transactions begin that read, and that write alone."""

    def begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql(writing if writes else reading)

    event.listen(engine, "begin", begun)


def opened(engine: Engine, kind: Kind, where: str) -> Engine:
    """The engine, with the tables there."""
    try:
        with writing(engine) as connection:
            prepare(connection, kind, where)
    except BaseException:
        engine.dispose()
        raise
    return engine


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that sees one state of the store."""
    with _storage_errors(engine), engine.begin() as connection:
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction alone among writers, durable when it ends; undone if it fails."""
    with _storage_errors(engine), engine.execution_options(**{_WRITES: True}).begin() as connection:
        yield connection


def portions(values: Iterable[T]) -> Iterator[list[T]]:
    """A few hundred at a time: databases limit how many values a statement may carry."""
    rest = iter(values)
    while some := list(islice(rest, 500)):
        yield some


def _connected(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # the driver begins nothing by itself; `begins` does
    for pragma in _PRAGMAS:
        connection.execute(pragma)


@contextmanager
def _storage_errors(engine: Engine) -> Iterator[None]:
    """Turn what a database says into an error of ours with a hint."""
    try:
        yield
    except DBAPIError as error:
        raise _named(error.orig, engine) from error
    except engine.dialect.loaded_dbapi.Error as error:  # from statements that did not go through SQLAlchemy
        raise _named(error, engine) from error


def _named(error: BaseException | None, engine: Engine) -> RoamcastError:
    where = str(engine.url.database)
    if isinstance(error, engine.dialect.loaded_dbapi.IntegrityError):
        return ConflictError(f"the store refuses: {error}", where=where, hint="it contradicts what is stored")
    if engine.dialect.name != "sqlite":
        state = getattr(error, "sqlstate", None) or ""
        message, hint = next(
            (refusal for prefix, refusal in _STATES.items() if state.startswith(prefix)),
            (f"the database refuses: {error}", "check that the server runs, and the URL of the store"),
        )
        return StorageError(message, where=where, hint=hint)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the kind, the others are details
    if code in _BROKEN:
        return CorruptionError(f"not a readable store: {error}", where=where, hint="restore it from a backup")
    message, hint = _REFUSALS.get(code, (f"the store refuses: {error}", "check the data folder"))
    return StorageError(message, where=where, hint=hint)
