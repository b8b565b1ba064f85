"""Subscribers of other domains that are served here, or were: how they are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import Engine, select

from roamcast.store.engine import reading, writing
from roamcast.store.registry.schema import departures, visitors

__all__ = ["Departure", "SqlVisitors", "Visitor"]


class Visitor(NamedTuple):
    """The epoch of its last arrival with the warrant and the hash of the secret it came with; and the hash of the token
    it was given here, if any.
    """

    name: str
    epoch: int
    warrant: str
    secret_hash: str
    token_hash: str | None = None


class Departure(NamedTuple):
    """The last token of one that has left, the office its mailbox was given to, and the epoch."""

    name: str
    token_hash: str
    office: str
    epoch: int


class SqlVisitors:
    """The engine is that of the registry. Every change is durable when it returns; raises StorageError."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def all(self) -> Iterator[Visitor]:
        with reading(self._engine) as connection:
            rows = connection.execute(select(visitors)).all()
        return (Visitor(*row) for row in rows)

    def put(self, visitor: Visitor) -> None:
        """Add it, or replace what was known of it."""
        with writing(self._engine) as connection:
            connection.execute(visitors.delete().filter_by(name=visitor.name))
            connection.execute(visitors.insert(), visitor._asdict())

    def departures(self) -> Iterator[Departure]:
        with reading(self._engine) as connection:
            rows = connection.execute(select(departures)).all()
        return (Departure(*row) for row in rows)

    def remove(self, name: str, departure: Departure | None = None) -> None:
        """With its departure, which replaces an earlier one."""
        with writing(self._engine) as connection:
            connection.execute(visitors.delete().filter_by(name=name))
            if departure is not None:
                connection.execute(departures.delete().filter_by(name=name))
                connection.execute(departures.insert(), departure._asdict())
