"""Letters queued for posting, and claims of mailboxes."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from roamcast.deliver.port import LetterKey, PendingClaim
from roamcast.model import Letter
from roamcast.store.engine import chunked
from roamcast.store.office.accounts import OfficeTables, to_json

__all__ = ["QueueTables"]

_MOST_CACHED = 200_000  # receivers, or senders, with a cached count


class QueueTables(OfficeTables):
    """Queued letters are counted once for each receiver and sender; then the counts are kept in memory."""

    def __init__(self) -> None:
        super().__init__()
        self._lengths: dict[str, int] = {}
        self._unposted: dict[str, int] = {}

    def enqueue(self, letters: Iterable[Letter]) -> None:
        rows = list(letters)
        if not rows:
            return
        if len(self._lengths) > _MOST_CACHED or len(self._unposted) > _MOST_CACHED:
            self._forget_queue()
        added = self._session.run_all(_ENQUEUE, rows)
        for letter in rows:
            for counts, name in ((self._lengths, letter.receiver), (self._unposted, letter.sender)):
                if added < len(rows):
                    counts.pop(name, None)
                elif name in counts:
                    counts[name] += 1

    def queued(self, receiver: str, after: LetterKey, limit: int) -> list[Letter]:
        if self._lengths.get(receiver) == 0:
            return []
        rows = self._session.rows(_QUEUED, receiver, *after, limit)
        if not rows and after < LetterKey("", 1):
            self._lengths[receiver] = 0
        return [Letter(*row) for row in rows]

    def queue_length(self, receiver: str) -> int:
        length = self._lengths.get(receiver)
        if length is None:
            length = self._lengths[receiver] = self._count("SELECT count(*) FROM queue WHERE receiver = ?", receiver)
        return length

    def unposted_count(self, sender: str) -> int:
        count = self._unposted.get(sender)
        if count is None:
            count = self._unposted[sender] = self._count("SELECT count(*) FROM queue WHERE sender = ?", sender)
        return count

    def dequeue(self, receiver: str, keys: Iterable[LetterKey]) -> list[Letter]:
        if self._lengths.get(receiver) == 0:
            return []
        letters: list[Letter] = []
        for chunk in chunked(dict.fromkeys(keys)):
            marks = ",".join(["(?, ?)"] * len(chunk))
            parameters = [value for key in chunk for value in key]
            rows = self._session.rows(_AMONG.format(marks), *parameters, receiver)
            self._session.run_all(_DEQUEUE, [row[:3] for row in rows])
            letters += [Letter(*row) for row in rows]
        if receiver in self._lengths:
            self._lengths[receiver] -= len(letters)
        for letter in letters:
            if letter.sender in self._unposted:
                self._unposted[letter.sender] -= 1
        return letters

    def pending_claim(self, name: str) -> PendingClaim | None:
        row = self._session.row(_CLAIM, name)
        if row is None:
            return None
        epoch, previous, move_proof, asked_offices, is_recall = row
        return PendingClaim(name, epoch, previous, move_proof, frozenset(orjson.loads(asked_offices)), bool(is_recall))

    def put_claim(self, claim: PendingClaim) -> None:
        self.drop_claim(claim.name)
        values = claim.epoch, claim.previous, claim.move_proof, to_json(sorted(claim.asked_offices)), claim.is_recall
        self._session.run(_PUT_CLAIM, claim.name, *values)

    def drop_claim(self, name: str) -> None:
        self._session.run("DELETE FROM claims WHERE name = ?", name)

    def _count(self, sql: str, name: str) -> int:
        row = self._session.row(sql, name)
        return int(row[0]) if row else 0

    def _forget_queue(self) -> None:
        self._lengths.clear()
        self._unposted.clear()


_ENQUEUE = """
    INSERT INTO queue (receiver, sender, number, body, title, office, sent, expires)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""
_QUEUED = """
    SELECT receiver, sender, number, body, title, office, sent, expires FROM queue
    WHERE receiver = ? AND (sender, number) > (?, ?) ORDER BY sender, number LIMIT ?"""
# Both databases name the columns of VALUES column1, column2. SQLite runs a CROSS JOIN from left to right.
_AMONG = """
    SELECT receiver, sender, number, body, title, office, sent, expires FROM (VALUES {}) AS wanted CROSS JOIN queue
    WHERE sender = wanted.column1 AND number = wanted.column2 AND receiver = ?"""
_DEQUEUE = "DELETE FROM queue WHERE receiver = ? AND sender = ? AND number = ?"
_CLAIM = "SELECT epoch, previous, move_proof, asked_offices, is_recall FROM claims WHERE name = ?"
_PUT_CLAIM = """
    INSERT INTO claims (name, epoch, previous, move_proof, asked_offices, is_recall) VALUES (?, ?, ?, ?, ?, ?)"""
