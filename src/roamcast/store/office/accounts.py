"""What an office knows of each subscriber besides letters: read once, kept in memory, written when a group is done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from roamcast.deliver.chunks import joined
from roamcast.deliver.letters import Cursor
from roamcast.deliver.mailbox import Mailbox
from roamcast.deliver.port import Arriving, Contents, Leaving, Tenure, Whereabouts
from roamcast.ranges import Ranges
from roamcast.store.session import Session

__all__ = ["Account", "Accounts", "Box", "Run"]

_MOST = 200_000  # accounts in memory

Run = tuple[str, int, int]
"""Letters of one sender in places one after the other: the sender, its letters' place less their number, and the lowest
number among those that are known to be in it.
"""


@dataclass(slots=True)
class Box:
    """A mailbox without its letters: those up to place `acknowledged` are dead, `readable` and `held` are alive.

    `run` is that of the letter placed last, if it is remembered.
    """

    id: int
    mailbox: Mailbox = field(default_factory=Mailbox)
    acknowledged: int = 0
    readable: int = 0
    held: int = 0
    expired: dict[str, Ranges] = field(default_factory=dict)
    run: Run | None = None


@dataclass(slots=True)
class Account:
    whereabouts: Whereabouts | None = None
    tenure: Tenure | None = None
    box: Box | None = None


class Accounts:
    """Changes are kept until `flush`. After a failure everything is to be forgotten."""

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self._sent: dict[int, dict[str, int]] = {}
        self._senders = 0  # entries of `_sent` in all
        self._clear_changes()
        self.boxes = 0
        """How many mailboxes there have ever been."""

    def forget(self) -> None:
        self._accounts.clear()
        self._sent.clear()
        self._senders = 0
        self._clear_changes()

    def shrink(self) -> None:
        """There is a limit to what is remembered. Only after `flush`."""
        if len(self._accounts) > _MOST or self._senders > _MOST:
            self.forget()

    def get(self, session: Session, name: str) -> Account:
        account = self._accounts.get(name)
        if account is None:
            account = self.load(session, (name,))[name]
        return account

    def load(self, session: Session, names: Iterable[str]) -> Mapping[str, Account]:
        """All accounts in memory; these are among them."""
        found = {name: Account() for name in names if name not in self._accounts}
        if found:
            self._accounts.update(self._read(session, found))
        return self._accounts

    def _read(self, session: Session, found: dict[str, Account]) -> dict[str, Account]:
        for name, *rest in session.rows_among(_WHEREABOUTS, found):
            found[name].whereabouts = Whereabouts(name, rest[0], rest[1], bool(rest[2]), rest[3])
        for row in session.rows_among(_TENURES, found):
            found[row[0]].tenure = _tenure_of(row)
        boxes: dict[int, dict[str, Ranges]] = {}
        for id, name, next_place, acknowledged, readable, held, expired in session.rows_among(_BOXES, found):
            received = boxes[id] = {}
            mailbox = Mailbox(next_place, received)
            found[name].box = Box(id, mailbox, acknowledged, readable, held, _ranges_of(expired))
        for id, sender, ranges in session.rows_among(_RECEIVED, boxes):
            boxes[id][sender] = Ranges.from_text(ranges)
        return found

    def box(self, session: Session, name: str) -> Box:
        """The mailbox, an empty one if there was none."""
        account = self.get(session, name)
        if account.box is None:
            self.boxes += 1
            account.box = Box(self.boxes)
            self._new[name] = account.box
        return account.box

    def put_whereabouts(self, session: Session, whereabouts: Whereabouts) -> None:
        self.get(session, whereabouts.name).whereabouts = whereabouts
        self._whereabouts[whereabouts.name] = whereabouts

    def put_tenure(self, session: Session, tenure: Tenure) -> None:
        self.get(session, tenure.name).tenure = tenure
        self._tenures[tenure.name] = tenure

    def receive(self, box: Box, mailbox: Mailbox) -> None:
        """The mailbox has had more."""
        before = box.mailbox.received
        for sender, ranges in mailbox.received.items():
            if before.get(sender) is not ranges:
                self._received[box.id, sender] = ranges
        box.mailbox = mailbox
        self.touch(box)

    def touch(self, box: Box) -> None:
        """Something of it was changed, what it has received apart."""
        self._changed[box.id] = box

    def sent(self, session: Session, sender: str, receiver: str) -> int:
        box = self.get(session, sender).box
        if box is None:
            return 0
        number = self._sent.get(box.id, {}).get(receiver)
        if number is None:
            row = session.row("SELECT number FROM sent WHERE mailbox = ? AND receiver = ?", box.id, receiver)
            number = row[0] if row else 0
            self._remember(box.id, receiver, number)
        return number

    def put_sent(self, session: Session, sender: str, receiver: str, number: int) -> None:
        id = self.box(session, sender).id
        self._numbers[id, receiver] = number
        self._remember(id, receiver, number)

    def contents(self, session: Session, name: str) -> Contents:
        box = self.get(session, name).box
        if box is None:
            return Contents()
        sent = dict(session.rows("SELECT receiver, number FROM sent WHERE mailbox = ?", box.id))
        sent.update((receiver, number) for (id, receiver), number in self._numbers.items() if id == box.id)
        return Contents(box.mailbox, box.acknowledged, sent, dict(box.expired))

    def put_contents(self, session: Session, name: str, contents: Contents) -> None:
        """All but the counts of its letters."""
        self.flush(session)
        box = self.box(session, name)
        for table in ("received", "sent"):
            session.run(f"DELETE FROM {table} WHERE mailbox = ?", box.id)  # noqa: S608 - from the line above
        self._sent.pop(box.id, None)
        box.mailbox, box.acknowledged, box.expired = Mailbox(), contents.acknowledged, dict(contents.expired)
        box.run = None
        self.receive(box, contents.mailbox)
        for receiver, number in contents.sent.items():
            self.put_sent(session, name, receiver, number)

    def add_contents(self, session: Session, name: str, part: Contents) -> None:
        box = self.box(session, name)
        after = joined(Contents(box.mailbox, box.acknowledged, {}, box.expired), part)
        box.acknowledged, box.expired = after.acknowledged, dict(after.expired)
        self.receive(box, after.mailbox)
        for receiver, number in part.sent.items():
            self.put_sent(session, name, receiver, number)

    def drop_tenure(self, session: Session, name: str) -> Box | None:
        """The tenure and the mailbox, which is returned; not its letters."""
        account = self.get(session, name)
        if account.tenure is None and account.box is None:
            return None
        self.flush(session)
        box, account.tenure, account.box = account.box, None, None
        session.run("DELETE FROM tenures WHERE name = ?", name)
        if box is not None:
            session.run("DELETE FROM mailboxes WHERE id = ?", box.id)
            session.run("DELETE FROM received WHERE mailbox = ?", box.id)
            session.run("DELETE FROM sent WHERE mailbox = ?", box.id)
        return box

    def flush(self, session: Session) -> None:
        """Write all that was changed: a handful of statements, each for many rows."""
        for box in self._new.values():
            self._changed.pop(box.id, None)
        session.run_all(_PUT_WHEREABOUTS, [_whereabouts_row(it) for it in self._whereabouts.values()])
        session.run_all(_PUT_TENURE, [_tenure_row(it) for it in self._tenures.values()])
        session.run_all(_NEW_BOX, [(*_box_row(box), name) for name, box in self._new.items()])
        session.run_all(_CHANGE_BOX, [_box_row(box) for box in self._changed.values()])
        session.run_all(_PUT_RECEIVED, [(*key, ranges.to_text()) for key, ranges in self._received.items()])
        session.run_all(_PUT_SENT, [(*key, number) for key, number in self._numbers.items()])
        self._clear_changes()

    def _remember(self, id: int, receiver: str, number: int) -> None:
        self._sent.setdefault(id, {})[receiver] = number
        self._senders += 1

    def _clear_changes(self) -> None:
        self._whereabouts: dict[str, Whereabouts] = {}
        self._tenures: dict[str, Tenure] = {}
        self._new: dict[str, Box] = {}
        self._changed: dict[int, Box] = {}
        self._received: dict[tuple[int, str], Ranges] = {}
        self._numbers: dict[tuple[int, str], int] = {}


def _tenure_of(row: tuple[Any, ...]) -> Tenure:
    name, epoch, friends, untold, arriving, leaving = row
    arrival = departure = None
    if arriving is not None:
        office, since, *cursor = orjson.loads(arriving)
        arrival = Arriving(office, since, Cursor(*cursor))
    if leaving is not None:
        departure = Leaving(*orjson.loads(leaving))
    told = frozenset(orjson.loads(untold)) if untold is not None else frozenset[str]()
    return Tenure(name, epoch, frozenset(orjson.loads(friends)), told, arrival, departure)


def _tenure_row(it: Tenure) -> tuple[Any, ...]:
    untold = _json(sorted(it.untold)) if it.untold else None
    arriving = it.arriving and _json([it.arriving.office, it.arriving.epoch, *it.arriving.cursor])
    leaving = it.leaving and _json([it.leaving.office, it.leaving.epoch])
    return it.name, it.epoch, _json(sorted(it.friends)), untold, arriving, leaving


def _whereabouts_row(it: Whereabouts) -> tuple[Any, ...]:
    return it.name, it.office, it.epoch, it.acquaintance, it.past


def _box_row(box: Box) -> tuple[Any, ...]:
    expired = _json({sender: ranges.to_text() for sender, ranges in box.expired.items()}) if box.expired else None
    return box.mailbox.next_place, box.acknowledged, box.readable, box.held, expired, box.id


def _ranges_of(text: str | None) -> dict[str, Ranges]:
    if text is None:
        return {}
    return {sender: Ranges.from_text(ranges) for sender, ranges in orjson.loads(text).items()}


def _json(value: object) -> str:
    return orjson.dumps(value).decode()


_WHEREABOUTS = "SELECT name, office, epoch, acquaintance, past FROM whereabouts WHERE name IN"
_TENURES = "SELECT name, epoch, friends, untold, arriving, leaving FROM tenures WHERE name IN"
_BOXES = "SELECT id, name, next_place, acknowledged, readable, held, expired FROM mailboxes WHERE name IN"
_RECEIVED = "SELECT mailbox, sender, ranges FROM received WHERE mailbox IN"
_PUT_WHEREABOUTS = """
    INSERT INTO whereabouts (name, office, epoch, acquaintance, past) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (name) DO UPDATE SET office = excluded.office, epoch = excluded.epoch,
    acquaintance = excluded.acquaintance, past = excluded.past"""
_PUT_TENURE = """
    INSERT INTO tenures (name, epoch, friends, untold, arriving, leaving) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (name) DO UPDATE SET epoch = excluded.epoch, friends = excluded.friends, untold = excluded.untold,
    arriving = excluded.arriving, leaving = excluded.leaving"""
_NEW_BOX = """
    INSERT INTO mailboxes (next_place, acknowledged, readable, held, expired, id, name) VALUES (?, ?, ?, ?, ?, ?, ?)"""
_CHANGE_BOX = """
    UPDATE mailboxes SET next_place = ?, acknowledged = ?, readable = ?, held = ?, expired = ? WHERE id = ?"""
_PUT_RECEIVED = """
    INSERT INTO received (mailbox, sender, ranges) VALUES (?, ?, ?)
    ON CONFLICT (mailbox, sender) DO UPDATE SET ranges = excluded.ranges"""
_PUT_SENT = """
    INSERT INTO sent (mailbox, receiver, number) VALUES (?, ?, ?)
    ON CONFLICT (mailbox, receiver) DO UPDATE SET number = excluded.number"""
