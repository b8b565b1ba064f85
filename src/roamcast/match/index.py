"""The matcher over segments: exact, and fast for batches of events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from roamcast.errors import InputError
from roamcast.match.dictionary import Dictionary, TermLists, encode
from roamcast.match.kernels.search import Batch, Scratch, gather_matches, search
from roamcast.match.kernels.sorting import SHORT, place_points, sort_runs
from roamcast.match.order import order_of
from roamcast.match.port import Events, Matches
from roamcast.match.segments import Opened

__all__ = ["Candidates", "ExactTest", "Index", "Layered"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]
Truths = npt.NDArray[np.bool_]

_NOBODY: Final = np.zeros(0, np.uint8)
_NOBODY.flags.writeable = False
_ROOM: Final = 1 << 14


class Candidates(NamedTuple):
    """Pairs whose box and terms match, ordered by event, then subscription (its handle).

    Where `residual`, the subscription has a further condition, which is still to be tested. `looked_at` is how many
    postings were looked at to find them: the work that was done.
    """

    event: Integers
    subscription: Integers
    residual: Truths
    looked_at: int


class ExactTest(Protocol):
    """Decides pairs (row of `events`, handle) of subscriptions with a further condition."""

    def __call__(self, events: Events, event: Integers, subscription: Integers) -> Truths: ...


class Layered(NamedTuple):
    """A segment, and the file that says which of its rows are dead, if any are."""

    segment: Opened
    tombstones: Opened | None

    @property
    def dead(self) -> npt.NDArray[np.uint8]:
        """A bit for each row, or no bits at all."""
        return _NOBODY if self.tombstones is None else self.tombstones.arrays["dead"]


class Index:
    """Matches events with the subscriptions of all segments. A match names a subscription by its handle.

    Rows with a further condition are candidates only; `exact` decides them in `match`.
    """

    def __init__(self, segments: Sequence[Layered], exact: ExactTest | None = None) -> None:
        self._segments = [_Searched(layered) for layered in segments]
        self._exact = exact

    def match(self, events: Events) -> Matches:
        """Raises InputError when a pair needs an exact test and there is none."""
        found = self.candidates(events)
        if not found.residual.any():
            return Matches(found.event, found.subscription)
        if self._exact is None:
            raise InputError("some subscriptions have a further condition", hint="give the index an exact test")
        doubtful = np.flatnonzero(found.residual)
        good = ~found.residual
        good[doubtful] = self._exact(events, found.event[doubtful], found.subscription[doubtful])
        return Matches(found.event[good], found.subscription[good])

    def candidates(self, events: Events) -> Candidates:
        x, y = (np.ascontiguousarray(c, np.float64) for c in (events.x, events.y))
        terms = encode(events.terms)
        order = _order(x, y, self._segments)
        return _joined([segment.find(x, y, terms, order) for segment in self._segments], len(x))


class _Searched:
    """A segment with what every search of it needs."""

    def __init__(self, layered: Layered) -> None:
        self.layered, self.body, self._dead = layered, layered.segment.body, layered.dead
        self._dictionary = Dictionary(self.body.text, self.body.text_first, self.body.slots, self.body.seed)

    def find(self, x: Floats, y: Floats, terms: TermLists, order: Numbers) -> _Found:
        events, values, looked_at = [], [], 0
        batch = Batch(order, x, y, terms.first, terms.code, self._dictionary.numbers(terms.texts))
        scratch = Scratch.of(self.body, int(np.diff(terms.first).max(initial=0)))
        room, begin = max(_ROOM, 4 * len(order)), 0
        while begin < len(order):
            event, value = np.empty(room, np.int32), np.empty(room, np.int64)
            begin, count, looked = search(self.body, self._dead, batch, begin, scratch, event, value)
            events.append(event[:count])
            values.append(value[:count])
            looked_at += looked
            room *= 2
        return _Found(events, values, looked_at)


class _Found(NamedTuple):
    """Events and, beside them, handles times two, plus one for a residual row; in parts, and in no order."""

    event: list[Numbers]
    value: list[Integers]
    looked_at: int


def _order(x: Floats, y: Floats, segments: Sequence[_Searched]) -> Numbers:
    """Events that are near each other one after another, as the largest segment sees it."""
    key = np.empty(len(x), np.uint64)
    largest = max((segment.body for segment in segments), key=lambda body: len(body.handle), default=None)
    place_points(x, y, 1.0 if largest is None else float(largest.curve[0]), key)
    return order_of(key)


def _joined(found: Sequence[_Found], events: int) -> Candidates:
    event = np.concatenate([np.empty(0, np.int32), *(part for each in found for part in each.event)])
    value = np.concatenate([np.empty(0, np.int64), *(part for each in found for part in each.value)])
    first = np.zeros(events + 1, np.int64)
    np.cumsum(np.bincount(event, minlength=events), out=first[1:])
    ordered = np.empty(len(value), np.int64)
    gather_matches(event, value, first[:-1].copy(), ordered)
    if sort_runs(first, ordered):
        for run in np.flatnonzero(np.diff(first) > SHORT):
            ordered[first[run] : first[run + 1]].sort()
    looked_at = sum(each.looked_at for each in found)
    rows = np.repeat(np.arange(events), np.diff(first))
    return Candidates(rows, ordered >> 1, (ordered & 1).astype(np.bool_), looked_at)
