"""Databases: how they are opened, how a transaction begins, and what their refusals mean."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry

from roamcast.durable import refusals_named, sync_folder
from roamcast.errors import CorruptionError, RoamcastError, StorageError
from roamcast.store import schema

__all__ = ["open_sqlite", "portions", "reading", "writing"]

_WRITES = "roamcast_writes"

_PRAGMAS = (
    "PRAGMA busy_timeout = 10000",  # first, so that the others wait for their turn too
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA wal_autocheckpoint = 4000",  # pages; at the default a busy mailbox copies every few batches
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
_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def open_sqlite(path: Path) -> Engine:
    """The store in the file at `path`, made (readable for its owner alone) if it is not there.

    Raises StorageError when the disk refuses, CorruptionError when the file is not a store, ConflictError
    when it is a store of another version.
    """
    with refusals_named(path):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        sync_folder(path.parent)
    # Overflow without bound: there are no more connections than threads that ask for one.
    engine = create_engine(URL.create("sqlite", database=str(path)), max_overflow=-1)
    event.listen(engine, "connect", _connected)
    event.listen(engine, "begin", _begun)
    try:
        with writing(engine) as connection:
            schema.prepare(connection, str(path))
    except BaseException:
        engine.dispose()
        raise
    return engine


@contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    """A transaction that sees one state of the store."""
    with _refusals_named(engine), engine.begin() as connection:
        yield connection


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction alone among writers, durable when it ends; undone if it fails."""
    with _refusals_named(engine), engine.execution_options(**{_WRITES: True}).begin() as connection:
        yield connection


def portions(values: Iterable[str]) -> Iterator[list[str]]:
    """A few hundred at a time: databases limit how many values a statement may carry."""
    rest = iter(values)
    while some := list(islice(rest, 500)):
        yield some


def _connected(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # the driver begins nothing by itself; `_begun` does
    for pragma in _PRAGMAS:
        connection.execute(pragma)


def _begun(connection: Connection) -> None:
    # A transaction that turns from reading to writing may fail for good; a writer says so at once, and waits.
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def _refusals_named(engine: Engine) -> Iterator[None]:
    """Turn what a database says into an error of ours with a hint."""
    try:
        yield
    except DBAPIError as error:
        raise _named(error.orig, engine) from error
    except sqlite3.Error as error:  # from `_connected`, where SQLAlchemy does not wrap it
        raise _named(error, engine) from error


def _named(error: BaseException | None, engine: Engine) -> RoamcastError:
    where = str(engine.url.database)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the kind, the others are details
    if code in _BROKEN:
        return CorruptionError(f"not a readable store: {error}", where=where, hint="restore it from a backup")
    message, hint = _REFUSALS.get(code, (f"the store refuses: {error}", "check the data folder"))
    return StorageError(message, where=where, hint=hint)
