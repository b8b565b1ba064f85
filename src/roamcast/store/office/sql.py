"""The store of an office in a database: its transactions, and the letters in its mailboxes.

A letter that is acknowledged, or whose mailbox is dropped, is deleted: it is no longer visible, but its row stays until
a sweep removes it. Sweeps visit rows in insertion order, a bounded number at a time. Removing all rows of a mailbox at
once would touch nearly one page per letter, because they were inserted at different times.

A letter is found by sender and number without an index over all letters, which would slow down every insertion. A
sender's letters get offsets in the order of their numbers. So consecutive offsets of one sender (a run) have
consecutive numbers, and one known letter of a run gives the offsets of all others. Only letters that may start a run
are indexed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from roamcast.deliver.port import (
    Bookkeeping,
    FiledLetter,
    FilingPlan,
    LetterKey,
    PendingWork,
    WorkKind,
    take_fitting,
)
from roamcast.errors import StorageError
from roamcast.model import Letter
from roamcast.ranges import Ranges
from roamcast.store.engine import open_store, write_transaction
from roamcast.store.office.accounts import AccountTables, LetterRun, MailboxRow
from roamcast.store.office.queue import QueueTables
from roamcast.store.office.schema import OFFICE_FORMAT
from roamcast.store.session import Session

__all__ = ["SqlOfficeStore", "open_office"]

_SLACK = 100_000  # deleted letters whose rows are tolerated beyond the number of live ones
_SWEEP_ROWS = 1_000  # rows to visit in a sweep, plus four for each letter acknowledged


def open_office(where: Path | str, domain: str) -> SqlOfficeStore:
    """Open the store of a domain's post office, in a folder or a PostgreSQL database. Raises as `open_store`.

    It is separate from the registry, so that neither waits for the other's write transactions.
    """
    return SqlOfficeStore(open_store(where, domain, OFFICE_FORMAT))


class SqlOfficeStore(AccountTables, QueueTables):
    """An OfficeStore.

    Everything but the letters is cached. A transaction writes its changes at its end, many rows per statement. A
    counter of changes in the database shows whether another process has written to it since.

    New letters are kept until `_flush_letters`, which runs before every read. `_live` and `_deleted_rows` count the
    rows of live and of deleted letters in all mailboxes. `_swept` is the progress of the current sweep: the id of the
    last row visited.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine
        self._changes = -1
        self._filed: list[tuple[Any, ...]] = []
        self._released: list[tuple[Any, ...]] = []
        self._acknowledged_count = 0  # in this transaction
        self._live = 0
        self._deleted_rows = 0
        self._swept = 0
        self._sweep_all = False  # sweep until no deleted row is left: the disk is full, or a mailbox was erased

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

    def file(self, plan: FilingPlan) -> None:
        rows: dict[str, MailboxRow] = {}
        for (name, sender), numbers in plan.received.items():
            row = rows.get(name)
            if row is None:
                row = rows[name] = self._mailbox_row(name)
                self._mark_changed(row)
            row.mailbox.received[sender] = self._changed_received[row.id, sender] = numbers
        for name, next_offset in plan.next_offsets.items():
            rows[name].mailbox.next_offset = next_offset
        for letter, offset in plan.filed:
            row = rows[letter.receiver]
            starts_run = None
            if offset is None:
                row.held += 1
            else:
                row.readable += 1
                run, number = row.run, letter.number
                shift = offset - number
                if run is None or letter.sender != run[0] or shift != run[1] or number < run[2]:
                    row.run = letter.sender, shift, number
                    starts_run = True
            self._filed.append((row.id, offset, *letter[1:], starts_run))
        for name, sender, first, last, offset in plan.released:
            row = rows[name]
            count = last - first + 1
            row.held -= count
            row.readable += count
            self._released.append((offset - first, row.id, sender, first, last))
        self._live += len(plan.filed)

    def add_letters(self, name: str, letters: Iterable[FiledLetter]) -> None:
        row, session = self._mailbox_row(name), self._session
        self._flush_letters()
        readable: list[tuple[Any, ...]] = []
        held: list[tuple[Any, ...]] = []
        run: LetterRun | None = None
        for letter, offset in letters:
            if offset is None:
                held.append((row.id, offset, *letter[1:], None))
            else:
                last, run = run, (letter.sender, offset - letter.number, 0)
                readable.append((row.id, offset, *letter[1:], True if run != last else None))
        before = row.readable + row.held
        row.readable += len(readable) - session.run_all(_DELETE_READABLE, [values[:2] for values in readable])
        row.held += len(held) - session.run_all(_DELETE_HELD, [(values[0], *values[2:4]) for values in held])
        self._live += row.readable + row.held - before
        session.run_all(_INSERT, readable + held)
        row.run = None
        self._mark_changed(row)

    def readable(self, name: str, after: int, limit: int, size: int | None = None) -> list[FiledLetter]:
        row = self._account(name).row
        if row is None or not row.readable:
            return []
        return self._select(row, name, _READABLE, max(after, row.acknowledged), limit, size=size)

    def held(self, name: str, after: LetterKey, limit: int) -> list[FiledLetter]:
        row = self._account(name).row
        return [] if row is None or not row.held else self._select(row, name, _HELD, *after, limit)

    def overdue(self, name: str, now: int) -> list[FiledLetter]:
        row = self._account(name).row
        return [] if row is None or not row.readable else self._select(row, name, _OVERDUE, now, row.acknowledged)

    def letter(self, name: str, key: LetterKey) -> FiledLetter | None:
        """Search the letters held back, then the readable ones."""
        row = self._account(name).row
        if row is None:
            return None
        held = self._select(row, name, _HELD_ONE, *key)
        if held:
            return held[0]
        # The start of the run that has it or, if that letter is deleted, the first letter of the mailbox.
        candidates = self._select(row, name, _RUN_START, *key)
        candidates += self.readable(name, 0, 1)
        for other, offset in candidates:
            if other.sender == key.sender and offset is not None:
                expected = offset + key.number - other.number
                letters = self.readable(name, expected - 1, 1)
                if letters and (letters[0].letter.sender, letters[0].letter.number) == key:
                    return letters[0]
        return None

    def acknowledge(self, name: str, through: int) -> int:
        row = self._mailbox_row(name)
        if through <= row.acknowledged:
            return 0
        count = self._count_readable(row, through)
        row.acknowledged = through
        row.readable -= count
        self._mark_changed(row)
        self._acknowledged_count += count
        self._mark_deleted(count)
        return count

    def expire(self, name: str, letters: Sequence[FiledLetter]) -> None:
        row, session = self._mailbox_row(name), self._session
        self._flush_letters()
        deleted = session.run_all(_DELETE_READABLE, [(row.id, offset) for _, offset in letters])
        session.run_all(_START_RUN, [(row.id, offset + 1) for _, offset in letters if offset is not None])
        for letter, _ in letters:
            row.expired[letter.sender] = row.expired.get(letter.sender, Ranges()).add(letter.number)
        row.readable -= deleted
        row.run = None
        self._live -= deleted
        self._mark_changed(row)

    def put_bookkeeping(self, name: str, bookkeeping: Bookkeeping) -> None:
        row = self._account(name).row
        if row is not None and bookkeeping.acknowledged < row.acknowledged:
            # Remove the rows of deleted letters, which a lower `acknowledged` would make visible again.
            self._flush_letters()
            self._deleted_rows -= self._session.run(_DELETE_ACKNOWLEDGED, row.id, row.acknowledged)
        self._replace_bookkeeping(name, bookkeeping)

    def drop_mailbox(self, name: str) -> None:
        self._flush_letters()
        row = self._drop_account(name)
        if row is not None:
            self._mark_deleted(row.readable + row.held)

    def erase_mailbox(self, name: str) -> None:
        """Remove the rows of all letters now, deleted or live. Letters of earlier stays go with the next sweeps."""
        self._flush_letters()
        row = self._drop_account(name)
        if row is None:
            return
        alive = row.readable + row.held
        deleted = self._session.run("DELETE FROM letters WHERE mailbox = ? AND mailbox_offset IS NOT NULL", row.id)
        deleted += self._session.run("DELETE FROM letters WHERE mailbox = ? AND mailbox_offset IS NULL", row.id)
        self._live -= alive
        self._deleted_rows -= deleted - alive
        self._sweep_all = True

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
        self._filed.clear()
        self._released.clear()
        self._acknowledged_count = 0
        self._forget_queue()

    def _mark_deleted(self, count: int) -> None:
        self._live -= count
        self._deleted_rows += count

    def _flush_letters(self) -> None:
        if self._filed:
            self._session.run_all(_INSERT, self._filed)
            self._filed.clear()
        if self._released:
            self._session.run_all(_RELEASE, self._released)
            self._released.clear()

    def _sweep(self) -> None:
        """Remove some rows of deleted letters if there are many. The cost is bounded by that of the transaction.

        A dropped mailbox may leave very many of them. They are removed gradually, so that nobody has to wait.
        """
        count, self._acknowledged_count = _SWEEP_ROWS + 4 * self._acknowledged_count, 0
        if self._deleted_rows <= (0 if self._sweep_all else self._live + _SLACK):
            self._sweep_all = False
            return
        row = self._session.row(_SWEEP_END, self._swept, count)
        end = row[0] if row else None
        if end is None:
            self._swept = 0
        else:
            self._deleted_rows -= self._session.run(_SWEEP, self._swept, end)
            self._swept = end

    def _count_readable(self, row: MailboxRow, through: int) -> int:
        """How many letters are readable up to an offset. No statement is needed if no offset is without a letter."""
        end = row.mailbox.next_offset - 1
        if row.readable == end - row.acknowledged:
            return min(through, end) - row.acknowledged
        self._flush_letters()
        counted = self._session.row(_COUNT, row.id, row.acknowledged, through)
        return int(counted[0]) if counted else 0

    def _select(
        self, row: MailboxRow, name: str, sql: str, *parameters: Any, size: int | None = None
    ) -> list[FiledLetter]:
        self._flush_letters()
        with self._session.reading(sql, row.id, *parameters) as cursor:
            rows = take_fitting(cursor, size, _body_of)
        # Hot path of pulls: Letter is built from the columns by position.
        return [FiledLetter(Letter(name, *values[1:]), values[0]) for values in rows]


