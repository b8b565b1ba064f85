"""Placement: which workers hold each subscription, and routing by the features of subscriptions."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from roamcast.match.index.rows import IndexRows, distinct, gather_ragged
from roamcast.match.index.segments import Arrays
from roamcast.match.port import Events
from roamcast.match.routing.features import (
    MIN_WIDTH,
    HashedEvents,
    RarestTerms,
    combine,
    event_features,
    hash_events,
    hash_terms,
    rarest_terms,
    row_features,
    text_hashes,
)
from roamcast.match.routing.partitioner import MAX_WORKERS, PlacementChanges, RoutedEvents, placement_changes
from roamcast.match.routing.router import Router

__all__ = ["Placement", "PlacementCandidates"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Truths = npt.NDArray[np.bool_]

_SKETCH_SIZE: Final = 1 << 16
_REMOVED: Final = np.uint64(0)
_COLUMNS: Final = ("handle", "box", "term", "second", "mask")


class PlacementCandidates(NamedTuple):
    """Distinct pairs of an event and a row that share a feature, ordered by event."""

    event: Integers
    row: Integers


class Placement:
    """Rows in the order of handles: `box`, `term` and `second` (see RarestTerms), and `mask`, a bit for each worker.

    The mask of a removed row is 0. With an infinite `min_width` there is a single cell: features are terms alone.
    """

    def __init__(self, min_width: float = MIN_WIDTH) -> None:
        self.min_width = min_width
        self.handle: Integers = np.empty(0, np.int64)
        self.box: Floats = np.empty((0, 4))
        self.term: Keys = np.empty(0, np.uint64)
        self.second: Keys = np.empty(0, np.uint64)
        self.mask: Keys = np.empty(0, np.uint64)
        self._term_counts: Integers = np.zeros(_SKETCH_SIZE, np.int64)
        self._rows_by_feature: _RowsByFeature | None = None

    def choose_terms(self, rows: IndexRows) -> RarestTerms:
        """Choose the rarest terms, counted over all subscriptions and events so far."""
        np.add.at(self._term_counts, hash_terms(rows.terms) % np.uint64(_SKETCH_SIZE), 1)
        return rarest_terms(rows, self._term_counts[text_hashes(rows.terms) % np.uint64(_SKETCH_SIZE)])

    def observe(self, events: HashedEvents) -> None:
        """Count the terms of events."""
        np.add.at(self._term_counts, events.term % np.uint64(_SKETCH_SIZE), 1)

    def add(self, rows: IndexRows, term: RarestTerms, mask: Keys) -> PlacementChanges:
        """Add rows with the workers in their masks, at least one. `assign` may change them later."""
        self.handle = np.append(self.handle, rows.handle)
        self.box = np.concatenate([self.box, rows.box])
        self.term, self.second = np.append(self.term, term.rarest), np.append(self.second, term.second)
        self.mask = np.append(self.mask, mask)
        self._rows_by_feature = None
        return placement_changes(rows.handle, np.zeros(len(mask), np.uint64), mask)

    def remove(self, handles: Integers) -> PlacementChanges:
        """Remove the rows with these handles; unknown handles are ignored."""
        rows = self.find(handles)
        changes = placement_changes(self.handle[rows], self.mask[rows], np.zeros(len(rows), np.uint64))
        self.mask[rows] = _REMOVED
        return changes

    def assign(self, rows: Integers, mask: Keys) -> PlacementChanges:
        """Assign rows to other workers."""
        changes = placement_changes(self.handle[rows], self.mask[rows], mask)
        self.mask[rows] = mask
        return changes

    @property
    def live(self) -> Integers:
        return np.flatnonzero(self.mask)

    def find(self, handles: Integers) -> Integers:
        """Return the live rows with these handles."""
        handles = np.asarray(handles, np.int64)
        if not len(self.handle):
            return np.empty(0, np.int64)
        rows = np.minimum(np.searchsorted(self.handle, handles), len(self.handle) - 1)
        live: Integers = rows[(self.handle[rows] == handles) & (self.mask[rows] != _REMOVED)]
        return live

    def candidates(self, events: HashedEvents) -> PlacementCandidates:
        """Return all rows that an event may match, and some others."""
        if self._rows_by_feature is None:
            self._compact()
            self._rows_by_feature = _RowsByFeature.of(self.box, self.term, self.min_width)
        pairs = self._rows_by_feature.find(events)
        live = self.mask[pairs.row] != _REMOVED
        return PlacementCandidates(pairs.event[live], pairs.row[live])

    def are_likely(self, events: HashedEvents, pairs: PlacementCandidates) -> Truths:
        """Return which pairs most likely match: the event is in the row's box and has its second term."""
        owner = np.repeat(np.arange(len(events.x), dtype=np.uint64), np.diff(events.first))
        second = self.second[pairs.row]
        has_second = np.isin(combine(pairs.event.astype(np.uint64), second), combine(owner, events.term))
        x, y, (min_x, min_y, max_x, max_y) = events.x[pairs.event], events.y[pairs.event], self.box[pairs.row].T
        after, before = min_x <= x, x <= max_x
        inside = np.where(min_x <= max_x, after & before, after | before) & (min_y <= y) & (y <= max_y)
        likely: Truths = inside & (has_second | (second == 0))
        return likely

    def route(self, events: Events) -> RoutedEvents:
        """Send each event to all workers with a candidate."""
        pairs = self.candidates(hash_events(events))
        return _route(pairs.event, self.mask[pairs.row])

    def make_router(self) -> Router:
        """Return a router for the current placement. Each row must have one worker."""
        rows = self.live
        worker = np.bitwise_count(self.mask[rows] - np.uint64(1)).astype(np.int64)  # the index of the one bit
        return Router.of(self.box[rows], RarestTerms(self.term[rows], self.second[rows]), worker)

    def arrays(self) -> Arrays:
        self._compact()
        columns = {name: getattr(self, name) for name in _COLUMNS}
        return {**columns, "term_counts": self._term_counts, "min_width": np.array([self.min_width])}

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> Self:
        self = cls(float(arrays["min_width"][0]))
        for name in _COLUMNS:
            setattr(self, name, arrays[name].copy())
        self._term_counts = arrays["term_counts"].copy()
        return self

    def _compact(self) -> None:
        """Drop removed rows."""
        rows = self.live
        if len(rows) < len(self.handle):
            for name in _COLUMNS:
                setattr(self, name, getattr(self, name)[rows])
            self._rows_by_feature = None


