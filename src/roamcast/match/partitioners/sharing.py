"""Stretches of a curve shared out among workers: evenly, and so that few events concern several workers."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["shared_out"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_EVEN: Final = 1.02  # of the mean load, that no worker exceeds if it can be helped
_ROUNDS: Final = 8
_CONSIDERED: Final = 64  # stretches of a worker, those with most load
_PRICE: Final = 2.0  # in messages for each event, to move all subscriptions


def shared_out(owner: Integers, workers: int, event: Floats, stretch: Integers, load: Floats, held: Floats) -> Integers:
    """Begins with who has the stretches now, and moves one at a time. Event, stretch and load tell of looks;
    -1 is no event: there is load without any message. `held` is each stretch's part of all subscriptions.

    First from the most loaded worker to others, until the load is even; then wherever it saves more messages than it
    costs to move the subscriptions, and the load stays even; and the first again.
    """
    sharing = _Sharing(owner, workers, event, stretch, load, held)
    sharing.even_out()
    for _ in range(_ROUNDS):
        if not sharing.save_messages():
            break
        sharing.even_out()
    return sharing.owner


class _Sharing:
    def __init__(
        self, owner: Integers, workers: int, event: Floats, stretch: Integers, load: Floats, held: Floats
    ) -> None:
        self.owner = owner.copy()
        self.workers = workers
        count = len(owner)
        self.load = np.bincount(stretch, load, minlength=count)
        self.loads = np.bincount(owner, self.load, minlength=workers)
        sent = event >= 0
        numbers, row = np.unique(event[sent], return_inverse=True)
        pairs = np.unique(row * count + stretch[sent])
        row, stretch = np.divmod(pairs, count)
        order = np.argsort(stretch, kind="stable")
        # The events that concern each stretch, and the stretches that each event concerns.
        self._events = np.split(row[order], np.searchsorted(stretch[order], np.arange(1, count)))
        self._stretches = np.split(stretch, np.searchsorted(row, np.arange(1, len(numbers))))
        # For each event how many of the stretches that it concerns each worker has.
        self._counts = np.zeros((len(numbers), workers), np.int64)
        np.add.at(self._counts, (row, owner[stretch]), 1)
        # What it costs to be elsewhere than before.
        away = np.arange(workers) != owner[:, np.newaxis]
        self._cost = _PRICE * len(numbers) * held[:, np.newaxis] * away
        self._saved = np.zeros((count, workers))
        self._is_known = np.zeros(count, np.bool_)

    def even_out(self) -> None:
        """Each time the move that costs the least for the load it shifts; of equals the one that shifts the most."""
        for _ in range(len(self.owner)):
            mean = self.loads.mean()
            source = int(self.loads.argmax())
            here = np.flatnonzero((self.owner == source) & (self.load > 0))
            if self.loads[source] <= _EVEN * mean or not len(here):
                return
            here = here[np.argsort(-self.load[here], kind="stable")[:_CONSIDERED]]
            # What a move does for the excess of one and the lack of the other.
            load = self.load[here, np.newaxis]
            useful = np.minimum(np.minimum(load, self.loads[source] - mean), mean - self.loads)
            fits = (useful > 0) & (self.loads + load < self.loads[source])
            if not fits.any():
                return
            price = np.where(fits, -self.saved(here) / np.where(fits, useful, 1.0), np.inf)
            best = np.where(price == price.min(), useful, -1.0).argmax()
            stretch, target = divmod(int(best), self.workers)
            self._move(int(here[stretch]), target)

    def save_messages(self) -> bool:
        """Whether anything was moved."""
        moved = False
        most = _EVEN * self.loads.mean()
        for stretch in np.argsort(-self.load, kind="stable").tolist():
            saved = np.where(self.loads + self.load[stretch] <= most, self.saved(np.array([stretch]))[0], 0.0)
            if saved.max() > 0:
                best = np.flatnonzero(saved == saved.max())
                self._move(stretch, int(best[self.loads[best].argmin()]))
                moved = True
        return moved

    def saved(self, stretches: Integers) -> Floats:
        """By stretch and worker: how many messages fewer there are if it goes there, less what it costs to move."""
        for stretch in stretches[~self._is_known[stretches]].tolist():
            counts, source = self._counts[self._events[stretch]], self.owner[stretch]
            fewer = (counts[:, source] == 1).sum() - (counts == 0).sum(axis=0)
            self._saved[stretch] = fewer - self._cost[stretch] + self._cost[stretch, source]
            self._saved[stretch, source] = 0.0
        self._is_known[stretches] = True
        return self._saved[stretches]

    def _move(self, stretch: int, target: int) -> None:
        source, events = int(self.owner[stretch]), self._events[stretch]
        self._counts[events, source] -= 1
        self._counts[events, target] += 1
        self.loads[source] -= self.load[stretch]
        self.loads[target] += self.load[stretch]
        self.owner[stretch] = target
        self._is_known[stretch] = False
        for event in events.tolist():
            self._is_known[self._stretches[event]] = False
