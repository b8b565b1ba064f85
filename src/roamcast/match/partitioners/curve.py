"""Our own: subscriptions in the order of a space-filling curve, cut into stretches that are shared out.

A subscription has one place on the curve, so one worker holds it: nothing is copied. Events go where a subscription
with the same cell and rarest term is, so most go to one worker, and those that nobody wants to none. Cuts are where the
load of the last while is even; when they shift, only what lies between the old ones and the new ones moves.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt

from roamcast.match.build import Rows
from roamcast.match.choosing import chosen_events
from roamcast.match.holdings import Holdings
from roamcast.match.partition import Moves, Routed
from roamcast.match.partitioners.cuts import Cuts, Looks
from roamcast.match.partitioners.places import places_of
from roamcast.match.partitioners.window import Window, sampled
from roamcast.match.port import Events, Matches
from roamcast.match.segments import Arrays

__all__ = ["Curve"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Masks = npt.NDArray[np.uint64]


class Curve:
    """Holds each subscription once."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.holdings = Holdings()
        self.cuts = Cuts.even(workers, np.empty(0))
        self._seen = Window(3)  # the columns of Looks
        self._events = 0

    def add(self, rows: Rows) -> Moves:
        term = self.holdings.choose_terms(rows)
        place = places_of(rows.handle, rows.box, term)
        if not len(self.holdings.handle):
            self.cuts = Cuts.even(self.workers, place)
        return self.holdings.add(rows, term, self._masks(place))

    def remove(self, handles: Integers) -> Moves:
        return self.holdings.remove(handles)

    def route(self, events: Events) -> Routed:
        return self.holdings.route(events)

    def observe(self, events: Events, matches: Matches) -> None:
        self.holdings.see(events)
        found = self.holdings.admitted(chosen_events(events, sampled(len(events.x))))
        looks = Looks.of(found.event, self._places(found.row))
        self._seen.put(np.stack(looks._replace(event=looks.event + self._events), axis=1))
        self._events += len(events.x)

    def balance(self) -> Moves:
        rows = self.holdings.live
        here = self._places(rows)
        self.cuts = self.cuts.balanced(self.workers, Looks(*self._seen.rows.T), here)
        self._seen.forget()
        return self.holdings.assign(rows, self._masks(here))

    def arrays(self) -> Arrays:
        at, owner = np.array(self.cuts.at, np.float64), np.array(self.cuts.owner, np.int64)
        return {**self.holdings.arrays(), **self._seen.arrays(), "cuts": at, "owner": owner}

    @classmethod
    def of_arrays(cls, workers: int, arrays: Arrays) -> Self:
        self = cls(workers)
        self.holdings, self._seen = Holdings.of_arrays(arrays), Window.of_arrays(arrays)
        self.cuts = Cuts(tuple(arrays["cuts"].tolist()), tuple(arrays["owner"].tolist()))
        self._events = int(self._seen.rows[:, 0].max(initial=-1)) + 1
        return self

    def _places(self, rows: Integers) -> Floats:
        return places_of(self.holdings.handle[rows], self.holdings.box[rows], self.holdings.term[rows])

    def _masks(self, place: Floats) -> Masks:
        return np.uint64(1) << self.cuts.workers_of(place).astype(np.uint64)
