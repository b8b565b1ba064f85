"""The curve partitioner, our own: subscriptions in the order of a Hilbert curve, cut into ranges.

A subscription has one key on the curve, so one worker holds it and nothing is copied. Events are routed by cell and two
terms: most go to one worker, and those that match nothing to none. Cuts follow the load of recent events; when they
move, most subscriptions stay with their worker.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt

from roamcast.match.index.rows import IndexRows
from roamcast.match.index.segments import Arrays
from roamcast.match.partitioners.cuts import Cuts, LoadSample
from roamcast.match.partitioners.hilbert import curve_keys
from roamcast.match.partitioners.samples import EventSample
from roamcast.match.port import Events, Matches
from roamcast.match.routing.features import hash_events
from roamcast.match.routing.partitioner import PlacementChanges, RoutedEvents
from roamcast.match.routing.placement import Placement
from roamcast.match.routing.router import Router

__all__ = ["CurvePartitioner"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Masks = npt.NDArray[np.uint64]


class CurvePartitioner:
    """Places each subscription on one worker."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.placement = Placement()
        self.cuts = Cuts.even(workers, np.empty(0))
        self._sample = EventSample()
        self._router: Router | None = None  # for the current placement

    def add(self, rows: IndexRows) -> PlacementChanges:
        term = self.placement.choose_terms(rows)
        key = curve_keys(rows.handle, rows.box, term.rarest)
        if not len(self.placement.handle):
            self.cuts = Cuts.even(self.workers, key)
        self._router = None
        return self.placement.add(rows, term, self._masks(key))

    def remove(self, handles: Integers) -> PlacementChanges:
        self._router = None
        return self.placement.remove(handles)

    def route(self, events: Events) -> RoutedEvents:
        if self._router is None:
            self._router = self.placement.make_router()
        return self._router.route(events)

    def observe(self, events: Events, matches: Matches) -> None:
        hashed = hash_events(events)
        self.placement.observe(hashed)
        self._sample.add(hashed)

    def balance(self) -> PlacementChanges:
        """Rebalance as if the sampled events came now, to the current subscriptions."""
        events = self._sample.events
        pairs = self.placement.candidates(events)
        is_sent = self.placement.are_likely(events, pairs)
        keys = curve_keys(self.placement.handle, self.placement.box, self.placement.term)
        key = keys[pairs.row]
        sent = LoadSample.of_candidates(pairs.event[is_sent], key[is_sent])
        # The worker that receives an event tests these candidates too; no message is sent for them.
        others = key[~is_sent & np.isin(pairs.event, pairs.event[is_sent])]
        sample = sent.concatenate(LoadSample.without_messages(others, np.ones(len(others))))
        rows = self.placement.live
        held = keys[rows]
        self.cuts = self.cuts.rebalance(self.workers, sample, held)
        self._sample = EventSample()
        self._router = None
        return self.placement.assign(rows, self._masks(held))

    def arrays(self) -> Arrays:
        at, owner = np.array(self.cuts.at, np.float64), np.array(self.cuts.owner, np.int64)
        return {**self.placement.arrays(), **self._sample.arrays(), "cuts": at, "owner": owner}

    @classmethod
    def of_arrays(cls, workers: int, arrays: Arrays) -> Self:
        self = cls(workers)
        self.placement, self._sample = Placement.of_arrays(arrays), EventSample.of_arrays(arrays)
        self.cuts = Cuts(tuple(arrays["cuts"].tolist()), tuple(arrays["owner"].tolist()))
        return self

    def _masks(self, key: Floats) -> Masks:
        return np.uint64(1) << self.cuts.workers_of(key).astype(np.uint64)
