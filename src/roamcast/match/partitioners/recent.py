"""Some of the events that came lately."""

from __future__ import annotations

from typing import Final, Self

import numpy as np
import numpy.typing as npt

from roamcast.match.index.rows import gather_ragged, sample_evenly
from roamcast.match.index.segments import Arrays
from roamcast.match.routing.features import Hashed

__all__ = ["Recent"]

_MOST: Final = 1 << 16
_AT_ONCE: Final = 1 << 12


class Recent:
    """Of samples of all batches the last 65,536."""

    def __init__(self, events: Hashed | None = None) -> None:
        nothing = Hashed(np.empty(0), np.empty(0), np.zeros(1, np.int64), np.empty(0, np.uint64))
        self.events = nothing if events is None else events

    def put(self, events: Hashed) -> None:
        some = sample_evenly(len(events.x), _AT_ONCE)
        old = np.arange(max(len(self.events.x) + len(some) - _MOST, 0), len(self.events.x))
        parts = [_chosen(self.events, old), _chosen(events, some)]
        x, y, term = (np.concatenate([getattr(part, name) for part in parts]) for name in ("x", "y", "term"))
        first = np.append(parts[0].first, parts[0].first[-1] + parts[1].first[1:])
        self.events = Hashed(x, y, first, term)

    def arrays(self) -> Arrays:
        return {f"recent_{name}": array for name, array in self.events._asdict().items()}

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> Self:
        return cls(Hashed(*(arrays[f"recent_{name}"].copy() for name in Hashed._fields)))


def _chosen(events: Hashed, rows: npt.NDArray[np.int64]) -> Hashed:
    first, at = gather_ragged(events.first[:-1], np.diff(events.first), rows)
    return Hashed(events.x[rows], events.y[rows], first, events.term[at])
