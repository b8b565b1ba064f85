"""A curve cut into stretches, each with an owner: who holds what lies where."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.match.partitioners.sharing import shared_out

__all__ = ["Cuts", "LoadSample"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_STRETCHES: Final = 64  # for each worker
_TOGETHER: Final = 8  # stretches that lie side by side, at first; farther on the next worker's are
_HELD: Final = 0.15  # of the load of looks: the load of holding all subscriptions
_SLACK: Final = 0.25  # of a stretch, on either side of a cut


class LoadSample(NamedTuple):
    """Subscriptions that were looked at: for which event, at which place, and what it cost."""

    event: Floats
    place: Floats
    load: Floats

    @classmethod
    def of(cls, event: Integers, place: Floats) -> LoadSample:
        """An event that comes to a worker costs as much as a look at a subscription."""
        return cls(event.astype(np.float64), place, 1 + 1 / np.bincount(event, minlength=1)[event])

    @classmethod
    def alone(cls, place: Floats, load: Floats) -> LoadSample:
        """Load for which no event is sent."""
        return cls(np.full(len(place), -1.0), place, load)

    def joined(self, other: LoadSample) -> LoadSample:
        return LoadSample(*(np.append(*both) for both in zip(self, other, strict=True)))


class Cuts(NamedTuple):
    """Stretch i ends at at[i], the last at 1, and is owner[i]'s."""

    at: tuple[float, ...]
    owner: tuple[int, ...]

    @classmethod
    def even(cls, workers: int, place: Floats) -> Cuts:
        """Of about as many of what is at these places each. No worker has all of a region, which may get hot."""
        count = _STRETCHES * workers if workers > 1 else 1
        at = np.arange(1, count) / count
        at = _cut_evenly(at, place, np.ones(len(place))) if len(place) else at
        return cls._of(at, np.arange(count) // _TOGETHER % workers)

    @classmethod
    def _of(cls, at: Floats, owner: Integers) -> Cuts:
        return cls(tuple(at.tolist()), tuple(owner.tolist()))

    def workers_of(self, place: Floats) -> Integers:
        found: Integers = np.array(self.owner, np.int64)[np.searchsorted(np.array(self.at), place)]
        return found

    def unevenness(self, workers: int, looks: LoadSample, held: Floats) -> float:
        """The load of the busiest worker beside the mean, by what `balanced` counts: 1 if all have as much."""
        _, place, load = _with_held(looks, held)
        loads = np.bincount(self.workers_of(place), load, minlength=workers)
        return float(loads.max() / loads.mean()) if loads.any() else 1.0

    def balanced(self, workers: int, looks: LoadSample, held: Floats) -> Cuts:
        """Others, between which the load of these looks is about even.

        To hold a subscription is a load, too: what is cold now is spread before it gets hot. `held` are the places of
        all, or of a sample. Cuts may shift far; what lies between them stays with who has it, unless there is a reason.
        """
        if not len(looks.event):
            return self
        event, place, load = _with_held(looks, held)
        at = _cut_evenly(np.array(self.at), place, load)
        parts = np.bincount(np.searchsorted(at, held), minlength=len(at) + 1) / max(len(held), 1)
        owner = shared_out(self._heirs(at, workers, held), workers, event, np.searchsorted(at, place), load, parts)
        return self._of(at, owner)

    def _heirs(self, at: Floats, workers: int, held: Floats) -> Integers:
        """Who has most of what is in each stretch between other cuts; where nothing is, whoever has its end."""
        counts = np.zeros((len(at) + 1, workers), np.int64)
        np.add.at(counts, (np.searchsorted(at, held), self.workers_of(held)), 1)
        return np.where(counts.any(axis=1), counts.argmax(axis=1), self.workers_of(np.append(at, 1.0)))


def _with_held(looks: LoadSample, held: Floats) -> LoadSample:
    each = np.full(len(held), _HELD * looks.load.sum() / max(len(held), 1))
    return looks.joined(LoadSample.alone(held, each))


def _cut_evenly(cuts: Floats, place: Floats, load: Floats) -> Floats:
    """Cuts between stretches of about the same load, of what is at these places; none moves farther than it must."""
    order = np.argsort(place)
    ordered, total = place[order], np.cumsum(load[order])
    share = np.arange(1, len(cuts) + 1)
    low, high = (
        ordered[np.minimum(np.searchsorted(total, (share + side) / (len(cuts) + 1) * total[-1]), len(ordered) - 1)]
        for side in (-_SLACK, _SLACK)
    )
    return np.clip(cuts, low, high)
