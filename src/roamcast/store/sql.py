"""The stores in a database: files of SQLite in a folder, or PostgreSQL."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Engine

from roamcast.store.engine import open_sqlite
from roamcast.store.kinds import Kind
from roamcast.store.office.schema import OFFICE
from roamcast.store.office.sql import SqlOfficeStore
from roamcast.store.postgres import open_postgres
from roamcast.store.registry.schema import REGISTRY
from roamcast.store.registry.sql import SqlRegistry

__all__ = ["SqlOfficeStore", "SqlRegistry", "open_office", "open_registry", "open_sqlite"]


def open_registry(where: Path | str, domain: str) -> SqlRegistry:
    """The registry of a domain: in its folder, or in the PostgreSQL database that a URL names. Made if need be.

    Raises StorageError when the disk or the database refuses, CorruptionError for what is not a store of ours,
    ConflictError for a store of another version.
    """
    return SqlRegistry(_open(where, domain, REGISTRY))


def open_office(where: Path | str, domain: str) -> SqlOfficeStore:
    """What the post office of a domain keeps, as with `open_registry`. Beside it, in a file of its own: neither waits
    for the other's turn to write.
    """
    return SqlOfficeStore(_open(where, domain, OFFICE))


def _open(where: Path | str, domain: str, kind: Kind) -> Engine:
    if isinstance(where, str):
        return open_postgres(where, domain, kind)
    return open_sqlite(where / f"{kind.name}.sqlite", kind)
