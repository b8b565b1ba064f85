"""The matcher over segments: exact, and fast for batches of events."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from roamcast.compiled import read_only
from roamcast.errors import InputError
from roamcast.match.index.dictionary import Dictionary, encode_terms
from roamcast.match.index.segments import MappedArrays
from roamcast.match.kernels.postings import SegmentArrays
from roamcast.match.kernels.search import BLOCK, MAX_LISTED, SearchBatch, SearchScratch, list_postings, search
from roamcast.match.kernels.sorting import (
    SHORT_RUN,
    count_candidates,
    group_by_event,
    point_curve_keys,
    radix_argsort,
    sort_short_runs,
)
from roamcast.match.port import Events, Matches

__all__ = ["Candidates", "ExactTest", "Index", "OpenSegment", "ScannedPostings"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]
Truths = npt.NDArray[np.bool_]

_NO_TOMBSTONES: Final = read_only(np.zeros(0, np.uint8))
_MIN_ROOM: Final = 1 << 14
_MAX_PAIRS: Final = 1_000_000
_NO_LIMIT: Final = np.iinfo(np.int64).max


class Candidates(NamedTuple):
    """Pairs whose box and terms match, ordered by event, then by handle of the subscription.

    A `residual` pair must still be tested for the subscription's further condition. `Index.matches`, which
    `roamcast.spark` uses, tests these. The pipeline ignores the flag: it tests every pair itself. `scanned` is the
    number of postings that were compared: the work that was done.
    """

    event: Integers
    subscription: Integers
    residual: Truths
    scanned: int


class ScannedPostings(NamedTuple):
    """Postings that a search compares: the event and the handle of the subscription, in no particular order.

    Removed subscriptions may be among them. `times` is 1, or more if only some of an event's postings are listed.
    """

    event: Integers
    subscription: Integers
    times: Integers


class ExactTest(Protocol):
    """Tests pairs (row of `events`, handle) of residual subscriptions."""

    def __call__(self, events: Events, event: Integers, subscription: Integers) -> Truths: ...


class OpenSegment(NamedTuple):
    """A segment, and the file of its tombstones if it has any."""

    segment: MappedArrays
    tombstones: MappedArrays | None

    @property
    def arrays(self) -> SegmentArrays:
        return self.segment.segment

    @property
    def dictionary(self) -> Dictionary:
        arrays = self.arrays
        return Dictionary(arrays.text, arrays.text_first, arrays.text_slots, arrays.seed)

    @property
    def dead(self) -> npt.NDArray[np.uint8]:
        """A bit for each row; empty if no row is dead."""
        return _NO_TOMBSTONES if self.tombstones is None else self.tombstones.arrays["dead"]


class Index:
    """Matches events with the subscriptions of all segments. A match names a subscription by its handle.

    `exact` tests residual rows. Pairs are found in chunks of consecutive events: as many events as have up to
    `pairs_at_once` pairs together, or one event with more. A search needs memory for one chunk, at most 64 bytes for
    each pair.
    """

    def __init__(
        self, segments: Sequence[OpenSegment], exact: ExactTest | None = None, pairs_at_once: int = _MAX_PAIRS
    ) -> None:
        self._segments = [_SegmentSearch(segment) for segment in segments]
        self._exact, self._pairs_at_once = exact, pairs_at_once
        self._of_thread = threading.local()

    @property
    def scanned(self) -> int:
        """How many postings the current thread has compared so far."""
        return getattr(self._of_thread, "scanned", 0)

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def posting_count(self) -> int:
        return sum(len(segment.arrays.posting) for segment in self._segments)

    def match(self, events: Events) -> Matches:
        """Return all matches. Raises as `matches` does."""
        chunks = [*self.matches(events)]
        if len(chunks) == 1:
            return chunks[0]
        event, subscription = (np.concatenate(columns) for columns in zip(*chunks, strict=True))
        return Matches(event, subscription)

    def matches(self, events: Events) -> Iterator[Matches]:
        """Yield matches in chunks, at least one. Raises InputError if a pair needs an exact test and there is none."""
        for chunk in self.candidates(events):
            if not chunk.residual.any():
                yield Matches(chunk.event, chunk.subscription)
                continue
            if self._exact is None:
                raise InputError("some subscriptions have a further condition", hint="pass an exact test to the index")
            untested = np.flatnonzero(chunk.residual)
            matched = ~chunk.residual
            matched[untested] = self._exact(events, chunk.event[untested], chunk.subscription[untested])
            yield Matches(chunk.event[matched], chunk.subscription[matched])

    def candidates(self, events: Events) -> Iterator[Candidates]:
        """Yield candidates in chunks, at least one."""
        encoded = _EncodedEvents.of(events, self._segments)
        begin, size, scanned = 0, len(encoded.x), 0
        while True:
            hits = self._search(encoded.slice(begin, size))
            scanned += sum(each.scanned for each in hits)
            done = min((each.done for each in hits), default=size)
            if done < size:
                size = max(min(done, size // 2), 1)
                continue
            chunk = _sort(hits, begin, size, scanned)
            self._of_thread.scanned = self.scanned + scanned
            yield chunk
            begin, scanned = begin + size, 0
            if begin == len(encoded.x):
                return
            if 2 * len(chunk.event) <= self._pairs_at_once:
                size *= 2
            size = min(size, len(encoded.x) - begin)

    def scanned_postings(self, events: Events) -> Iterator[ScannedPostings]:
        """Yield in chunks the postings that `candidates` compares, matching or not."""
        encoded = _EncodedEvents.of(events, self._segments)
        order = _search_order(encoded.x, encoded.y, self._segments)
        for segment, number in zip(self._segments, encoded.numbers, strict=True):
            yield from segment.list_postings(encoded, number, order)

    def _search(self, encoded: _EncodedEvents) -> list[_SegmentHits]:
        """Search the segments, up to the one with which there are too many pairs."""
        order = _search_order(encoded.x, encoded.y, self._segments)
        left = self._pairs_at_once if len(order) > 1 else _NO_LIMIT
        # What does not fit is searched again. A block is searched completely or not at all; a few blocks of a long
        # batch are enough to estimate the rest.
        room = self._pairs_at_once if len(order) <= BLOCK else max(_MIN_ROOM, 4 * len(order))
        hits: list[_SegmentHits] = []
        for segment, number in zip(self._segments, encoded.numbers, strict=True):
            hits.append(segment.find(encoded, number, order, left, room))
            if hits[-1].done < len(order):
                break
            left -= hits[-1].pairs
        return hits


class _EncodedEvents(NamedTuple):
    """Events to search for: row i has the terms code[first[i]:first[i + 1]]; `numbers` maps codes for each segment."""

    x: Floats
    y: Floats
    first: Integers
    code: Numbers
    numbers: list[Numbers]

    @classmethod
    def of(cls, events: Events, segments: Sequence[_SegmentSearch]) -> Self:
        x, y = (read_only(np.asarray(c, np.float64)) for c in (events.x, events.y))
        terms = encode_terms(events.terms)
        return cls(x, y, terms.first, terms.code, [segment.dictionary.numbers(terms.texts) for segment in segments])

    def slice(self, begin: int, size: int) -> Self:
        rows = slice(begin, begin + size)
        return self._replace(x=self.x[rows], y=self.y[rows], first=self.first[begin : begin + size + 1])


class _SegmentSearch:
    """A segment with what every search of it needs."""

    def __init__(self, segment: OpenSegment) -> None:
        self.segment, self.arrays, self._dead = segment, segment.arrays, segment.dead
        self.dictionary = segment.dictionary

    def find(self, encoded: _EncodedEvents, number: Numbers, order: Numbers, most: int, room: int) -> _SegmentHits:
        """Search the segment. Stop if there are more than `most` pairs, or if it looks as if there will be.

        `room` is the size of the first output.
        """
        events, values, pairs, scanned = [], [], 0, 0
        batch = SearchBatch(order, encoded.x, encoded.y, encoded.first, encoded.code, number)
        scratch = SearchScratch.of(self.arrays, int(np.diff(encoded.first).max(initial=0)))
        most, done = min(most, len(order) * len(self.arrays.handle)), 0
        while done < len(order):
            room, is_last = min(room, most - pairs), room >= most - pairs
            event, value = np.empty(room, np.int32), np.empty(room, np.int64)
            done, written, compared = search(self.arrays, self._dead, batch, done, scratch, event, value)
            events.append(event[:written])
            values.append(value[:written])
            pairs, scanned = pairs + written, scanned + compared
            if done < len(order) and (is_last or pairs * len(order) > most * done):
                break
            room *= 8
        return _SegmentHits(events, values, pairs, scanned, done)

    def list_postings(self, encoded: _EncodedEvents, number: Numbers, order: Numbers) -> Iterator[ScannedPostings]:
        batch = SearchBatch(order, encoded.x, encoded.y, encoded.first, encoded.code, number)
        scratch = SearchScratch.of(self.arrays, int(np.diff(encoded.first).max(initial=0)))
        left, step = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
        room, done = min(len(order), BLOCK) * MAX_LISTED, 0
        while done < len(order):
            event, handle, count = np.empty(room, np.int32), np.empty(room, np.int64), np.empty(room, np.int64)
            done, written = list_postings(self.arrays, batch, done, scratch, left, step, event, handle, count)
            yield ScannedPostings(event[:written].astype(np.int64), handle[:written], count[:written])


class _SegmentHits(NamedTuple):
    """Events and, beside them, twice the handle, plus one for a residual row; in several arrays, unordered.

    The first `done` events of the search order are complete.
    """

    event: list[Numbers]
    value: list[Integers]
    pairs: int
    scanned: int
    done: int


def _search_order(x: Floats, y: Floats, segments: Sequence[_SegmentSearch]) -> Numbers:
    """Order events along the Z-order curve of the largest segment, so that neighbours are searched together."""
    key = np.empty(len(x), np.uint64)
    largest = max((segment.arrays for segment in segments), key=lambda arrays: len(arrays.handle), default=None)
    point_curve_keys(x, y, 1.0 if largest is None else float(largest.curve_scale[0]), key)
    return radix_argsort(key)


def _sort(hits: Sequence[_SegmentHits], begin: int, events: int, scanned: int) -> Candidates:
    """Merge the hits of all segments in order; `begin` is the number of the first event."""
    parts = [part for each in hits for part in zip(each.event, each.value, strict=True)]
    first = np.zeros(events + 1, np.int64)
    for event, _ in parts:
        count_candidates(event, first[1:])
    np.cumsum(first, out=first)
    ordered, next_index = np.empty(first[-1], np.int64), first[:-1].copy()
    for event, value in parts:
        group_by_event(event, value, next_index, ordered)
    if sort_short_runs(first, ordered):
        for run in np.flatnonzero(np.diff(first) > SHORT_RUN):
            ordered[first[run] : first[run + 1]].sort()
    residual = (ordered & 1).astype(np.bool_)
    ordered >>= 1
    return Candidates(np.repeat(np.arange(begin, begin + events), np.diff(first)), ordered, residual, scanned)
