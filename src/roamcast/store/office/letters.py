"""The letters in an office's mailboxes.

A letter that is acknowledged, or whose mailbox is dropped, is dead: nobody sees it any more, but its row stays until a
sweep comes by. Sweeps go through the rows in the order in which they were written, a stretch at a time. To delete the
letters of one mailbox at once would touch a page for nearly each of them, for they came at different times.

A letter is found by sender and number without an index of all letters, which would cost each of them when it comes. A
sender's letters are placed in the order of their numbers; so those in places one after the other, a run, have numbers
one after the other, and whoever finds one of a run knows the places of all. Only who may begin one is indexed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from roamcast.deliver.letters import Key
from roamcast.deliver.mailbox import Filed, Receipt
from roamcast.model import Letter
from roamcast.ranges import Ranges
from roamcast.store.office.accounts import Accounts, Box, Run
from roamcast.store.session import Session

__all__ = ["Letters"]

_SLACK = 100_000  # dead letters beyond as many as are alive
_STRETCH = 1_000  # letters to look at in a sweep, besides four for each one acknowledged


class Letters:
    """New letters are kept until `flush`, which comes before every look at them.

    `live` and `dead` count all rows; `swept` is how far the present sweep is.
    """

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._filed: list[tuple[Any, ...]] = []
        self._released: list[tuple[Any, ...]] = []
        self._acknowledged = 0  # in this transaction
        self.live = 0
        self.dead = 0
        self.swept = 0
        self.short = False
        """The disk is full: everything dead is to go."""

    def forget(self) -> None:
        self._filed.clear()
        self._released.clear()
        self._acknowledged = 0

    def flush(self, session: Session) -> None:
        if self._filed:
            session.run_all(_FILE, self._filed)
            self._filed.clear()
        if self._released:
            session.run_all(_RELEASE, self._released)
            self._released.clear()

    def file(self, session: Session, receipt: Receipt) -> None:
        boxes: dict[str, Box] = {}
        for name, mailbox in receipt.changed.items():
            box = boxes[name] = self._accounts.box(session, name)
            self._accounts.receive(box, mailbox)
        for letter, place in receipt.filed:
            box = boxes[letter.receiver]
            heads = None
            if place is None:
                box.held += 1
            else:
                box.readable += 1
                run = box.run
                if run is None or letter.sender != run[0] or place - letter.number != run[1] or letter.number < run[2]:
                    box.run = letter.sender, place - letter.number, letter.number
                    heads = True
            self._filed.append((*_row(box.id, letter, place), heads))
        for name, sender, first, last, place in receipt.released:
            box = boxes[name]
            count = last - first + 1
            box.held -= count
            box.readable += count
            self._released.append((place - first, box.id, sender, first, last))
        self.live += len(receipt.filed)

    def add(self, session: Session, name: str, letters: Iterable[Filed]) -> None:
        box = self._accounts.box(session, name)
        self.flush(session)
        placed: list[tuple[Any, ...]] = []
        run: Run | None = None
        for letter, place in letters:
            if place is not None:
                last, run = run, (letter.sender, place - letter.number, 0)
                placed.append((*_row(box.id, letter, place), True if run != last else None))
        held = [(*_row(box.id, letter, place), None) for letter, place in letters if place is None]
        before = box.readable + box.held
        box.readable += len(placed) - session.run_all(_DELETE_PLACE, [row[:2] for row in placed])
        box.held += len(held) - session.run_all(_DELETE_HELD, [(row[0], *row[2:4]) for row in held])
        self.live += box.readable + box.held - before
        session.run_all(_FILE, placed + held)
        box.run = None
        self._accounts.touch(box)

    def readable(self, session: Session, name: str, after: int, limit: int) -> list[Filed]:
        return self._found(session, name, _READABLE, lambda box: (max(after, box.acknowledged), limit))

    def held(self, session: Session, name: str, after: Key, limit: int) -> list[Filed]:
        return self._found(session, name, _HELD, lambda _: (*after, limit))

    def overdue(self, session: Session, name: str, now: int) -> list[Filed]:
        return self._found(session, name, _OVERDUE, lambda box: (now, box.acknowledged))

    def letter(self, session: Session, name: str, key: Key) -> Filed | None:
        """Among those held back, or else those that are readable."""
        found = self._found(session, name, _HELD_ONE, lambda _: key)
        if found:
            return found[0]
        # Of the run that it is in, who heads it; or, if that one is dead, the first letter of all.
        known = self._found(session, name, _HEAD, lambda _: key)
        known += self.readable(session, name, 0, 1)
        for other, place in known:
            if other.sender == key.sender and place is not None:
                at = place + key.number - other.number
                found = self.readable(session, name, at - 1, 1)
                if found and (found[0].letter.sender, found[0].letter.number) == key:
                    return found[0]
        return None

    def acknowledge(self, session: Session, name: str, through: int) -> int:
        box = self._accounts.box(session, name)
        if through <= box.acknowledged:
            return 0
        self.flush(session)
        row = session.row(_COUNT, box.id, box.acknowledged, through)
        count = int(row[0]) if row else 0
        box.acknowledged = through
        box.readable -= count
        self._accounts.touch(box)
        self._acknowledged += count
        self.bury(count)
        return count

    def expire(self, session: Session, name: str, letters: Sequence[Filed]) -> None:
        box = self._accounts.box(session, name)
        self.flush(session)
        gone = session.run_all(_DELETE_PLACE, [(box.id, place) for _, place in letters])
        session.run_all(_HEADS_NOW, [(box.id, place + 1) for _, place in letters if place is not None])
        for letter, _ in letters:
            box.expired[letter.sender] = box.expired.get(letter.sender, Ranges()).add(letter.number)
        box.readable -= gone
        box.run = None
        self.live -= gone
        self._accounts.touch(box)

    def revive(self, session: Session, box: Box) -> None:
        """Its letters up to the place acknowledged are not to be seen, whatever is acknowledged from now on."""
        self.flush(session)
        self.dead -= session.run("DELETE FROM letters WHERE mailbox = ? AND place <= ?", box.id, box.acknowledged)

    def erase(self, session: Session, box: Box) -> None:
        """All of a mailbox that is dropped, dead or alive; what it left elsewhere goes with the next sweeps."""
        alive = box.readable + box.held
        gone = session.run("DELETE FROM letters WHERE mailbox = ? AND place IS NOT NULL", box.id)
        gone += session.run("DELETE FROM letters WHERE mailbox = ? AND place IS NULL", box.id)
        self.live -= alive
        self.dead -= gone - alive
        self.short = True

    def bury(self, count: int) -> None:
        """So many letters have died."""
        self.live -= count
        self.dead += count

    def sweep(self, session: Session) -> None:
        """Delete some of the dead if there are many, at the end of a transaction and at a cost bounded by its own.

        A mailbox that was dropped may have left very many: they go a little at a time, for nobody is to wait for it.
        """
        stretch, self._acknowledged = _STRETCH + 4 * self._acknowledged, 0
        if self.dead <= (0 if self.short else self.live + _SLACK):
            self.short = False
            return
        row = session.row(_STRETCH_END, self.swept, stretch)
        end = row[0] if row else None
        if end is None:
            self.swept = 0
        else:
            self.dead -= session.run(_SWEEP, self.swept, end)
            self.swept = end

    def _found(self, session: Session, name: str, sql: str, rest: Any) -> list[Filed]:
        box = self._accounts.get(session, name).box
        if box is None:
            return []
        if self._filed or self._released:
            self.flush(session)
        # By position, and in the order of the columns: this is where letters that are pulled come from.
        return [Filed(Letter(name, *row[1:]), row[0]) for row in session.rows(sql, box.id, *rest(box))]


def _row(box: int, it: Letter, place: int | None) -> tuple[Any, ...]:
    return box, place, it.sender, it.number, it.body, it.title, it.office, it.sent, it.expires


_FILE = """
    INSERT INTO letters (mailbox, place, sender, number, body, title, office, sent, expires, heads)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_RELEASE = """
    UPDATE letters SET place = number + ?
    WHERE mailbox = ? AND sender = ? AND number BETWEEN ? AND ? AND place IS NULL"""
