"""Credentials of subscribers that have arrived here: of other domains, or back at their home."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import Engine, select

from roamcast.store.engine import read_transaction, write_transaction
from roamcast.store.registry.schema import departures, visitors

__all__ = ["Departure", "SqlVisitors", "Visitor"]


class Visitor(NamedTuple):
    """The last arrival of a visitor: epoch, move proof, hash of its secret, and hash of its token here, if any."""

    name: str
    epoch: int
    move_proof: str
    secret_hash: str
    token_hash: str | None = None


class Departure(NamedTuple):
    """The last token of a visitor that has left, the office that got its mailbox, and the epoch."""

    name: str
    token_hash: str
    office: str
    epoch: int


class SqlVisitors:
    """Uses the database of the registry. Every change is durable when the method returns. Raises StorageError."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def all(self) -> Iterator[Visitor]:
        with read_transaction(self._engine) as connection:
            rows = connection.execute(select(visitors)).all()
        return (Visitor(*row) for row in rows)

    def put(self, visitor: Visitor) -> None:
        """Add a visitor, or replace it."""
        with write_transaction(self._engine) as connection:
            connection.execute(visitors.delete().filter_by(name=visitor.name))
            connection.execute(visitors.insert(), visitor._asdict())

    def departures(self) -> Iterator[Departure]:
        with read_transaction(self._engine) as connection:
            rows = connection.execute(select(departures)).all()
        return (Departure(*row) for row in rows)

    def remove(self, name: str, departure: Departure | None = None) -> None:
        """Remove a visitor. Its departure, if given, replaces an earlier one."""
        with write_transaction(self._engine) as connection:
            connection.execute(visitors.delete().filter_by(name=name))
            if departure is not None:
                connection.execute(departures.delete().filter_by(name=name))
                connection.execute(departures.insert(), departure._asdict())
