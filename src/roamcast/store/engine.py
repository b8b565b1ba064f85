"""Databases: open a store in SQLite or PostgreSQL, begin transactions, convert database errors.

A PostgreSQL database can hold the stores of many nodes, each in its own schema.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    MetaData,
    Table,
    Text,
    create_engine,
    event,
    inspect,
    make_url,
    select,
)
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry

from roamcast.durable import storage_errors, sync_folder
from roamcast.errors import ConflictError, CorruptionError, InputError, RoamcastError, StorageError

__all__ = [
    "BigSerial", "SortedText", "StoreFormat", "chunked", "meta_table", "open_postgres", "open_sqlite", "open_store",
    "read_transaction", "write_transaction",
]  # fmt: skip

T = TypeVar("T")

# SQLite assigns keys itself only if the type is plain INTEGER.
BigSerial = BigInteger().with_variant(Integer, "sqlite")
# Ordered by code point, as in Python and SQLite.
SortedText = Text().with_variant(Text(collation="C"), "postgresql")

_VERSION = "schema"  # row of `meta`
_WRITES = "roamcast_writes"
_LONGEST_SCHEMA = 63  # bytes in a schema name; PostgreSQL truncates longer ones

_PRAGMAS = (
    "PRAGMA busy_timeout = 10000",  # first, so that the others wait for locks too
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA cache_size = -65536",  # 64 MB: room for the pages of one group
    "PRAGMA wal_autocheckpoint = 16000",  # pages, 64 MB: groups for many mailboxes change the same pages repeatedly
)
# Servers can be configured not to wait for the disk; override that for our connections.
_SYNC_COMMITS = (
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)

_DISK_FULL = "the disk is full", "free some disk space; acknowledged data is safe"
_SQLITE_ERRORS = {
    sqlite3.SQLITE_FULL: _DISK_FULL,
    sqlite3.SQLITE_READONLY: ("the database is read-only", "make it writable, or choose another folder with --data"),
    sqlite3.SQLITE_CANTOPEN: ("cannot open the database", "check the owner of the data folder and the free space"),
    sqlite3.SQLITE_IOERR: ("input/output error", "check the disk and the free space"),
    sqlite3.SQLITE_BUSY: ("the database is locked by another process", "stop it: a data folder serves one node"),
}
_SQLITE_CORRUPT = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
# By prefix of PostgreSQL's SQLSTATE.
_POSTGRES_ERRORS = {
    "53100": _DISK_FULL,
    "53": ("the database is out of resources", "check the server's log"),
    "25006": ("the database is read-only", "use the URL of a server that accepts writes"),
    "28": ("the database refused the login", "check user and password in the store URL"),
    "42501": ("the database denied permission", "grant this user CREATE on the database"),
}


@dataclass(frozen=True, slots=True)
class StoreFormat:
    """The purpose of a store, its format version, its tables, and the initial rows of its `meta` table."""

    name: str
    version: str
    tables: MetaData
    initial_meta: Mapping[str, str] = field(default_factory=dict)


def meta_table(tables: MetaData) -> Table:
    columns = Column("name", SortedText, primary_key=True), Column("value", SortedText, nullable=False)
    return Table("meta", tables, *columns)


def open_store(where: Path | str, domain: str, format: StoreFormat) -> Engine:
    """Open a store of a domain: in a folder, or in the PostgreSQL database of a URL. Creates it if necessary.

    Raises StorageError, CorruptionError if it is not a roamcast store, ConflictError if it has another version.
    """
    if isinstance(where, str):
        return open_postgres(where, domain, format)
    return open_sqlite(where / f"{format.name}.sqlite", format)


def open_sqlite(path: Path, format: StoreFormat, *, create: bool = True) -> Engine:
    """Open the store in the file at `path`, or create it with access for its owner only. Raises as `open_store`.

    Without `create`, a store that does not exist is CorruptionError.
    """
    with storage_errors(path):
        if create:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            sync_folder(path.parent)
        elif not path.exists():
            raise _missing(str(path))
    # Unlimited overflow: there are never more connections than threads.
    engine = create_engine(URL.create("sqlite", database=str(path)), max_overflow=-1)

    def connect(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
        connection.isolation_level = None  # transactions begin as below, never implicitly
        for pragma in _PRAGMAS:
            connection.execute(pragma)

    event.listen(engine, "connect", connect)
    # Upgrading a read transaction to a write can fail for good, so writers lock at once.
    _set_begin(engine, read_transaction="BEGIN", write_transaction="BEGIN IMMEDIATE")
    return _prepare(engine, format, str(path), create=create)


def open_postgres(url: str, domain: str, format: StoreFormat, *, create: bool = True) -> Engine:
    """Open the store of a domain in the database at `url` (postgresql://…), or create it. Raises as `open_store`.

    Without `create`, a store that does not exist is CorruptionError. Errors do not show the password. A commit is
    durable when it returns, unless the server runs with `fsync = off`.
    """
    schema = f"roamcast_{domain}_{format.name}"
    if len(schema.encode()) > _LONGEST_SCHEMA:
        raise InputError("the domain name is too long for PostgreSQL", where=domain, hint="choose a shorter one")
    try:
        address = make_url(url).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):  # a bad port is a ValueError that may show a part of the password
        hint = "use a URL such as postgresql://user@host/database"
        raise InputError("not a database URL", where="store", hint=hint) from None
    engine = create_engine(address, max_overflow=-1, pool_pre_ping=True)

    def connect(connection: Any, _entry: ConnectionPoolEntry) -> None:
        with connection.cursor() as cursor:
            if create:
                cursor.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
            cursor.execute(f'SET search_path TO "{schema}"')
            cursor.execute(_SYNC_COMMITS)
        connection.commit()

    event.listen(engine, "connect", connect)
    _set_begin(
        engine,
        read_transaction="SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
        write_transaction=f"SELECT pg_advisory_xact_lock({zlib.crc32(schema.encode())})",
    )
    return _prepare(engine, format, schema, create=create)


@contextmanager
def read_transaction(engine: Engine) -> Iterator[Connection]:
    """A transaction that sees one consistent snapshot."""
    with _storage_errors(engine), engine.begin() as connection:
        yield connection


@contextmanager
def write_transaction(engine: Engine) -> Iterator[Connection]:
    """An exclusive write transaction. Durable when the block ends, rolled back if it raises."""
    with _storage_errors(engine), engine.execution_options(**{_WRITES: True}).begin() as connection:
        yield connection


def chunked(values: Iterable[T]) -> Iterator[list[T]]:
    """Lists of at most 500 values: databases limit the number of parameters of a statement."""
    rest = iter(values)
    while chunk := list(islice(rest, 500)):
        yield chunk


def _set_begin(engine: Engine, *, read_transaction: str, write_transaction: str) -> None:
    """Set the statements that begin read and write transactions."""

    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql(write_transaction if writes else read_transaction)

    event.listen(engine, "begin", begin)


def _prepare(engine: Engine, format: StoreFormat, where: str, *, create: bool) -> Engine:
    """Create the tables of a new store, or check the version of an existing one."""
    transaction = write_transaction if create else read_transaction
    try:
        with transaction(engine) as connection:
            _create_or_check(connection, format, where, create=create)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _create_or_check(connection: Connection, format: StoreFormat, where: str, *, create: bool) -> None:
    names = inspect(connection).get_table_names()
    meta = format.tables.tables["meta"]
    if not names:
        if not create:
            raise _missing(where)
        format.tables.create_all(connection, checkfirst=False)
        rows = {_VERSION: format.version, **format.initial_meta}
        connection.execute(meta.insert(), [{"name": name, "value": value} for name, value in rows.items()])
        return
    version = connection.scalar(select(meta.c.value).filter_by(name=_VERSION)) if meta.name in names else None
    if version is None:
        raise CorruptionError(
            "this database is not a roamcast store", where=where, hint="choose another folder with --data"
        )
    if version != format.version:
        raise ConflictError(
            f"the store has format {version}; this version of roamcast reads {format.version}",
            where=where,
            hint="use the version of roamcast that wrote it, or choose another folder with --data",
        )


def _missing(where: str) -> CorruptionError:
    return CorruptionError("the store is missing", where=where, hint="restore it from a backup")


@contextmanager
def _storage_errors(engine: Engine) -> Iterator[None]:
    """Convert database errors to RoamcastErrors with a hint."""
    try:
        yield
    except DBAPIError as error:
        raise _converted(error.orig, engine) from error
    except engine.dialect.loaded_dbapi.Error as error:  # from statements that bypass SQLAlchemy
        raise _converted(error, engine) from error


def _converted(error: BaseException | None, engine: Engine) -> RoamcastError:
    where = str(engine.url.database)
    if isinstance(error, engine.dialect.loaded_dbapi.IntegrityError):
        return ConflictError(f"integrity error: {error}", where=where, hint="it conflicts with stored data")
    if engine.dialect.name != "sqlite":
        state = getattr(error, "sqlstate", None) or ""
        message, hint = next(
            (known for prefix, known in _POSTGRES_ERRORS.items() if state.startswith(prefix)),
            (f"database error: {error}", "check that the server is running, and the store URL"),
        )
        return StorageError(message, where=where, hint=hint)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the primary code
    if code in _SQLITE_CORRUPT:
        return CorruptionError(f"not a readable database: {error}", where=where, hint="restore it from a backup")
    message, hint = _SQLITE_ERRORS.get(code, (f"database error: {error}", "check the data folder"))
    return StorageError(message, where=where, hint=hint)
