"""Stores in PostgreSQL: one database may hold those of many nodes, each in a schema of its own."""

from __future__ import annotations

import zlib
from typing import Any

from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import ConnectionPoolEntry

from roamcast.errors import InputError
from roamcast.store.engine import begins, opened
from roamcast.store.kinds import Kind

__all__ = ["open_postgres"]

_LONGEST = 63  # bytes in the name of a schema; PostgreSQL cuts off the rest


def open_postgres(url: str, domain: str, kind: Kind) -> Engine:
    """The store of a domain in the database at `url` (postgresql://…), made if it is not there.

    A commit is on disk when it returns, if the server is left to its default `fsync = on`.
    Raises StorageError when the database refuses, ConflictError for a store of another version.
    """
    schema = f"roamcast_{domain}_{kind.name}"
    if len(schema.encode()) > _LONGEST:
        raise InputError("the domain's name is too long for PostgreSQL", where=domain, hint="choose a shorter one")
    try:
        address = make_url(url).set(drivername="postgresql+psycopg")
    except ArgumentError as error:
        hint = "give one such as postgresql://user@host/database"
        raise InputError(f"not the URL of a database: {error}", where="store", hint=hint) from error
    engine = create_engine(address, max_overflow=-1, pool_pre_ping=True)

    def connected(connection: Any, _entry: ConnectionPoolEntry) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
            cursor.execute(f'SET search_path TO "{schema}"')
            cursor.execute(_SYNCED)
        connection.commit()

    event.listen(engine, "connect", connected)
    begins(
        engine,
        reading="SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
        writing=f"SELECT pg_advisory_xact_lock({zlib.crc32(schema.encode())})",
    )
    return opened(engine, kind, schema)


# A server may be told not to wait for its disk; we are not to be.
_SYNCED = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
