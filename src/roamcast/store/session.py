"""Plain SQL on the connection of a transaction: per statement, SQLAlchemy costs far more than SQLite does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection

from roamcast.store.engine import portions

__all__ = ["Session"]


class Session:
    """Parameters are marked `?`; statements have no other `?` and no `%`. `wrote`: something may have been changed."""

    def __init__(self, connection: Connection) -> None:
        self._cursor = connection.connection.cursor()
        self._translate = _for_psycopg if connection.dialect.name == "postgresql" else str
        self.wrote = False

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        self._cursor.execute(self._translate(sql), parameters)
        return self._cursor.fetchall()  # type: ignore[return-value]  # both drivers give plain tuples

    def rows_among(self, sql: str, values: Iterable[Any]) -> list[tuple[Any, ...]]:
        """What `sql`, which ends with IN, finds for all the values."""
        return [row for some in portions(values) for row in self.rows(f"{sql} ({_marks(len(some))})", *some)]

    def row(self, sql: str, *parameters: Any) -> tuple[Any, ...] | None:
        self._cursor.execute(self._translate(sql), parameters)
        return self._cursor.fetchone()

    def run(self, sql: str, *parameters: Any) -> int:
        """How many rows it changed."""
        self.wrote = True
        self._cursor.execute(self._translate(sql), parameters)
        return self._cursor.rowcount

    def run_all(self, sql: str, rows: Sequence[Sequence[Any]]) -> int:
        """The same for each row of parameters, in one go."""
        if not rows:
            return 0
        self.wrote = True
        self._cursor.executemany(self._translate(sql), rows)
        return self._cursor.rowcount


@cache
def _for_psycopg(sql: str) -> str:
    return sql.replace("?", "%s")


@cache
def _marks(count: int) -> str:
    return ",".join("?" * count)
