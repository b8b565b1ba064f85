"""Kinds of stores: what tells one of ours from others, and the types of columns that all share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Connection, Integer, MetaData, Table, Text, inspect, select

from roamcast.errors import ConflictError, CorruptionError

__all__ = ["BigSerial", "Kind", "Name", "meta_of", "prepare"]

_SCHEMA = "schema"

# SQLite counts up a key by itself only if its type is plain INTEGER.
BigSerial = BigInteger().with_variant(Integer, "sqlite")
# Ordered by code point, as Python and SQLite do it.
Name = Text().with_variant(Text(collation="C"), "postgresql")


@dataclass(frozen=True, slots=True)
class Kind:
    """What a store is for, its format, its tables, and what its `meta` begins with."""

    name: str
    format: str
    tables: MetaData
    first: Mapping[str, str]


def meta_of(tables: MetaData) -> Table:
    return Table("meta", tables, Column("name", Name, primary_key=True), Column("value", Name, nullable=False))


def prepare(connection: Connection, kind: Kind, where: str) -> None:
    """Make the tables of a new store; see that an old one is of this version.

    Raises CorruptionError for a database that is not a store, ConflictError for a store of another version.
    """
    names = inspect(connection).get_table_names()
    meta = kind.tables.tables["meta"]
    if not names:
        kind.tables.create_all(connection, checkfirst=False)
        first = {_SCHEMA: kind.format, **kind.first}
        connection.execute(meta.insert(), [{"name": name, "value": value} for name, value in first.items()])
        return
    format = connection.scalar(select(meta.c.value).filter_by(name=_SCHEMA)) if meta.name in names else None
    if format is None:
        raise CorruptionError(
            "a database, but not a store of ours", where=where, hint="choose another folder with --data"
        )
    if format != kind.format:
        raise ConflictError(
            f"the store has format {format}; this roamcast reads {kind.format}",
            where=where,
            hint="use the roamcast that wrote it, or choose another folder with --data",
        )