_body_of = itemgetter(3)

_INSERT = """
    INSERT INTO letters (mailbox, mailbox_offset, sender, number, body, title, office, sent, expires, starts_run)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_RELEASE = """
    UPDATE letters SET mailbox_offset = number + ?
    WHERE mailbox = ? AND sender = ? AND number BETWEEN ? AND ? AND mailbox_offset IS NULL"""
_DELETE_READABLE = "DELETE FROM letters WHERE mailbox = ? AND mailbox_offset = ?"
_DELETE_HELD = "DELETE FROM letters WHERE mailbox = ? AND sender = ? AND number = ? AND mailbox_offset IS NULL"
_DELETE_ACKNOWLEDGED = "DELETE FROM letters WHERE mailbox = ? AND mailbox_offset <= ?"
_LETTERS = "SELECT mailbox_offset, sender, number, body, title, office, sent, expires FROM letters WHERE mailbox = ?"
_READABLE = f"{_LETTERS} AND mailbox_offset > ? ORDER BY mailbox_offset LIMIT ?"
_HELD = f"{_LETTERS} AND mailbox_offset IS NULL AND (sender, number) > (?, ?) ORDER BY sender, number LIMIT ?"
# The plus keeps SQLite from scanning all readable letters.
_OVERDUE = f"{_LETTERS} AND mailbox_offset IS NOT NULL AND expires <= ? AND +mailbox_offset > ? ORDER BY mailbox_offset"
_HELD_ONE = f"{_LETTERS} AND mailbox_offset IS NULL AND sender = ? AND number = ?"
_RUN_START = f"{_LETTERS} AND starts_run IS NOT NULL AND sender = ? AND number <= ? ORDER BY number DESC LIMIT 1"
_START_RUN = "UPDATE letters SET starts_run = TRUE WHERE mailbox = ? AND mailbox_offset = ?"
_COUNT = "SELECT count(*) FROM letters WHERE mailbox = ? AND mailbox_offset > ? AND mailbox_offset <= ?"
_SWEEP_END = "SELECT max(id) FROM (SELECT id FROM letters WHERE id > ? ORDER BY id LIMIT ?) AS visited"
_SWEEP = """
    DELETE FROM letters WHERE id > ? AND id <= ? AND NOT EXISTS (
        SELECT 1 FROM mailboxes WHERE mailboxes.id = letters.mailbox
        AND (letters.mailbox_offset IS NULL OR letters.mailbox_offset > mailboxes.acknowledged))"""
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
