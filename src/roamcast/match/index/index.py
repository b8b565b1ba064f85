"""The matcher over segments: exact, and fast for batches of events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from roamcast.errors import InputError
from roamcast.match.index.argsort import order_of
from roamcast.match.index.dictionary import Dictionary, encode_terms
from roamcast.match.index.segments import Opened
from roamcast.match.kernels.search import PORTION, Batch, Scratch, count_matches, gather_matches, search
from roamcast.match.kernels.sorting import SHORT, place_points, sort_runs
from roamcast.match.port import Events, Matches

__all__ = ["Candidates", "ExactTest", "Index", "OpenSegment"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]
Truths = npt.NDArray[np.bool_]

_NOBODY: Final = np.zeros(0, np.uint8)
_NOBODY.flags.writeable = False
_ROOM: Final = 1 << 14
_PAIRS_AT_ONCE: Final = 1_000_000
_NO_LIMIT: Final = np.iinfo(np.int64).max


class Candidates(NamedTuple):
    """Pairs whose box and terms match, ordered by event, then subscription (its handle).

    Where `residual`, the subscription has a further condition, which is still to be tested. `scanned` is how many
    postings were looked at to find them: the work that was done.
    """

    event: Integers
    subscription: Integers
    residual: Truths
    scanned: int


class ExactTest(Protocol):
    """Decides pairs (row of `events`, handle) of subscriptions with a further condition."""

    def __call__(self, events: Events, event: Integers, subscription: Integers) -> Truths: ...


class OpenSegment(NamedTuple):
    """A segment, and the file that says which of its rows are dead, if any are."""

    segment: Opened
    tombstones: Opened | None

    @property
    def dead(self) -> npt.NDArray[np.uint8]:
        """A bit for each row, or no bits at all."""
        return _NOBODY if self.tombstones is None else self.tombstones.arrays["dead"]


class Index:
    """Matches events with the subscriptions of all segments. A match names a subscription by its handle.

    Rows with a further condition are candidates only; `exact` decides them. Pairs are found in portions, of events one
    after another: as many as have up to `pairs_at_once` together, or one that has more. However many pairs there are,
    memory is taken for those of one portion, at most 64 bytes each.
    """

    def __init__(
        self, segments: Sequence[OpenSegment], exact: ExactTest | None = None, pairs_at_once: int = _PAIRS_AT_ONCE
    ) -> None:
        self._segments = [_Searched(layered) for layered in segments]
        self._exact, self._pairs_at_once = exact, pairs_at_once

    def match(self, events: Events) -> Matches:
        """All matches at once. Raises as `matches` does."""
        portions = [*self.matches(events)]
        if len(portions) == 1:
            return portions[0]
        event, subscription = (np.concatenate(columns) for columns in zip(*portions, strict=True))
        return Matches(event, subscription)

    def matches(self, events: Events) -> Iterator[Matches]:
        """In portions, at least one. Raises InputError when a pair needs an exact test and there is none."""
        for found in self.candidates(events):
            if not found.residual.any():
                yield Matches(found.event, found.subscription)
                continue
            if self._exact is None:
                raise InputError("some subscriptions have a further condition", hint="give the index an exact test")
            doubtful = np.flatnonzero(found.residual)
            good = ~found.residual
            good[doubtful] = self._exact(events, found.event[doubtful], found.subscription[doubtful])
            yield Matches(found.event[good], found.subscription[good])

    def candidates(self, events: Events) -> Iterator[Candidates]:
        """In portions, at least one."""
        asked = _Asked.of(events, self._segments)
        begin, size, scanned = 0, len(asked.x), 0
        while True:
            found = self._search(asked.some(begin, size))
            scanned += sum(each.scanned for each in found)
            done = min((each.done for each in found), default=size)
            if done < size:
                size = max(min(done, size // 2), 1)
                continue
            portion = _joined(found, begin, size, scanned)
            yield portion
            begin, scanned = begin + size, 0
            if begin == len(asked.x):
                return
            if 2 * len(portion.event) <= self._pairs_at_once:
                size *= 2
            size = min(size, len(asked.x) - begin)

    def _search(self, asked: _Asked) -> list[_Found]:
        """What the segments have, up to the one with which it is too much."""
        order = _order(asked.x, asked.y, self._segments)
        left = self._pairs_at_once if len(order) > 1 else _NO_LIMIT
        # What does not fit is searched again. A few events are searched all or none; of many, little is enough to see.
        room = self._pairs_at_once if len(order) <= PORTION else max(_ROOM, 4 * len(order))
        found: list[_Found] = []
        for segment, number in zip(self._segments, asked.numbers, strict=True):
            found.append(segment.find(asked, number, order, left, room))
            if found[-1].done < len(order):
                break
            left -= found[-1].pairs
        return found


class _Asked(NamedTuple):
    """Events to search for: row i has the terms code[first[i]:first[i + 1]]; what a code is in each segment."""

    x: Floats
    y: Floats
    first: Integers
    code: Numbers
    numbers: list[Numbers]

    @classmethod
    def of(cls, events: Events, segments: Sequence[_Searched]) -> Self:
        x, y = (np.ascontiguousarray(c, np.float64) for c in (events.x, events.y))
        terms = encode_terms(events.terms)
        return cls(x, y, terms.first, terms.code, [segment.dictionary.numbers(terms.texts) for segment in segments])

    def some(self, begin: int, size: int) -> Self:
        rows = slice(begin, begin + size)
        return self._replace(x=self.x[rows], y=self.y[rows], first=self.first[begin : begin + size + 1])


class _Searched:
    """A segment with what every search of it needs."""

    def __init__(self, layered: OpenSegment) -> None:
        self.layered, self.body, self._dead = layered, layered.segment.body, layered.dead
        self.dictionary = Dictionary(self.body.text, self.body.text_first, self.body.slots, self.body.seed)

    def find(self, asked: _Asked, number: Numbers, order: Numbers, most: int, room: int) -> _Found:
        """Gives up where there are more than `most`, or are going to be as things look. Begins with so much room."""
        events, values, pairs, scanned = [], [], 0, 0
        batch = Batch(order, asked.x, asked.y, asked.first, asked.code, number)
        scratch = Scratch.of(self.body, int(np.diff(asked.first).max(initial=0)))
        most, done = min(most, len(order) * len(self.body.handle)), 0
        while done < len(order):
            room, is_last = min(room, most - pairs), room >= most - pairs
            event, value = np.empty(room, np.int32), np.empty(room, np.int64)
            done, written, looked = search(self.body, self._dead, batch, done, scratch, event, value)
            events.append(event[:written])
            values.append(value[:written])
            pairs, scanned = pairs + written, scanned + looked
            if done < len(order) and (is_last or pairs * len(order) > most * done):
                break
            room *= 8
        return _Found(events, values, pairs, scanned, done)


class _Found(NamedTuple):
    """Events and, beside them, handles times two, plus one for a residual row; in parts, and in no order.

    So many events of the order are `done`.
    """

    event: list[Numbers]
    value: list[Integers]
    pairs: int
    scanned: int
    done: int


def _order(x: Floats, y: Floats, segments: Sequence[_Searched]) -> Numbers:
    """Events that are near each other one after another, as the largest segment sees it."""
    key = np.empty(len(x), np.uint64)
    largest = max((segment.body for segment in segments), key=lambda body: len(body.handle), default=None)
    place_points(x, y, 1.0 if largest is None else float(largest.curve[0]), key)
    return order_of(key)


def _joined(found: Sequence[_Found], begin: int, events: int, scanned: int) -> Candidates:
    """In order; `begin` is the number of the first of the events."""
    parts = [part for each in found for part in zip(each.event, each.value, strict=True)]
    first = np.zeros(events + 1, np.int64)
    for event, _ in parts:
        count_matches(event, first[1:])
    np.cumsum(first, out=first)
    ordered, place = np.empty(first[-1], np.int64), first[:-1].copy()
    for event, value in parts:
        gather_matches(event, value, place, ordered)
    if sort_runs(first, ordered):
        for run in np.flatnonzero(np.diff(first) > SHORT):
            ordered[first[run] : first[run + 1]].sort()
    residual = (ordered & 1).astype(np.bool_)
    ordered >>= 1
    return Candidates(np.repeat(np.arange(begin, begin + events), np.diff(first)), ordered, residual, scanned)
