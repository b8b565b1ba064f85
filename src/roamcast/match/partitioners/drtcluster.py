"""DRt-Cluster: categories of similar subscriptions, placed on workers, merged and moved by their correlation."""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt

from roamcast.match.index.rows import IndexRows, distinct
from roamcast.match.index.segments import Arrays
from roamcast.match.partitioners.categories import Categories, CategoryParameters, Distribution, MergeEffort
from roamcast.match.port import Events, Matches
from roamcast.match.routing.features import hash_events
from roamcast.match.routing.partitioner import PlacementChanges, RoutedEvents
from roamcast.match.routing.placement import Placement
from roamcast.match.routing.router import Router

__all__ = ["Distribution", "DrtCluster", "MergeEffort"]

Integers = npt.NDArray[np.int64]
Masks = npt.NDArray[np.uint64]

_PREFIX = "category_"  # of the arrays of categories


class DrtCluster:
    """The partitioner of the paper; `docs/match.md` says how we read it."""

    def __init__(self, workers: int, parameters: CategoryParameters, distribution: Distribution | None = None) -> None:
        self.workers = workers
        self.distribution = distribution or Distribution()
        self.categories = Categories(parameters, workers, self.distribution)
        self.placement = Placement()
        self._router: Router | None = None  # for the current placement

    def add(self, rows: IndexRows) -> PlacementChanges:
        term = self.placement.choose_terms(rows)
        moved = np.setdiff1d(self.categories.add(rows), rows.handle, assume_unique=True)
        self._router = None
        changes = self.placement.add(rows, term, self._masks(rows.handle))
        return PlacementChanges.concatenate([changes, self._reassign(moved)])

    def remove(self, handles: Integers) -> PlacementChanges:
        self.categories.remove(np.asarray(handles, np.int64))
        self._router = None
        return self.placement.remove(handles)

    def route(self, events: Events) -> RoutedEvents:
        if self._router is None:
            self._router = self.placement.make_router()
        return self._router.route(events)

    def received_by(self, events: Events) -> tuple[Integers, Integers]:
        """Return the distinct pairs of an event and a category it is sent to, ordered by event."""
        candidates = self.placement.candidates(hash_events(events))
        category = self.categories.of(self.placement.handle[candidates.row])
        count = np.int64(len(self.categories.slots.size))
        event, category = np.divmod(distinct(candidates.event * count + category), count)
        return event, category

    def observe(self, events: Events, matches: Matches) -> None:
        self.placement.observe(hash_events(events))
        _, category = self.received_by(events)
        self.categories.receive(category)
        self.categories.observe(matches.event, matches.subscription)

    def balance(self) -> PlacementChanges:
        self._router = None
        return self._reassign(self.categories.balance())

    @property
    def effort(self) -> MergeEffort:
        return self.categories.effort

    def arrays(self) -> Arrays:
        stored = {f"{_PREFIX}{name}": array for name, array in self.categories.arrays().items()}
        return {**self.placement.arrays(), **stored}

    @classmethod
    def of_arrays(
        cls, workers: int, parameters: CategoryParameters, distribution: Distribution, arrays: Arrays
    ) -> Self:
        self = cls(workers, parameters, distribution)
        stored = {name.removeprefix(_PREFIX): array for name, array in arrays.items() if name.startswith(_PREFIX)}
        self.categories = Categories.of_arrays(parameters, stored, workers, distribution)
        self.placement = Placement.of_arrays(arrays)
        return self

    def _reassign(self, handles: Integers) -> PlacementChanges:
        rows = self.placement.find(np.unique(handles))
        return self.placement.assign(rows, self._masks(self.placement.handle[rows]))

    def _masks(self, handles: Integers) -> Masks:
        return np.uint64(1) << self.categories.slots.worker[self.categories.of(handles)].astype(np.uint64)
