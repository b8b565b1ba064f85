"""Letters that wait to be posted, and mailboxes that are claimed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import orjson

from roamcast.deliver.letters import Key
from roamcast.deliver.port import Claimed
from roamcast.model import Letter
from roamcast.store.engine import portions
from roamcast.store.session import Session

__all__ = ["Queue"]

_MOST = 200_000  # receivers, or senders, whose number of letters is remembered


class Queue:
    """Letters are counted once for each receiver, and for each sender, and then kept count of in memory."""

    def __init__(self) -> None:
        self._lengths: dict[str, int] = {}
        self._unposted: dict[str, int] = {}

    def forget(self) -> None:
        self._lengths.clear()
        self._unposted.clear()

    def enqueue(self, session: Session, letters: Iterable[Letter]) -> None:
        rows = [_row(letter) for letter in letters]
        if not rows:
            return
        if len(self._lengths) > _MOST or len(self._unposted) > _MOST:
            self.forget()
        added = session.run_all(_ENQUEUE, rows)
        for receiver, sender, *_ in rows:
            for counts, name in ((self._lengths, receiver), (self._unposted, sender)):
                if added < len(rows):
                    counts.pop(name, None)
                elif name in counts:
                    counts[name] += 1

    def queued(self, session: Session, receiver: str, after: Key, limit: int) -> list[Letter]:
        if self._lengths.get(receiver) == 0:
            return []
        rows = session.rows(_QUEUED, receiver, *after, limit)
        if not rows and after < Key("", 1):
            self._lengths[receiver] = 0
        return [Letter(*row) for row in rows]

    def length(self, session: Session, receiver: str) -> int:
        length = self._lengths.get(receiver)
        if length is None:
            row = session.row("SELECT count(*) FROM queue WHERE receiver = ?", receiver)
            length = self._lengths[receiver] = int(row[0]) if row else 0
        return length

    def unposted(self, session: Session, sender: str) -> int:
        count = self._unposted.get(sender)
        if count is None:
            row = session.row("SELECT count(*) FROM queue WHERE sender = ?", sender)
            count = self._unposted[sender] = int(row[0]) if row else 0
        return count

    def dequeue(self, session: Session, receiver: str, keys: Iterable[Key]) -> list[Letter]:
        if self._lengths.get(receiver) == 0:
            return []
        taken: list[Letter] = []
        for some in portions(dict.fromkeys(keys)):
            marks = ",".join(["(?, ?)"] * len(some))
            wanted = [part for key in some for part in key]
            found = session.rows(_AMONG.format(marks), *wanted, receiver)
            session.run_all(_DEQUEUE, [row[:3] for row in found])
            taken += [Letter(*row) for row in found]
        if receiver in self._lengths:
            self._lengths[receiver] -= len(taken)
        for letter in taken:
            if letter.sender in self._unposted:
                self._unposted[letter.sender] -= 1
        return taken

    def claimed(self, session: Session, name: str) -> Claimed | None:
        row = session.row("SELECT name, epoch, previous, warrant, asked FROM claims WHERE name = ?", name)
        if row is None:
            return None
        name, epoch, previous, warrant, asked = row
        return Claimed(name, epoch, previous, warrant, frozenset(orjson.loads(asked)))

    def put_claimed(self, session: Session, it: Claimed) -> None:
        self.drop_claimed(session, it.name)
        session.run(_CLAIM, it.name, it.epoch, it.previous, it.warrant, orjson.dumps(sorted(it.asked)).decode())

    def drop_claimed(self, session: Session, name: str) -> None:
        session.run("DELETE FROM claims WHERE name = ?", name)


def _row(it: Letter) -> Sequence[Any]:
    return it.receiver, it.sender, it.number, it.body, it.title, it.office, it.sent, it.expires


_ENQUEUE = """
    INSERT INTO queue (receiver, sender, number, body, title, office, sent, expires)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""
_QUEUED = """
    SELECT receiver, sender, number, body, title, office, sent, expires FROM queue
    WHERE receiver = ? AND (sender, number) > (?, ?) ORDER BY sender, number LIMIT ?"""
# Both databases call the columns of VALUES so; and SQLite takes a CROSS JOIN from left to right.
_AMONG = """
    SELECT receiver, sender, number, body, title, office, sent, expires FROM (VALUES {}) AS wanted CROSS JOIN queue
    WHERE sender = wanted.column1 AND number = wanted.column2 AND receiver = ?"""
_DEQUEUE = "DELETE FROM queue WHERE receiver = ? AND sender = ? AND number = ?"
_CLAIM = "INSERT INTO claims (name, epoch, previous, warrant, asked) VALUES (?, ?, ?, ?, ?)"
