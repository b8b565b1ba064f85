"""Draining of links: what subscriptions were before they moved or were removed counts for events on their way.

A peer tells how far the journals of its data folder go, and later that its pipeline has read so far and that we have
taken all that came of it. Then every event that was published there before we asked is journalled here. Sans-IO.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from roamcast.journal.records import DRAINED, POSITION, REMOVAL, Record

__all__ = ["Draining"]


class _Mark(NamedTuple):
    """The last offset of our journal at some time, and the number of removals and moves noted by then."""

    offset: int = 0
    changes: int = 0


@dataclass(slots=True)
class _PeerMarks:
    """`asked`: when the request under way was made. `waiting`: marks, and the offsets of the peer to wait for; the
    first and the last are enough.
    """

    asked: _Mark = field(default_factory=_Mark)
    waiting: list[tuple[_Mark, Mapping[str, int]]] = field(default_factory=list)
    drained: _Mark = field(default_factory=_Mark)


class Draining:
    """Which removals and moves are drained, as far as known. Belongs to one thread, except for `is_waiting`."""

    def __init__(self, peers: Callable[[], Collection[str]], journalled: Callable[[], int | None]) -> None:
        """`peers` have a data folder of their own. `journalled`: the last offset of the journal of this node; None
        while stored records are not journalled.
        """
        self._peers = peers
        self._journalled = journalled
        self._marks: dict[str, _PeerMarks] = {}
        self._changes = 1  # there may be some from before the start
        self._periods: list[_Mark] = [_Mark(), _Mark()]
        self._offered = _Mark()
        self._done = _Mark()

    @property
    def is_waiting(self) -> bool:
        """Whether some removals or moves are not known to be drained. Any thread may call this."""
        return self._changes > self._done.changes

    def note(self, records: Iterable[Record]) -> None:
        """Follow control records that are stored."""
        for record in records:
            if record.kind in (REMOVAL, POSITION) and record.body is not None:
                self._changes += 1
            elif record.kind == DRAINED and record.seq == self._offered.offset:
                self._done = self._offered

    def ask(self, peer: str) -> None:
        """A request to a peer is about to be sent."""
        self._marks.setdefault(peer, _PeerMarks()).asked = self._now()

    def answer(self, peer: str, ends: Mapping[str, int], drained: Mapping[str, int]) -> None:
        """The response to that request: the ends of the peer's journals, and up to where their events are here."""
        marks = self._marks.setdefault(peer, _PeerMarks())
        while marks.waiting and _reaches(drained, marks.waiting[0][1]):
            marks.drained, _ = marks.waiting.pop(0)
        if marks.waiting and not _reaches(ends, marks.waiting[-1][1]):
            marks.waiting.clear()  # the peer has other journals
        if not marks.waiting or marks.waiting[-1][0].changes < marks.asked.changes:
            marks.waiting = [*marks.waiting[:1], (marks.asked, ends)]

    def forget(self, peer: str) -> None:
        """A peer has been removed."""
        self._marks.pop(peer, None)

    def next_period(self) -> None:
        """Called once in a while: changes before the last call count as drained, whether peers respond or not."""
        self._periods = [self._periods[1], self._now()]

    def record(self, at: int) -> Record | None:
        """The control record to journal now, if any."""
        drained = min((self._marks.get(peer, _PeerMarks()).drained for peer in self._peers()), default=self._now())
        drained = max(drained, self._periods[0])
        if drained.changes <= self._done.changes:
            return None
        self._offered = drained
        return Record(DRAINED, seq=drained.offset, time=at)

    def _now(self) -> _Mark:
        offset = self._journalled()
        return self._done if offset is None else _Mark(offset, self._changes)


def _reaches(offsets: Mapping[str, int], ends: Mapping[str, int]) -> bool:
    return all(offsets.get(node, 0) >= end for node, end in ends.items())
