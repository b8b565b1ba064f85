"""Assign ranges of a curve to workers: evenly, and so that few events go to several workers."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["assign_ranges"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_MAX_LOAD: Final = 1.02  # of the mean; no worker has more if that is possible
_ROUNDS: Final = 8
_CONSIDERED: Final = 64  # ranges of a worker, those with the most load
_MOVE_COST: Final = 2.0  # of moving all subscriptions, in messages per event


def assign_ranges(
    owner: Integers, workers: int, event: Floats, range_of: Integers, load: Floats, held: Floats
) -> Integers:
    """Return the new owner of each range. Starts from `owner` and moves one range at a time.

    `event`, `range_of` and `load` describe the observed load; event -1 is load without a message. `held` is the share
    of all subscriptions in each range.

    First moves ranges from the most loaded worker to others until the load is even. Then moves ranges where this saves
    more messages than moving their subscriptions costs, if the load stays even. Repeats both.
    """
    assignment = _RangeAssignment(owner, workers, event, range_of, load, held)
    assignment.even_out()
    for _ in range(_ROUNDS):
        if not assignment.save_messages():
            break
        assignment.even_out()
    return assignment.owner


class _RangeAssignment:
    def __init__(
        self, owner: Integers, workers: int, event: Floats, range_of: Integers, load: Floats, held: Floats
    ) -> None:
        self.owner = owner.copy()
        self.workers = workers
        count = len(owner)
        self.load = np.bincount(range_of, load, minlength=count)
        self.worker_load = np.bincount(owner, self.load, minlength=workers)
        sent = event >= 0
        events, row = np.unique(event[sent], return_inverse=True)
        pairs = np.unique(row * count + range_of[sent])
        row, at = np.divmod(pairs, count)
        order = np.argsort(at, kind="stable")
        self._events_of_range = np.split(row[order], np.searchsorted(at[order], np.arange(1, count)))
        self._ranges_of_event = np.split(at, np.searchsorted(row, np.arange(1, len(events))))
        # By event and worker: how many ranges of the event the worker owns.
        self._counts = np.zeros((len(events), workers), np.int64)
        np.add.at(self._counts, (row, owner[at]), 1)
        # By range and worker: what it costs if the range moves there from its first owner.
        moved = np.arange(workers) != owner[:, np.newaxis]
        self._cost = _MOVE_COST * len(events) * held[:, np.newaxis] * moved
        self._savings = np.zeros((count, workers))
        self._is_current = np.zeros(count, np.bool_)

    def even_out(self) -> None:
        """Move the range that costs least for the load it shifts (of equals, the one that shifts most), repeatedly."""
        for _ in range(len(self.owner)):
            mean = self.worker_load.mean()
            source = int(self.worker_load.argmax())
            here = np.flatnonzero((self.owner == source) & (self.load > 0))
            if self.worker_load[source] <= _MAX_LOAD * mean or not len(here):
                return
            here = here[np.argsort(-self.load[here], kind="stable")[:_CONSIDERED]]
            # By how much a move reduces the excess of the source and the deficit of the target.
            load = self.load[here, np.newaxis]
            useful = np.minimum(np.minimum(load, self.worker_load[source] - mean), mean - self.worker_load)
            fits = (useful > 0) & (self.worker_load + load < self.worker_load[source])
            if not fits.any():
                return
            price = np.where(fits, -self.savings(here) / np.where(fits, useful, 1.0), np.inf)
            best = np.where(price == price.min(), useful, -1.0).argmax()
            row, target = divmod(int(best), self.workers)
            self._move(int(here[row]), target)

    def save_messages(self) -> bool:
        """Move each range to the worker that saves most messages; return whether any moved."""
        moved = False
        limit = _MAX_LOAD * self.worker_load.mean()
        for at in np.argsort(-self.load, kind="stable").tolist():
            fits = self.worker_load + self.load[at] <= limit
            savings = np.where(fits, self.savings(np.array([at]))[0], 0.0)
            if savings.max() > 0:
                best = np.flatnonzero(savings == savings.max())
                self._move(at, int(best[self.worker_load[best].argmin()]))
                moved = True
        return moved

    def savings(self, ranges: Integers) -> Floats:
        """Return, by range and worker, the messages saved if the range moves there, less the cost of the move."""
        for at in ranges[~self._is_current[ranges]].tolist():
            counts, source = self._counts[self._events_of_range[at]], self.owner[at]
            saved = (counts[:, source] == 1).sum() - (counts == 0).sum(axis=0)
            self._savings[at] = saved - self._cost[at] + self._cost[at, source]
            self._savings[at, source] = 0.0
        self._is_current[ranges] = True
        return self._savings[ranges]

    def _move(self, at: int, target: int) -> None:
        source, events = int(self.owner[at]), self._events_of_range[at]
        self._counts[events, source] -= 1
        self._counts[events, target] += 1
        self.worker_load[source] -= self.load[at]
        self.worker_load[target] += self.load[at]
        self.owner[at] = target
        self._is_current[at] = False
        for event in events.tolist():
            self._is_current[self._ranges_of_event[event]] = False