class _RowsByFeature(NamedTuple):
    """Rows ordered by feature, and the levels in use."""

    key: Keys
    row: Integers
    levels: Integers

    @classmethod
    def of(cls, box: Floats, term: Keys, min_width: float) -> _RowsByFeature:
        features, _, levels = row_features(box, term, min_width)
        order = np.argsort(features.key, kind="stable")
        return cls(features.key[order], features.of[order], levels)

    def find(self, events: HashedEvents) -> PlacementCandidates:
        features = event_features(events, self.levels)
        first, end = (np.searchsorted(self.key, features.key, side) for side in ("left", "right"))
        _, at = gather_ragged(first, end - first, np.arange(len(first)))
        event, row = np.repeat(features.of, end - first), self.row[at]
        pairs = distinct(event * np.int64(len(self.row) + 1) + row)
        return PlacementCandidates(*np.divmod(pairs, np.int64(len(self.row) + 1)))


def _route(event: Integers, mask: Keys) -> RoutedEvents:
    """Send each event to all workers in the masks beside it."""
    messages = [np.empty(0, np.int64)]
    workers = int(np.bitwise_or.reduce(mask, initial=np.uint64(0)))
    for worker in range(workers.bit_length()):
        here = event[(mask & np.uint64(1 << worker)) != 0]
        messages.append(np.unique(here) * MAX_WORKERS + worker)
    return RoutedEvents(*np.divmod(np.sort(np.concatenate(messages)), MAX_WORKERS))
