"""Plain SQL on the connection of a transaction. SQLAlchemy costs far more per statement than SQLite itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain
from typing import Any

from sqlalchemy import Connection

from roamcast.store.engine import chunked

__all__ = ["Session"]

_BLOCK = 250  # rows in a statement of SQLite


class Session:
    """Runs SQL with `?` parameters. Statements must not contain `%` or any other `?`.

    `wrote` tells whether a statement may have changed something.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection.connection
        self._cursor = self._connection.cursor()
        self._is_sqlite = connection.dialect.name == "sqlite"
        self._translate = str if self._is_sqlite else _for_psycopg
        self.wrote = False

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        self._cursor.execute(self._translate(sql), parameters)
        return self._cursor.fetchall()  # type: ignore[return-value]  # both drivers return plain tuples

    @contextmanager
    def reading(self, sql: str, *parameters: Any) -> Iterator[Iterable[tuple[Any, ...]]]:
        """Rows to iterate over inside the block, which need not read all of them."""
        cursor = self._connection.cursor()
        try:
            cursor.execute(self._translate(sql), parameters)
            yield cursor  # type: ignore[misc]  # both drivers' cursors are iterable
        finally:
            cursor.close()

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
        """Execute a statement once for each row of parameters. Returns the number of changed rows.

        SQLite executes a statement with one VALUES (?, …) for many rows at a time: for each execution, Python gives up
        its global lock and gets it back, which takes long while other threads want it.
        """
        if not rows:
            return 0
        self.wrote = True
        changed = done = 0
        if self._is_sqlite and (block := _for_block(sql)) is not None:
            for done in range(_BLOCK, len(rows) + 1, _BLOCK):
                self._cursor.execute(block, list(chain.from_iterable(rows[done - _BLOCK : done])))
                changed += self._cursor.rowcount
        if done < len(rows):
            self._cursor.executemany(self._translate(sql), rows[done:])
            changed += self._cursor.rowcount
        return changed


@cache
def _for_block(sql: str) -> str | None:
    """The statement for `_BLOCK` rows; None if it is not one with VALUES for a single row."""
    head, values, tail = sql.partition("VALUES (?")
    if not values:
        return None
    marks, _, tail = tail.partition(")")
    return f"{head}VALUES {', '.join([f'(?{marks})'] * _BLOCK)}{tail}"


@cache
def _for_psycopg(sql: str) -> str:
    return sql.replace("?", "%s")


@cache
def _marks(count: int) -> str:
    return ",".join("?" * count)
