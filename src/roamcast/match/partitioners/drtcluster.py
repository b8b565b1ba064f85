"""DRt-Cluster: categories of similar subscriptions, placed on workers, merged and moved by their correlation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from roamcast.match.index.rows import IndexRows
from roamcast.match.index.segments import Arrays
from roamcast.match.partitioners.balance import choose_moves, score_merges
from roamcast.match.partitioners.categories import Categories, CategoryParameters, FoundedCategory
from roamcast.match.port import Events, Matches
from roamcast.match.routing.features import hash_events
from roamcast.match.routing.partitioner import PlacementChanges, RoutedEvents
from roamcast.match.routing.placement import Placement

__all__ = ["Distribution", "DrtCluster", "MergeEffort"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Masks = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Settings of merging and balancing.

    Categories are merged between workers if MergeJudgePara is below `merge`, never if `between` is off. A worker is
    overloaded if it has at least `overload` / workers of the total load; the paper has 2.
    """

    merge: float = 1.0
    between: bool = True
    overload: float = 2.0


@dataclass(slots=True)
class MergeEffort:
    """The cost of merging: subscriptions that changed their category, and how many of them changed their worker."""

    relabelled: int = 0
    moved: int = 0
    merges: int = 0


class DrtCluster:
    """The partitioner of the paper; `docs/match.md` says how we read it."""

    def __init__(self, workers: int, parameters: CategoryParameters, distribution: Distribution | None = None) -> None:
        self.workers = workers
        self.distribution = distribution or Distribution()
        self.categories = Categories(parameters)
        self.placement = Placement()
        self.effort = MergeEffort()
        self.worker: Integers = np.full(parameters.max_categories + 1, -1, np.int64)
        self.load: Floats = np.zeros(parameters.max_categories + 1)

    def add(self, rows: IndexRows) -> PlacementChanges:
        term = self.placement.choose_terms(rows)
        changed = [rows.handle]
        for founded in self.categories.add_founding(rows):
            self.worker[founded.category] = self._choose_worker(founded)
            self.load[founded.category] = 0.0
            if self.categories.is_full:
                changed.append(self.categories.handle[self._merge(founded)])
        np.add.at(self.load, self.categories.of(rows.handle), 1.0)
        changes = self.placement.add(rows, term, self._masks(rows.handle))
        moved = np.setdiff1d(np.concatenate(changed), rows.handle)
        return PlacementChanges.concatenate([changes, self._reassign(moved)])

    def remove(self, handles: Integers) -> PlacementChanges:
        categories = self.categories.remove(np.asarray(handles, np.int64))
        np.add.at(self.load, categories, 1.0)
        return self.placement.remove(handles)

    def route(self, events: Events) -> RoutedEvents:
        return self.placement.route(events)

    def received_by(self, events: Events) -> tuple[Integers, Integers]:
        """Return the distinct pairs of an event and a category it is sent to, ordered by event."""
        candidates = self.placement.candidates(hash_events(events))
        category = self.categories.of(self.placement.handle[candidates.row])
        pairs = np.unique(candidates.event * np.int64(len(self.worker)) + category)
        event, category = np.divmod(pairs, np.int64(len(self.worker)))
        return event, category

    def observe(self, events: Events, matches: Matches) -> None:
        self.placement.observe(hash_events(events))
        _, category = self.received_by(events)
        np.add.at(self.load, category, self.categories.slots.size[category])
        self.categories.observe(matches.event, matches.subscription)

    def balance(self) -> PlacementChanges:
        sizes = self.categories.slots.size
        moves = choose_moves(
            self.load, sizes, np.where(sizes > 0, self.worker, -1), self.workers, self.categories.matrix,
            self.distribution.overload,
        )  # fmt: skip
        rows = [np.empty(0, np.int64)]
        for category, target in moves:
            self.worker[category] = target
            rows.append(self.categories.members(category))
        self.load[:] = 0.0
        return self._reassign(self.categories.handle[np.concatenate(rows)])

    def arrays(self) -> Arrays:
        stored = {f"category_{name}": array for name, array in self.categories.arrays().items()}
        return {**self.placement.arrays(), **stored, "worker": self.worker, "load": self.load}

    @classmethod
    def of_arrays(
        cls, workers: int, parameters: CategoryParameters, distribution: Distribution, arrays: Arrays
    ) -> Self:
        self = cls(workers, parameters, distribution)
        prefix = "category_"
        stored = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        self.categories = Categories.of_arrays(parameters, stored)
        self.placement = Placement.of_arrays(arrays)
        self.worker, self.load = arrays["worker"].copy(), arrays["load"].copy()
        return self

    def _choose_worker(self, founded: FoundedCategory) -> int:
        """Choose the worker of the most similar category; the one with the fewest subscriptions if none is similar."""
        if founded.similarity > 0:
            return int(self.worker[founded.like])
        live = self.categories.live
        held = np.bincount(
            self.worker[live[live != founded.category]],
            self.categories.slots.size[live[live != founded.category]],
            minlength=self.workers,
        )
        return int(held.argmin())

    def _merge(self, founded: FoundedCategory) -> Integers:
        """Merge until there is one category less; return the rows that changed theirs."""
        categories, size = self.categories, self.categories.slots.size
        self.effort.merges += 1
        live = size > 0
        fits = (size[:, np.newaxis] + size) <= categories.capacity
        np.fill_diagonal(fits, False)
        if categories.correlation.added and categories.parameters.correlation:
            matrix = categories.matrix
            scores = score_merges(matrix, np.where(live, self.worker, -1), live, fits)
            if not np.isnan(scores.quotient).all():
                greatest = np.nanmax(scores.quotient)
                if greatest >= self.distribution.merge or not self.distribution.between:
                    # Of equals (on a single worker all are) take the pair that correlates most.
                    own = fits & live & (self.worker[:, np.newaxis] == self.worker)
                    pairs = np.where(own & (scores.quotient == greatest)[:, np.newaxis], matrix, -1.0)
                    return self._merge_pair(*divmod(int(pairs.argmax()), len(size)))
                return self._distribute(int(np.nanargmin(scores.quotient)))
        return self._merge_pair(founded.category, founded.like)

    def _merge_pair(self, one: int, other: int) -> Integers:
        small, large = sorted((one, other), key=lambda each: (self.categories.slots.size[each], each))
        rows = self.categories.merge(small, large)
        self.load[large] += self.load[small]
        self._count_effort(rows, np.full(len(rows), self.worker[small]), np.full(len(rows), self.worker[large]))
        self.worker[small], self.load[small] = -1, 0.0
        return rows

    def _distribute(self, category: int) -> Integers:
        """Move each member of a category to the side, and there to the category, with which it correlates most."""
        categories = self.categories
        rows = categories.members(category)
        score = categories.correlation.of_rows(rows, categories.rows.category, len(self.worker))
        size, own = categories.slots.size.copy(), int(self.worker[category])
        others = (size > 0) & (np.arange(len(size)) != category)
        mine = others & (self.worker == own)
        targets = []
        for points in score:
            room = others & (size + 1 <= categories.capacity)
            side = (
                mine if points[mine].sum() >= points[others & ~mine].sum() and (mine & room).any() else others & ~mine
            )
            side = side & room if (side & room).any() else room
            # Of equals the smallest, so that members without correlation do not all go the same way.
            chosen = min(np.flatnonzero(side).tolist(), key=lambda c: (-points[c], size[c], c))
            size[chosen] += 1
            targets.append(chosen)
        into = np.array(targets, np.int64)
        self._count_effort(rows, np.full(len(rows), own), self.worker[into])
        categories.move(rows, into)
        self.worker[category], self.load[category] = -1, 0.0
        return rows

    def _count_effort(self, rows: Integers, before: Integers, after: Integers) -> None:
        self.effort.relabelled += len(rows)
        self.effort.moved += int((before != after).sum())

    def _reassign(self, handles: Integers) -> PlacementChanges:
        rows = self.placement.find(np.unique(handles))
        return self.placement.assign(rows, self._masks(self.placement.handle[rows]))

    def _masks(self, handles: Integers) -> Masks:
        return np.uint64(1) << self.worker[self.categories.of(handles)].astype(np.uint64)