_DELETE_PLACE = "DELETE FROM letters WHERE mailbox = ? AND place = ?"
_DELETE_HELD = "DELETE FROM letters WHERE mailbox = ? AND sender = ? AND number = ? AND place IS NULL"
_LETTERS = "SELECT place, sender, number, body, title, office, sent, expires FROM letters WHERE mailbox = ?"
_READABLE = f"{_LETTERS} AND place > ? ORDER BY place LIMIT ?"
_HELD = f"{_LETTERS} AND place IS NULL AND (sender, number) > (?, ?) ORDER BY sender, number LIMIT ?"
# The plus keeps SQLite from going through all that is readable.
_OVERDUE = f"{_LETTERS} AND place IS NOT NULL AND expires <= ? AND +place > ? ORDER BY place"
_HELD_ONE = f"{_LETTERS} AND place IS NULL AND sender = ? AND number = ?"
_HEAD = f"{_LETTERS} AND heads IS NOT NULL AND sender = ? AND number <= ? ORDER BY number DESC LIMIT 1"
_HEADS_NOW = "UPDATE letters SET heads = TRUE WHERE mailbox = ? AND place = ?"
_COUNT = "SELECT count(*) FROM letters WHERE mailbox = ? AND place > ? AND place <= ?"
_STRETCH_END = "SELECT max(id) FROM (SELECT id FROM letters WHERE id > ? ORDER BY id LIMIT ?) AS stretch"
_SWEEP = """
    DELETE FROM letters WHERE id > ? AND id <= ? AND NOT EXISTS (
        SELECT 1 FROM mailboxes
        WHERE mailboxes.id = letters.mailbox AND (letters.place IS NULL OR letters.place > mailboxes.acknowledged))"""
