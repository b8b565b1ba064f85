"""Our own: subscriptions in the order of a space-filling curve, cut into stretches that are shared out.

A subscription has one place on the curve, so one worker holds it: nothing is copied. Events go where a subscription
with their place and two of their terms is, so most go to one worker, and those that nobody wants to none. Cuts are
where the load of the last while is even; when they shift, most of what lies between them stays with who has it.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt

from roamcast.match.index.rows import IndexRows
from roamcast.match.index.segments import Arrays
from roamcast.match.partitioners.cuts import Cuts, LoadSample
from roamcast.match.partitioners.hilbert import curve_keys
from roamcast.match.partitioners.recent import Recent
from roamcast.match.port import Events, Matches
from roamcast.match.routing.features import RarestTerms, hashed_events
from roamcast.match.routing.partitioner import Moves, Routed
from roamcast.match.routing.placement import Placement
from roamcast.match.routing.router import Router

__all__ = ["Curve"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Masks = npt.NDArray[np.uint64]


class Curve:
    """Holds each subscription once."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.placement = Placement()
        self.cuts = Cuts.even(workers, np.empty(0))
        self._recent = Recent()
        self._router: Router | None = None  # of the placement as they are

    def add(self, rows: IndexRows) -> Moves:
        term = self.placement.choose_terms(rows)
        place = curve_keys(rows.handle, rows.box, term.rarest)
        if not len(self.placement.handle):
            self.cuts = Cuts.even(self.workers, place)
        self._router = None
        return self.placement.add(rows, term, self._masks(place))

    def remove(self, handles: Integers) -> Moves:
        self._router = None
        return self.placement.remove(handles)

    def route(self, events: Events) -> Routed:
        if self._router is None:
            held, rows = self.placement, self.placement.live
            term = RarestTerms(held.term[rows], held.second[rows])
            worker = np.bitwise_count(held.mask[rows] - np.uint64(1)).astype(np.int64)  # of a mask with one bit
            self._router = Router.of(held.box[rows], term, worker)
        return self._router.route(events)

    def observe(self, events: Events, matches: Matches) -> None:
        hashed = hashed_events(events)
        self.placement.see(hashed)
        self._recent.put(hashed)

    def balance(self) -> Moves:
        """As if the events since the last time came now, to the subscriptions that are here now."""
        events = self._recent.events
        found = self.placement.admitted(events)
        sent = self.placement.likely(events, found)
        place = self._places(found.row)
        looks = LoadSample.of(found.event[sent], place[sent])
        # The worker that an event comes to looks at these, too; nothing is sent for them.
        others = place[~sent & np.isin(found.event, found.event[sent])]
        rows = self.placement.live
        here = self._places(rows)
        self.cuts = self.cuts.balanced(self.workers, looks.joined(LoadSample.alone(others, np.ones(len(others)))), here)
        self._recent = Recent()
        self._router = None
        return self.placement.assign(rows, self._masks(here))

    def arrays(self) -> Arrays:
        at, owner = np.array(self.cuts.at, np.float64), np.array(self.cuts.owner, np.int64)
        return {**self.placement.arrays(), **self._recent.arrays(), "cuts": at, "owner": owner}

    @classmethod
    def of_arrays(cls, workers: int, arrays: Arrays) -> Self:
        self = cls(workers)
        self.placement, self._recent = Placement.of_arrays(arrays), Recent.of_arrays(arrays)
        self.cuts = Cuts(tuple(arrays["cuts"].tolist()), tuple(arrays["owner"].tolist()))
        return self

    def _places(self, rows: Integers) -> Floats:
        return curve_keys(self.placement.handle[rows], self.placement.box[rows], self.placement.term[rows])

    def _masks(self, place: Floats) -> Masks:
        return np.uint64(1) << self.cuts.workers_of(place).astype(np.uint64)
