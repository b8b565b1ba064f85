"""The hashing partitioner: by the hash of a subscription's rarest term, wherever its box is."""

from __future__ import annotations

import math
from typing import Self

import numpy as np
import numpy.typing as npt

from roamcast.match.index.rows import IndexRows
from roamcast.match.index.segments import Arrays
from roamcast.match.port import Events, Matches
from roamcast.match.routing.features import hash_events
from roamcast.match.routing.partitioner import PlacementChanges, RoutedEvents
from roamcast.match.routing.placement import Placement

__all__ = ["Hashing"]

Integers = npt.NDArray[np.int64]


class Hashing:
    """Sends an event to the workers of those of its terms that are some subscription's rarest. Never moves anything."""

    def __init__(self, workers: int, placement: Placement | None = None) -> None:
        self.workers = workers
        self.placement = placement or Placement(math.inf)

    def add(self, rows: IndexRows) -> PlacementChanges:
        term = self.placement.choose_terms(rows)
        worker = (term.rarest >> np.uint64(32)) % np.uint64(self.workers)
        return self.placement.add(rows, term, np.uint64(1) << worker)

    def remove(self, handles: Integers) -> PlacementChanges:
        return self.placement.remove(handles)

    def route(self, events: Events) -> RoutedEvents:
        return self.placement.route(events)

    def observe(self, events: Events, matches: Matches) -> None:
        self.placement.observe(hash_events(events))

    def balance(self) -> PlacementChanges:
        return PlacementChanges.concatenate([])

    def arrays(self) -> Arrays:
        return self.placement.arrays()

    @classmethod
    def of_arrays(cls, workers: int, arrays: Arrays) -> Self:
        return cls(workers, Placement.of_arrays(arrays))
