"""Our own: subscriptions in the order of a space-filling curve, cut into one stretch for each worker.

A subscription has one place on the curve, so one worker holds it: nothing is copied. Events go where a subscription
with the same cell and rarest term is, so most go to one worker, and those that nobody wants to none. Cuts are where the
load of the last while is even; when they shift, only what lies between the old ones and the new ones moves.
"""

from __future__ import annotations

from typing import Final, Self

import numpy as np
import numpy.typing as npt

from roamcast.match.build import Rows
from roamcast.match.categories import bounded
from roamcast.match.choosing import chosen_events
from roamcast.match.holdings import Holdings
from roamcast.match.partition import Moves, Routed
from roamcast.match.partitioners.sharing import shared_out
from roamcast.match.partitioners.window import Window, sampled
from roamcast.match.port import Events, Matches
from roamcast.match.segments import Arrays

__all__ = ["Curve", "cut_evenly", "places_of"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Masks = npt.NDArray[np.uint64]

_BITS: Final = 18  # of each axis on the curve
_OCTAVES: Final = 32  # that coordinates reach over, on either side of 0
_STRETCHES: Final = 64  # for each worker
_HELD: Final = 0.5  # of the load of looks: the load of holding all subscriptions
_SLACK: Final = 0.25  # of a stretch, on either side of a cut
_PRIME: Final = np.uint64(0x9E3779B97F4A7C15)


def places_of(handle: Integers, box: Floats, term: Keys) -> Floats:
    """Where subscriptions are on the curve, from 0 to 1: by the centres of their boxes, then by term, then by handle.

    Axes are logarithmic, so that the curve reaches as far as coordinates do, and is fine where they are small.
    """
    ours = bounded(box)
    centre = (ours[:, :2] + ours[:, 2:]) / 2
    along = 0.5 + np.sign(centre) * np.log2(1 + np.abs(centre)) / (2 * _OCTAVES)
    cell = np.clip(along * 2**_BITS, 0, 2**_BITS - 1).astype(np.int64)
    by_term, by_handle = (((c.astype(np.uint64) * _PRIME) >> np.uint64(56)).astype(np.float64) for c in (term, handle))
    return (_hilbert(cell[:, 0], cell[:, 1]) + (by_term + by_handle / 256) / 256) / 4**_BITS


def _hilbert(x: Integers, y: Integers) -> Floats:
    """The place of a cell on Hilbert's curve: neighbours on the curve are neighbours in the plane."""
    place = np.zeros(len(x), np.int64)
    x, y = x.copy(), y.copy()
    for bit in reversed(range(_BITS)):
        side = 1 << bit
        right, above = (x & side) > 0, (y & side) > 0
        place += side * side * ((3 * right) ^ above)
        flip = ~above & right
        x[flip], y[flip] = side - 1 - (x[flip] & (side - 1)), side - 1 - (y[flip] & (side - 1))
        turn = ~above
        x[turn], y[turn] = y[turn], x[turn].copy()
        x, y = x & (side - 1), y & (side - 1)
    return place.astype(np.float64)


def cut_evenly(cuts: Floats, place: Floats, load: Floats) -> Floats:
    """Cuts between stretches of about the same load, of what is at these places; none moves farther than it must."""
    order = np.argsort(place)
    ordered, total = place[order], np.cumsum(load[order])
    share = np.arange(1, len(cuts) + 1)
    low, high = (
        ordered[np.minimum(np.searchsorted(total, (share + side) / (len(cuts) + 1) * total[-1]), len(ordered) - 1)]
        for side in (-_SLACK, _SLACK)
    )
    return np.clip(cuts, low, high)


class Curve:
    """Holds each subscription once. Stretch i, between cuts i-1 and i, is the worker's that `owner` says."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.holdings = Holdings()
        count = _STRETCHES * workers if workers > 1 else 1
        self.cuts: Floats = np.arange(1, count) / count
        self.owner: Integers = np.arange(count) * workers // count
        self._seen = Window(3)  # an event, the place of a subscription that was looked at for it, and what that cost
        self._events = 0

    def add(self, rows: Rows) -> Moves:
        term = self.holdings.choose_terms(rows)
        place = places_of(rows.handle, rows.box, term)
        if not len(self.holdings.handle) and len(place):
            self.cuts = cut_evenly(self.cuts, place, np.ones(len(place)))
        return self.holdings.add(rows, term, self._masks(place))

    def remove(self, handles: Integers) -> Moves:
        return self.holdings.remove(handles)

    def route(self, events: Events) -> Routed:
        return self.holdings.route(events)

    def observe(self, events: Events, matches: Matches) -> None:
        self.holdings.see(events)
        found = self.holdings.admitted(chosen_events(events, sampled(len(events.x))))
        # An event that comes to a worker costs as much as a look at a subscription.
        cost = 1 + 1 / np.bincount(found.event, minlength=1)[found.event]
        self._seen.put(np.stack([found.event + self._events, self._places(found.row), cost], axis=1))
        self._events += len(events.x)

    def balance(self) -> Moves:
        rows = self.holdings.live
        here, seen = self._places(rows), self._seen.rows
        if len(seen):
            event, place, load = np.concatenate([seen, self._held(here, seen[:, 2].sum())]).T
            self.cuts = cut_evenly(self.cuts, place, load)
            self.owner = shared_out(self.owner, self.workers, event, np.searchsorted(self.cuts, place), load)
            self._seen.forget()
        return self.holdings.assign(rows, self._masks(here))

    def _held(self, place: Floats, load: float) -> Floats:
        """To hold a subscription is a load, too: what is cold now is spread before it gets hot."""
        alone = -1.0 - np.arange(len(place))
        return np.stack([alone, place, np.full(len(place), _HELD * load / len(place))], axis=1)

    def arrays(self) -> Arrays:
        return {**self.holdings.arrays(), **self._seen.arrays(), "cuts": self.cuts, "owner": self.owner}

    @classmethod
    def of_arrays(cls, workers: int, arrays: Arrays) -> Self:
        self = cls(workers)
        self.holdings, self._seen = Holdings.of_arrays(arrays), Window.of_arrays(arrays)
        self.cuts, self.owner = arrays["cuts"].copy(), arrays["owner"].copy()
        self._events = int(self._seen.rows[:, 0].max(initial=-1)) + 1
        return self

    def _places(self, rows: Integers) -> Floats:
        return places_of(self.holdings.handle[rows], self.holdings.box[rows], self.holdings.term[rows])

    def _masks(self, place: Floats) -> Masks:
        return np.uint64(1) << self.owner[np.searchsorted(self.cuts, place)].astype(np.uint64)
