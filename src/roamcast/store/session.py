"""Plain SQL on the connection of a transaction. SQLAlchemy costs far more per statement than SQLite itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Connection

from roamcast.store.engine import chunked

__all__ = ["Session"]


class Session:
    """Runs SQL with `?` parameters. Statements must not contain `%` or any other `?`.

    `wrote` tells whether a statement may have changed something.
    """

    def __init__(self, connection: Connection) -> None:
        self._cursor = connection.connection.cursor()
        self._translate = _for_psycopg if connection.dialect.name == "postgresql" else str
        self.wrote = False

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        self._cursor.execute(self._translate(sql), parameters)
        return self._cursor.fetchall()  # type: ignore[return-value]  # both drivers return plain tuples

    def rows_among(self, sql: str, values: Iterable[Any]) -> list[tuple[Any, ...]]:
        """The rows for any of the values. `sql` must end with IN."""
        return [row for chunk in chunked(values) for row in self.rows(f"{sql} ({_marks(len(chunk))})", *chunk)]

    def row(self, sql: str, *parameters: Any) -> tuple[Any, ...] | None:
        self._cursor.execute(self._translate(sql), parameters)
        return self._cursor.fetchone()

    def run(self, sql: str, *parameters: Any) -> int:
        """Execute a statement. Returns the number of changed rows."""
        self.wrote = True
        self._cursor.execute(self._translate(sql), parameters)
        return self._cursor.rowcount

    def run_all(self, sql: str, rows: Sequence[Sequence[Any]]) -> int:
        """Execute a statement once for each row of parameters. Returns the number of changed rows."""
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
