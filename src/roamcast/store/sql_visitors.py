"""Subscribers of other domains that are served here: how they are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import BigInteger, Column, Engine, LargeBinary, MetaData, Table, Text, select

from roamcast.store.engine import reading, writing

__all__ = ["SqlVisitors", "Visitor"]

_all = MetaData()
_visitors = Table(
    "visitors",
    _all,
    Column("name", Text, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("link", LargeBinary, nullable=False),
    Column("token_hash", Text),  # none until its mailbox is here
    sqlite_with_rowid=False,
)


class Visitor(NamedTuple):
    """The epoch of its last arrival, the link of its warrant, and the hash of the token it was given here, if any."""

    name: str
    epoch: int
    link: bytes
    token_hash: str | None = None


class SqlVisitors:
    """The engine may be shared with other stores. Every change is durable when it returns; raises StorageError."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        with writing(engine) as connection:
            _all.create_all(connection)

    def all(self) -> Iterator[Visitor]:
        with reading(self._engine) as connection:
            rows = connection.execute(select(_visitors)).all()
        return (Visitor(*row) for row in rows)

    def put(self, visitor: Visitor) -> None:
        """Add it, or replace what was known of it."""
        with writing(self._engine) as connection:
            connection.execute(_visitors.delete().filter_by(name=visitor.name))
            connection.execute(_visitors.insert(), visitor._asdict())

    def remove(self, name: str) -> None:
        with writing(self._engine) as connection:
            connection.execute(_visitors.delete().filter_by(name=name))
