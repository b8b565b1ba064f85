"""What an office stores about each subscriber apart from letters: read once, cached, written at the end of a group."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from roamcast.deliver.chunks import merge_chunk
from roamcast.deliver.port import Arriving, Bookkeeping, Cursor, LastKnownOffice, Leaving, Mailbox, MailboxLoad, Tenure
from roamcast.ranges import Ranges
from roamcast.store.session import Session

__all__ = ["AccountTables", "LetterRun", "MailboxRow", "OfficeTables", "to_json"]

_MOST_CACHED = 200_000  # accounts

LetterRun = tuple[str, int, int]
"""Letters of one sender at consecutive offsets: the sender, offset minus number, and the lowest number known in it."""


@dataclass(slots=True)
class MailboxRow:
    """A mailbox without its letters. Letters up to offset `acknowledged` are deleted.

    `readable` and `held` count the live letters of each kind. `run` is the run of the letter filed last, if known.
    """

    id: int
    mailbox: Mailbox = field(default_factory=Mailbox)
    acknowledged: int = 0
    readable: int = 0
    held: int = 0
    expired: dict[str, Ranges] = field(default_factory=dict)
    run: LetterRun | None = None


@dataclass(slots=True)
class Account:
    """Everything cached about one subscriber."""

    last_known: LastKnownOffice | None = None
    tenure: Tenure | None = None
    row: MailboxRow | None = None


class OfficeTables:
    """Base of the tables of an office: the session of the current transaction."""

    def __init__(self) -> None:
        self._open: Session | None = None

    @property
    def _session(self) -> Session:
        if self._open is None:
            raise RuntimeError("only inside a transaction")
        return self._open


class AccountTables(OfficeTables):
    """Changes are kept until `_flush_accounts`. Forget everything after a failure."""

    def __init__(self) -> None:
        super().__init__()
        self._accounts: dict[str, Account] = {}
        self._last_sent: dict[int, dict[str, int]] = {}
        self._last_sent_count = 0  # entries of `_last_sent` in all
        self._mailbox_count = 0  # mailboxes ever created
        self._clear_changes()

    def last_known(self, name: str) -> LastKnownOffice | None:
        return self._account(name).last_known

    def put_last_known(self, last_known: LastKnownOffice) -> None:
        self._account(last_known.name).last_known = last_known
        self._changed_last_known[last_known.name] = last_known

    def tenures(self, names: Collection[str]) -> Mapping[str, Tenure]:
        accounts = self._load(names)
        return {name: tenure for name in names if (tenure := accounts[name].tenure) is not None}

    def put_tenure(self, tenure: Tenure) -> None:
        self._account(tenure.name).tenure = tenure
        self._changed_tenures[tenure.name] = tenure

    def mailboxes(self, names: Collection[str]) -> Mapping[str, Mailbox]:
        accounts = self._load(names)
        return {name: row.mailbox for name in names if (row := accounts[name].row) is not None}

    def loads(self, names: Collection[str]) -> Mapping[str, MailboxLoad]:
        accounts = self._load(names)
        rows = ((name, accounts[name].row) for name in names)
        return {name: _NO_LOAD if row is None else MailboxLoad(row.readable, row.held) for name, row in rows}

    def acknowledged(self, name: str) -> int:
        row = self._account(name).row
        return 0 if row is None else row.acknowledged

    def bookkeeping(self, name: str) -> Bookkeeping:
        row = self._account(name).row
        if row is None:
            return Bookkeeping()
        sent = dict(self._session.rows("SELECT receiver, number FROM sent WHERE mailbox = ?", row.id))
        sent.update((receiver, number) for (id, receiver), number in self._changed_sent.items() if id == row.id)
        return Bookkeeping(_copy_of(row.mailbox), row.acknowledged, sent, dict(row.expired))

    def add_bookkeeping(self, name: str, chunk: Bookkeeping) -> None:
        row = self._mailbox_row(name)
        merged = merge_chunk(Bookkeeping(row.mailbox, row.acknowledged, {}, row.expired), chunk)
        row.acknowledged, row.expired = merged.acknowledged, dict(merged.expired)
        self._set_mailbox(row, merged.mailbox)
        self.put_last_sent(name, chunk.sent)

    def last_sent(self, sender: str, receivers: Collection[str]) -> dict[str, int]:
        row = self._account(sender).row
        if row is None:
            return dict.fromkeys(receivers, 0)
        cached = self._last_sent.get(row.id, {})
        missing = [receiver for receiver in receivers if receiver not in cached]
        if missing:
            sql = f"SELECT receiver, number FROM sent WHERE mailbox = {row.id:d} AND receiver IN"  # noqa: S608 - a number
            stored = self._session.rows_among(sql, missing)
            cached = self._cache_sent(row.id, {**dict.fromkeys(missing, 0), **dict(stored)})
        return {receiver: cached[receiver] for receiver in receivers}

    def put_last_sent(self, sender: str, numbers: Mapping[str, int]) -> None:
        id = self._mailbox_row(sender).id
        self._changed_sent.update({(id, receiver): number for receiver, number in numbers.items()})
        self._cache_sent(id, numbers)

    def _account(self, name: str) -> Account:
        account = self._accounts.get(name)
        if account is None:
            account = self._load((name,))[name]
        return account

    def _load(self, names: Iterable[str]) -> Mapping[str, Account]:
        """All cached accounts, including those of `names`."""
        missing = {name: Account() for name in names if name not in self._accounts}
        if missing:
            self._accounts.update(self._read(missing))
        return self._accounts

    def _read(self, accounts: dict[str, Account]) -> dict[str, Account]:
        session = self._session
        for name, office, epoch, acquaintance, past_epoch in session.rows_among(_LAST_KNOWN, accounts):
            accounts[name].last_known = LastKnownOffice(name, office, epoch, bool(acquaintance), past_epoch)
        for row in session.rows_among(_TENURES, accounts):
            accounts[row[0]].tenure = _tenure_of(row)
        received_by_id: dict[int, dict[str, Ranges]] = {}
        for id, name, next_offset, acknowledged, readable, held, expired in session.rows_among(_MAILBOXES, accounts):
            received = received_by_id[id] = {}
            mailbox = Mailbox(next_offset, received)
            accounts[name].row = MailboxRow(id, mailbox, acknowledged, readable, held, _ranges_of(expired))
        for id, sender, ranges in session.rows_among(_RECEIVED, received_by_id):
            received_by_id[id][sender] = Ranges.from_text(ranges)
        return accounts

    def _mailbox_row(self, name: str) -> MailboxRow:
        """The mailbox; created if necessary."""
        account = self._account(name)
        if account.row is None:
            self._mailbox_count += 1
            account.row = MailboxRow(self._mailbox_count)
            self._new_rows[name] = account.row
        return account.row

    def _set_mailbox(self, row: MailboxRow, mailbox: Mailbox) -> None:
        """Replace the received numbers and the next offset."""
        before = row.mailbox.received
        for sender, ranges in mailbox.received.items():
            if before.get(sender) is not ranges:
                self._changed_received[row.id, sender] = ranges
        row.mailbox = _copy_of(mailbox)
        self._mark_changed(row)

    def _mark_changed(self, row: MailboxRow) -> None:
        """Write the row, without the received numbers, with the next flush."""
        self._changed_rows[row.id] = row

    def _replace_bookkeeping(self, name: str, bookkeeping: Bookkeeping) -> None:
        """Replace everything but the letter counts."""
        self._flush_accounts()
        row = self._mailbox_row(name)
        for table in ("received", "sent"):
            self._session.run(f"DELETE FROM {table} WHERE mailbox = ?", row.id)  # noqa: S608 - from the line above
        self._last_sent.pop(row.id, None)
        row.mailbox, row.acknowledged, row.expired = Mailbox(), bookkeeping.acknowledged, dict(bookkeeping.expired)
        row.run = None
        self._set_mailbox(row, bookkeeping.mailbox)
        self.put_last_sent(name, bookkeeping.sent)

    def _drop_account(self, name: str) -> MailboxRow | None:
        """Delete the tenure and the mailbox, but not its letters. Returns the mailbox."""
        account = self._account(name)
        if account.tenure is None and account.row is None:
            return None
        self._flush_accounts()
        row, account.tenure, account.row = account.row, None, None
        self._session.run("DELETE FROM tenures WHERE name = ?", name)
        if row is not None:
            self._session.run("DELETE FROM mailboxes WHERE id = ?", row.id)
            self._session.run("DELETE FROM received WHERE mailbox = ?", row.id)
            self._session.run("DELETE FROM sent WHERE mailbox = ?", row.id)
        return row

    def _flush_accounts(self) -> None:
        """Write all changes: a handful of statements, each for many rows."""
        session = self._session
        for row in self._new_rows.values():
            self._changed_rows.pop(row.id, None)
        session.run_all(_PUT_LAST_KNOWN, list(map(_last_known_row, self._changed_last_known.values())))
        session.run_all(_PUT_TENURE, list(map(_tenure_row, self._changed_tenures.values())))
        session.run_all(_NEW_MAILBOX, [(*_values_of(row), name) for name, row in self._new_rows.items()])
        session.run_all(_CHANGE_MAILBOX, [_values_of(row) for row in self._changed_rows.values()])
        session.run_all(_PUT_RECEIVED, [(*key, ranges.to_text()) for key, ranges in self._changed_received.items()])
        session.run_all(_PUT_SENT, [(*key, number) for key, number in self._changed_sent.items()])
        self._clear_changes()

    def _forget_accounts(self) -> None:
        self._accounts.clear()
        self._last_sent.clear()
        self._last_sent_count = 0
        self._clear_changes()

    def _limit_cache(self) -> None:
        """Empty the cache when it is too large. Only after a flush."""
        if len(self._accounts) > _MOST_CACHED or self._last_sent_count > _MOST_CACHED:
            self._forget_accounts()

    def _cache_sent(self, id: int, numbers: Mapping[str, int]) -> dict[str, int]:
        cached = self._last_sent.setdefault(id, {})
        before = len(cached)
        cached.update(numbers)
        self._last_sent_count += len(cached) - before
        return cached

    def _clear_changes(self) -> None:
        self._changed_last_known: dict[str, LastKnownOffice] = {}
        self._changed_tenures: dict[str, Tenure] = {}
        self._new_rows: dict[str, MailboxRow] = {}
        self._changed_rows: dict[int, MailboxRow] = {}
        self._changed_received: dict[tuple[int, str], Ranges] = {}
        self._changed_sent: dict[tuple[int, str], int] = {}


_NO_LOAD = MailboxLoad(0, 0)


def _copy_of(mailbox: Mailbox) -> Mailbox:
    """A copy that does not change with the cached mailbox."""
    return Mailbox(mailbox.next_offset, dict(mailbox.received))


def _tenure_of(row: tuple[Any, ...]) -> Tenure:
    name, epoch, friends, unnotified, arriving, leaving = row
    arrival = departure = None
    if arriving is not None:
        office, arrival_epoch, *cursor = orjson.loads(arriving)
        arrival = Arriving(office, arrival_epoch, Cursor(*cursor))
    if leaving is not None:
        departure = Leaving(*orjson.loads(leaving))
    domains = frozenset(orjson.loads(unnotified)) if unnotified is not None else frozenset[str]()
    return Tenure(name, epoch, frozenset(orjson.loads(friends)), domains, arrival, departure)


def _tenure_row(tenure: Tenure) -> tuple[Any, ...]:
    unnotified = to_json(sorted(tenure.unnotified)) if tenure.unnotified else None
    arrival, departure = tenure.arriving, tenure.leaving
    arriving = arrival and to_json([arrival.office, arrival.epoch, *arrival.cursor])
    leaving = departure and to_json([departure.office, departure.epoch])
    return tenure.name, tenure.epoch, to_json(sorted(tenure.friends)), unnotified, arriving, leaving


def _last_known_row(last: LastKnownOffice) -> tuple[Any, ...]:
    return last.name, last.office, last.epoch, last.acquaintance, last.past_epoch


def _values_of(row: MailboxRow) -> tuple[Any, ...]:
    expired = to_json({sender: ranges.to_text() for sender, ranges in row.expired.items()}) if row.expired else None
    return row.mailbox.next_offset, row.acknowledged, row.readable, row.held, expired, row.id


def _ranges_of(text: str | None) -> dict[str, Ranges]:
    if text is None:
        return {}
    return {sender: Ranges.from_text(ranges) for sender, ranges in orjson.loads(text).items()}


def to_json(value: object) -> str:
    return orjson.dumps(value).decode()


_LAST_KNOWN = "SELECT name, office, epoch, acquaintance, past_epoch FROM last_known_offices WHERE name IN"
_TENURES = "SELECT name, epoch, friends, unnotified, arriving, leaving FROM tenures WHERE name IN"
_MAILBOXES = "SELECT id, name, next_offset, acknowledged, readable, held, expired FROM mailboxes WHERE name IN"
_RECEIVED = "SELECT mailbox, sender, ranges FROM received WHERE mailbox IN"
_PUT_LAST_KNOWN = """
    INSERT INTO last_known_offices (name, office, epoch, acquaintance, past_epoch) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (name) DO UPDATE SET office = excluded.office, epoch = excluded.epoch,
    acquaintance = excluded.acquaintance, past_epoch = excluded.past_epoch"""
_PUT_TENURE = """
    INSERT INTO tenures (name, epoch, friends, unnotified, arriving, leaving) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (name) DO UPDATE SET epoch = excluded.epoch, friends = excluded.friends,
    unnotified = excluded.unnotified, arriving = excluded.arriving, leaving = excluded.leaving"""
_NEW_MAILBOX = """
    INSERT INTO mailboxes (next_offset, acknowledged, readable, held, expired, id, name) VALUES (?, ?, ?, ?, ?, ?, ?)"""
_CHANGE_MAILBOX = """
    UPDATE mailboxes SET next_offset = changed.column1, acknowledged = changed.column2, readable = changed.column3,
    held = changed.column4, expired = changed.column5
    FROM (VALUES (?, ?, ?, ?, ?, ?)) AS changed WHERE id = changed.column6"""
_PUT_RECEIVED = """
    INSERT INTO received (mailbox, sender, ranges) VALUES (?, ?, ?)
    ON CONFLICT (mailbox, sender) DO UPDATE SET ranges = excluded.ranges"""
_PUT_SENT = """
    INSERT INTO sent (mailbox, receiver, number) VALUES (?, ?, ?)
    ON CONFLICT (mailbox, receiver) DO UPDATE SET number = excluded.number"""
