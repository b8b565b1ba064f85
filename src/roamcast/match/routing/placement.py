"""Who holds what: for each subscription its workers, and its features, by which events are routed to them."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from roamcast.match.index.rows import IndexRows, gather_ragged
from roamcast.match.index.segments import Arrays
from roamcast.match.port import Events
from roamcast.match.routing.features import (
    INTERVAL,
    Hashed,
    RarestTerms,
    features_of_events,
    features_of_rows,
    hashed_events,
    hashed_terms,
    mixed,
    rarest_terms,
    text_hashes,
)
from roamcast.match.routing.partitioner import MAX_WORKERS, Moves, Routed, moves_between

__all__ = ["Admitted", "Placement"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Truths = npt.NDArray[np.bool_]

_SKETCH: Final = 1 << 16
_GONE: Final = np.uint64(0)
_COLUMNS: Final = ("handle", "box", "term", "second", "mask")


class Admitted(NamedTuple):
    """Pairs of an event and a row that have a feature in common, each once, ordered by event."""

    event: Integers
    row: Integers


class Placement:
    """By row, in the order of handles: `box`, `term` and `second` (see RarestTerms), and `mask`: a bit for each worker;
    0: gone.

    With an infinite `interval` there is one cell, the world: features are terms alone.
    """

    def __init__(self, interval: float = INTERVAL) -> None:
        self.interval = interval
        self.handle: Integers = np.empty(0, np.int64)
        self.box: Floats = np.empty((0, 4))
        self.term: Keys = np.empty(0, np.uint64)
        self.second: Keys = np.empty(0, np.uint64)
        self.mask: Keys = np.empty(0, np.uint64)
        self._often: Integers = np.zeros(_SKETCH, np.int64)
        self._posted: _Posted | None = None

    def choose_terms(self, rows: IndexRows) -> RarestTerms:
        """By all subscriptions and events that were seen."""
        np.add.at(self._often, hashed_terms(rows.terms) % np.uint64(_SKETCH), 1)
        return rarest_terms(rows, self._often[text_hashes(rows.terms) % np.uint64(_SKETCH)])

    def see(self, events: Hashed) -> None:
        np.add.at(self._often, events.term % np.uint64(_SKETCH), 1)

    def add(self, rows: IndexRows, term: RarestTerms, mask: Keys) -> Moves:
        """`mask` has a bit at least. Those of `rows` may change later by `assign`."""
        self.handle = np.append(self.handle, rows.handle)
        self.box = np.concatenate([self.box, rows.box])
        self.term, self.second = np.append(self.term, term.rarest), np.append(self.second, term.second)
        self.mask = np.append(self.mask, mask)
        self._posted = None
        return moves_between(rows.handle, np.zeros(len(mask), np.uint64), mask)

    def remove(self, handles: Integers) -> Moves:
        rows = self.find(handles)
        moves = moves_between(self.handle[rows], self.mask[rows], np.zeros(len(rows), np.uint64))
        self.mask[rows] = _GONE
        return moves

    def assign(self, rows: Integers, mask: Keys) -> Moves:
        """Others hold these rows now."""
        moves = moves_between(self.handle[rows], self.mask[rows], mask)
        self.mask[rows] = mask
        return moves

    @property
    def live(self) -> Integers:
        return np.flatnonzero(self.mask)

    def find(self, handles: Integers) -> Integers:
        """The rows of those that are here."""
        handles = np.asarray(handles, np.int64)
        if not len(self.handle):
            return np.empty(0, np.int64)
        rows = np.minimum(np.searchsorted(self.handle, handles), len(self.handle) - 1)
        found: Integers = rows[(self.handle[rows] == handles) & (self.mask[rows] != _GONE)]
        return found

    def admitted(self, events: Hashed) -> Admitted:
        """All rows that an event may match, and some others."""
        if self._posted is None:
            self._compact()
            self._posted = _Posted.of(self.box, self.term, self.interval)
        found = self._posted.find(events)
        kept = self.mask[found.row] != _GONE
        return Admitted(found.event[kept], found.row[kept])

    def likely(self, events: Hashed, found: Admitted) -> Truths:
        """Which of these pairs most likely match: the event is in the box of the row, and has its second term, too."""
        owner = np.repeat(np.arange(len(events.x), dtype=np.uint64), np.diff(events.first))
        second = self.second[found.row]
        has = np.isin(mixed(found.event.astype(np.uint64), second), mixed(owner, events.term))
        x, y, (min_x, min_y, max_x, max_y) = events.x[found.event], events.y[found.event], self.box[found.row].T
        after, before = min_x <= x, x <= max_x
        inside = np.where(min_x <= max_x, after & before, after | before) & (min_y <= y) & (y <= max_y)
        likely: Truths = inside & (has | (second == 0))
        return likely

    def route(self, events: Events) -> Routed:
        found = self.admitted(hashed_events(events))
        return _routed(found.event, self.mask[found.row])

    def arrays(self) -> Arrays:
        self._compact()
        columns = {name: getattr(self, name) for name in _COLUMNS}
        return {**columns, "often": self._often, "interval": np.array([self.interval])}

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> Self:
        self = cls(float(arrays["interval"][0]))
        for name in _COLUMNS:
            setattr(self, name, arrays[name].copy())
        self._often = arrays["often"].copy()
        return self

    def _compact(self) -> None:
        rows = self.live
        if len(rows) < len(self.handle):
            for name in _COLUMNS:
                setattr(self, name, getattr(self, name)[rows])
            self._posted = None


class _Posted(NamedTuple):
    """IndexRows by feature, in the order of features; and the levels there are."""

    key: Keys
    row: Integers
    levels: Integers

    @classmethod
    def of(cls, box: Floats, term: Keys, interval: float) -> _Posted:
        features, _, levels = features_of_rows(box, term, interval)
        order = np.argsort(features.key, kind="stable")
        return cls(features.key[order], features.of[order], levels)

    def find(self, events: Hashed) -> Admitted:
        asked = features_of_events(events, self.levels)
        first, end = (np.searchsorted(self.key, asked.key, side) for side in ("left", "right"))
        _, at = gather_ragged(first, end - first, np.arange(len(first)))
        event, row = np.repeat(asked.of, end - first), self.row[at]
        found = np.unique(event * np.int64(len(self.row) + 1) + row)
        return Admitted(*np.divmod(found, np.int64(len(self.row) + 1)))


def _routed(event: Integers, mask: Keys) -> Routed:
    """Each event to all workers in the masks beside it."""
    found = [np.empty(0, np.int64)]
    concerned = int(np.bitwise_or.reduce(mask, initial=np.uint64(0)))
    for worker in range(concerned.bit_length()):
        here = event[(mask & np.uint64(1 << worker)) != 0]
        found.append(np.unique(here) * MAX_WORKERS + worker)
    return Routed(*np.divmod(np.sort(np.concatenate(found)), MAX_WORKERS))
