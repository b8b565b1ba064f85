"""A curve cut into ranges, each owned by a worker: which worker holds what."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.match.partitioners.assignment import assign_ranges

__all__ = ["Cuts", "LoadSample"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_RANGES: Final = 64  # for each worker
_ADJACENT: Final = 8  # ranges of one worker in a row, at first
_HELD_LOAD: Final = 0.15  # the load of holding all subscriptions, relative to the observed load
_SLACK: Final = 0.25  # of a range, on either side of a cut


class LoadSample(NamedTuple):
    """Observed load: subscriptions that were tested, for which event, their curve key, and the cost."""

    event: Floats
    key: Floats
    load: Floats

    @classmethod
    def of_candidates(cls, event: Integers, key: Floats, weight: float | Floats = 1.0) -> LoadSample:
        """Make a sample of candidates, each of which stands for `weight` candidates of its event.

        Sending an event to a worker costs as much as testing a subscription.
        """
        return cls(event.astype(np.float64), key, weight + 1 / np.bincount(event, minlength=1)[event])

    @classmethod
    def without_messages(cls, key: Floats, load: Floats) -> LoadSample:
        """Make a sample of load for which no event is sent."""
        return cls(np.full(len(key), -1.0), key, load)

    def concatenate(self, other: LoadSample) -> LoadSample:
        return LoadSample(*(np.append(*both) for both in zip(self, other, strict=True)))


class Cuts(NamedTuple):
    """Range i ends at at[i] (the last one at 1) and belongs to the worker owner[i]."""

    at: tuple[float, ...]
    owner: tuple[int, ...]

    @classmethod
    def even(cls, workers: int, key: Floats) -> Cuts:
        """Cut so that each range has about the same number of these keys.

        No worker owns all ranges of an area, because an area may become hot.
        """
        count = _RANGES * workers if workers > 1 else 1
        at = np.arange(1, count) / count
        at = _cut_evenly(at, key, np.ones(len(key))) if len(key) else at
        return cls._of(at, np.arange(count) // _ADJACENT % workers)

    @classmethod
    def _of(cls, at: Floats, owner: Integers) -> Cuts:
        return cls(tuple(at.tolist()), tuple(owner.tolist()))

    def workers_of(self, key: Floats) -> Integers:
        """Return the owner of each key."""
        workers: Integers = np.array(self.owner, np.int64)[np.searchsorted(np.array(self.at), key)]
        return workers

    def imbalance(self, workers: int, sample: LoadSample, held: Floats) -> float:
        """Return the load of the busiest worker relative to the mean, as `rebalance` counts it: 1 if it is even."""
        _, key, load = _with_held(sample, held)
        loads = np.bincount(self.workers_of(key), load, minlength=workers)
        return float(loads.max() / loads.mean()) if loads.any() else 1.0

    def rebalance(self, workers: int, sample: LoadSample, held: Floats) -> Cuts:
        """Return cuts with about even load.

        `held` are the keys of all subscriptions, or of a sample. Holding a subscription counts as load too, so that
        cold areas are spread before they become hot. Cuts may move far, but subscriptions stay with their worker unless
        there is a reason to move them.
        """
        if not len(sample.event):
            return self
        event, key, load = _with_held(sample, held)
        at = _cut_evenly(np.array(self.at), key, load)
        shares = np.bincount(np.searchsorted(at, held), minlength=len(at) + 1) / max(len(held), 1)
        owner = assign_ranges(self._inherit(at, workers, held), workers, event, np.searchsorted(at, key), load, shares)
        return self._of(at, owner)

    def _inherit(self, at: Floats, workers: int, held: Floats) -> Integers:
        """Return the worker that holds most of each new range; for an empty one, the owner of its end."""
        counts = np.zeros((len(at) + 1, workers), np.int64)
        np.add.at(counts, (np.searchsorted(at, held), self.workers_of(held)), 1)
        return np.where(counts.any(axis=1), counts.argmax(axis=1), self.workers_of(np.append(at, 1.0)))


def _with_held(sample: LoadSample, held: Floats) -> LoadSample:
    load = np.full(len(held), _HELD_LOAD * sample.load.sum() / max(len(held), 1))
    return sample.concatenate(LoadSample.without_messages(held, load))


def _cut_evenly(cuts: Floats, key: Floats, load: Floats) -> Floats:
    """Move cuts so that the ranges between them have about the same load. No cut moves farther than necessary."""
    order = np.argsort(key)
    ordered, total = key[order], np.cumsum(load[order])
    nth = np.arange(1, len(cuts) + 1)
    low, high = (
        ordered[np.minimum(np.searchsorted(total, (nth + side) / (len(cuts) + 1) * total[-1]), len(ordered) - 1)]
        for side in (-_SLACK, _SLACK)
    )
    return np.clip(cuts, low, high)
