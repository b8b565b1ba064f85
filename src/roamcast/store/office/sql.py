"""What an office must not forget, in a database."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from sqlalchemy import Engine

from roamcast.deliver.letters import Key
from roamcast.deliver.mailbox import Filed, Mailbox, Receipt
from roamcast.deliver.pending_work import Duty, Kind
from roamcast.deliver.port import Claimed, Contents, Load, Tenure, Whereabouts
from roamcast.errors import StorageError
from roamcast.model import Letter
from roamcast.store.engine import writing
from roamcast.store.office.accounts import Accounts
from roamcast.store.office.letters import Letters
from roamcast.store.office.queue import Queue
from roamcast.store.session import Session

__all__ = ["SqlOfficeStore"]


class SqlOfficeStore:
    """An OfficeStore.

    All but the letters is remembered, and a transaction writes what it has changed at its end, many rows to a
    statement. A count of changes in the database tells whether somebody else has written to it since.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._accounts = Accounts()
        self._letters = Letters(self._accounts)
        self._queue = Queue()
        self._changes = -1
        self._open: Session | None = None

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        try:
            with writing(self._engine) as connection:
                self._open = Session(connection)
                self._begin(self._open)
                yield
                self._finish(self._open)
        except BaseException as error:
            self._forget()
            if isinstance(error, StorageError):
                self._letters.short = True
            raise
        finally:
            self._open = None
        self._accounts.shrink()

    @property
    def _session(self) -> Session:
        if self._open is None:
            raise RuntimeError("only inside a transaction")
        return self._open

    def _begin(self, session: Session) -> None:
        row = session.row("SELECT changes, boxes, live, dead, swept FROM ledger") or (0, 0, 0, 0, 0)
        if row[0] != self._changes:
            self._forget()
            self._changes, self._accounts.boxes, self._letters.live, self._letters.dead, self._letters.swept = row

    def _finish(self, session: Session) -> None:
        letters = self._letters
        self._accounts.flush(session)
        letters.flush(session)
        if not session.wrote:
            return
        letters.sweep(session)
        ledger = (self._changes + 1, self._accounts.boxes, letters.live, letters.dead, letters.swept)
        session.run(_LEDGER, *ledger)
        self._changes += 1

    def _forget(self) -> None:
        self._changes = -1
        for part in (self._accounts, self._letters, self._queue):
            part.forget()

    # Where subscribers are.

    def whereabouts(self, name: str) -> Whereabouts | None:
        return self._accounts.get(self._session, name).whereabouts

    def put_whereabouts(self, whereabouts: Whereabouts) -> None:
        self._accounts.put_whereabouts(self._session, whereabouts)

    # Mailboxes.

    def tenures(self, names: Collection[str]) -> Mapping[str, Tenure]:
        accounts = self._accounts.load(self._session, names)
        return {name: tenure for name in names if (tenure := accounts[name].tenure) is not None}

    def put_tenure(self, tenure: Tenure) -> None:
        self._accounts.put_tenure(self._session, tenure)

    def drop_tenure(self, name: str) -> None:
        self._letters.flush(self._session)
        box = self._accounts.drop_tenure(self._session, name)
        if box is not None:
            self._letters.bury(box.readable + box.held)

    def erase(self, name: str) -> None:
        self._letters.flush(self._session)
        box = self._accounts.drop_tenure(self._session, name)
        if box is not None:
            self._letters.erase(self._session, box)

    def mailboxes(self, names: Collection[str]) -> Mapping[str, Mailbox]:
        accounts = self._accounts.load(self._session, names)
        return {name: box.mailbox for name in names if (box := accounts[name].box) is not None}

    def contents(self, name: str) -> Contents:
        return self._accounts.contents(self._session, name)

    def put_contents(self, name: str, contents: Contents) -> None:
        box = self._accounts.get(self._session, name).box
        if box is not None and contents.acknowledged < box.acknowledged:
            self._letters.revive(self._session, box)
        self._accounts.put_contents(self._session, name, contents)

    def acknowledged(self, name: str) -> int:
        box = self._accounts.get(self._session, name).box
        return 0 if box is None else box.acknowledged

    def add_contents(self, name: str, part: Contents) -> None:
        self._accounts.add_contents(self._session, name, part)

    def loads(self, names: Collection[str]) -> Mapping[str, Load]:
        accounts = self._accounts.load(self._session, names)
        boxes = ((name, accounts[name].box) for name in names)
        return {name: _NO_LOAD if box is None else Load(box.readable, box.held) for name, box in boxes}

    def file(self, receipt: Receipt) -> None:
        self._letters.file(self._session, receipt)

    def add(self, name: str, letters: Iterable[Filed]) -> None:
        self._letters.add(self._session, name, list(letters))

    def readable(self, name: str, after: int, limit: int) -> list[Filed]:
        return self._letters.readable(self._session, name, after, limit)

    def held(self, name: str, after: Key, limit: int) -> list[Filed]:
        return self._letters.held(self._session, name, after, limit)

    def overdue(self, name: str, now: int) -> list[Filed]:
        return self._letters.overdue(self._session, name, now)

    def letter(self, name: str, key: Key) -> Filed | None:
        return self._letters.letter(self._session, name, key)

    def acknowledge(self, name: str, through: int) -> int:
        return self._letters.acknowledge(self._session, name, through)

    def expire(self, name: str, letters: Sequence[Filed]) -> None:
        self._letters.expire(self._session, name, letters)

    def sent(self, sender: str, receiver: str) -> int:
        return self._accounts.sent(self._session, sender, receiver)

    def put_sent(self, sender: str, receiver: str, number: int) -> None:
        self._accounts.put_sent(self._session, sender, receiver, number)

    # Letters to be posted, and arrivals.

    def enqueue(self, letters: Iterable[Letter]) -> None:
        self._queue.enqueue(self._session, letters)

    def queued(self, receiver: str, after: Key, limit: int) -> list[Letter]:
        return self._queue.queued(self._session, receiver, after, limit)

    def queue_length(self, receiver: str) -> int:
        return self._queue.length(self._session, receiver)

    def unposted(self, sender: str) -> int:
        return self._queue.unposted(self._session, sender)

    def dequeue(self, receiver: str, keys: Iterable[Key]) -> list[Letter]:
        return self._queue.dequeue(self._session, receiver, keys)

    def claimed(self, name: str) -> Claimed | None:
        return self._queue.claimed(self._session, name)

    def put_claimed(self, claimed: Claimed) -> None:
        self._queue.put_claimed(self._session, claimed)

    def drop_claimed(self, name: str) -> None:
        self._queue.drop_claimed(self._session, name)

    def duties(self) -> list[Duty]:
        session = self._session
        self._accounts.flush(session)
        return [Duty(kind, name) for kind, sql in _DUTIES.items() for (name,) in session.rows(sql)]


_NO_LOAD = Load(0, 0)
_LEDGER = """
    INSERT INTO ledger (id, changes, boxes, live, dead, swept) VALUES (1, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE
    SET changes = excluded.changes, boxes = excluded.boxes, live = excluded.live, dead = excluded.dead,
    swept = excluded.swept"""
_DUTIES = {
    Kind.POST: "SELECT DISTINCT receiver FROM queue",
    Kind.HAND: "SELECT name FROM tenures WHERE leaving IS NOT NULL",
    Kind.TELL: "SELECT name FROM tenures WHERE untold IS NOT NULL",
    Kind.CLAIM: "SELECT name FROM claims",
}
