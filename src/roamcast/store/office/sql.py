"""The store of an office in a database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine

from roamcast.deliver.port import PendingWork, WorkKind
from roamcast.errors import StorageError
from roamcast.store.engine import open_store, write_transaction
from roamcast.store.office.letters import LetterTables
from roamcast.store.office.queue import QueueTables
from roamcast.store.office.schema import OFFICE_FORMAT
from roamcast.store.session import Session

__all__ = ["SqlOfficeStore", "open_office"]


def open_office(where: Path | str, domain: str) -> SqlOfficeStore:
    """Open the store of a domain's post office, in a folder or a PostgreSQL database. Raises as `open_store`.

    It is separate from the registry, so that neither waits for the other's write transactions.
    """
    return SqlOfficeStore(open_store(where, domain, OFFICE_FORMAT))


class SqlOfficeStore(LetterTables, QueueTables):
    """An OfficeStore.

    Everything but the letters is cached. A transaction writes its changes at its end, many rows per statement. A
    counter of changes in the database shows whether another process has written to it since.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine
        self._changes = -1

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        try:
            with write_transaction(self._engine) as connection:
                self._open = Session(connection)
                self._begin()
                yield
                self._finish()
        except BaseException as error:
            self._forget()
            if isinstance(error, StorageError):
                self._sweep_all = True
            raise
        finally:
            self._open = None
        self._limit_cache()

    def pending_work(self) -> list[PendingWork]:
        self._flush_accounts()
        return [PendingWork(kind, name) for kind, sql in _PENDING_WORK.items() for (name,) in self._session.rows(sql)]

    def _begin(self) -> None:
        sql = "SELECT changes, mailboxes, live, dead, swept FROM counters"
        row = self._session.row(sql) or (0, 0, 0, 0, 0)
        if row[0] != self._changes:
            self._forget()
            self._changes, self._mailbox_count, self._live, self._deleted_rows, self._swept = row

    def _finish(self) -> None:
        self._flush_accounts()
        self._flush_letters()
        if not self._session.wrote:
            return
        self._sweep()
        counters = (self._changes + 1, self._mailbox_count, self._live, self._deleted_rows, self._swept)
        self._session.run(_PUT_COUNTERS, *counters)
        self._changes += 1

    def _forget(self) -> None:
        self._changes = -1
        self._forget_accounts()
        self._forget_letters()
        self._forget_queue()


_PUT_COUNTERS = """
    INSERT INTO counters (id, changes, mailboxes, live, dead, swept) VALUES (1, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET changes = excluded.changes, mailboxes = excluded.mailboxes, live = excluded.live,
    dead = excluded.dead, swept = excluded.swept"""
_PENDING_WORK = {
    WorkKind.POST: "SELECT DISTINCT receiver FROM queue",
    WorkKind.HAND_OVER: "SELECT name FROM tenures WHERE leaving IS NOT NULL",
    WorkKind.NOTIFY: "SELECT name FROM tenures WHERE unnotified IS NOT NULL",
    WorkKind.CLAIM: "SELECT name FROM claims",
}
