"""By the hash of a subscription's rarest term. Space plays no part."""

from __future__ import annotations

import math
from typing import Self

import numpy as np
import numpy.typing as npt

from roamcast.match.index.rows import IndexRows
from roamcast.match.index.segments import Arrays
from roamcast.match.port import Events, Matches
from roamcast.match.routing.features import hashed_events
from roamcast.match.routing.partitioner import Moves, Routed
from roamcast.match.routing.placement import Placement

__all__ = ["Hashing"]

Integers = npt.NDArray[np.int64]


class Hashing:
    """An event goes to the workers of those of its terms that somebody is posted under. Never moves anything."""

    def __init__(self, workers: int, placement: Placement | None = None) -> None:
        self.workers = workers
        self.placement = placement or Placement(math.inf)

    def add(self, rows: IndexRows) -> Moves:
        term = self.placement.choose_terms(rows)
        worker = (term.rarest >> np.uint64(32)) % np.uint64(self.workers)
        return self.placement.add(rows, term, np.uint64(1) << worker)

    def remove(self, handles: Integers) -> Moves:
        return self.placement.remove(handles)

    def route(self, events: Events) -> Routed:
        return self.placement.route(events)

    def observe(self, events: Events, matches: Matches) -> None:
        self.placement.see(hashed_events(events))

    def balance(self) -> Moves:
        return Moves.joined([])

    def arrays(self) -> Arrays:
        return self.placement.arrays()

    @classmethod
    def of_arrays(cls, workers: int, arrays: Arrays) -> Self:
        return cls(workers, Placement.of_arrays(arrays))
