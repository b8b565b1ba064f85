"""DRt-Cluster: categories of like subscriptions, placed on workers, merged and moved as they correlate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from roamcast.match.index.rows import IndexRows
from roamcast.match.index.segments import Arrays
from roamcast.match.partitioners.balance import judge, relieve
from roamcast.match.partitioners.categories import Categories, Founded, Parameters
from roamcast.match.port import Events, Matches
from roamcast.match.routing.features import hashed_events
from roamcast.match.routing.partitioner import Moves, Routed
from roamcast.match.routing.placement import Placement

__all__ = ["Distribution", "DrtCluster", "Effort"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Masks = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Distribution:
    """`merge`: below it, merging goes between nodes (never, if `between` is off). A worker is overloaded from
    `overload` / workers of the total load on; the paper has 2."""

    merge: float = 1.0
    between: bool = True
    overload: float = 2.0


@dataclass(slots=True)
class Effort:
    """What merging has cost: subscriptions that changed their category, and those of them that changed their worker."""

    relabelled: int = 0
    moved: int = 0
    merges: int = 0


class DrtCluster:
    """Follows the paper; see `docs/match.md` for how it is read."""

    def __init__(self, workers: int, parameters: Parameters, distribution: Distribution | None = None) -> None:
        self.workers = workers
        self.distribution = distribution or Distribution()
        self.categories = Categories(parameters)
        self.placement = Placement()
        self.effort = Effort()
        self.worker: Integers = np.full(parameters.most + 1, -1, np.int64)
        self.load: Floats = np.zeros(parameters.most + 1)

    def add(self, rows: IndexRows) -> Moves:
        term = self.placement.choose_terms(rows)
        changed = [rows.handle]
        for founded in self.categories.founding(rows):
            self.worker[founded.category] = self._place(founded)
            self.load[founded.category] = 0.0
            if self.categories.is_full:
                changed.append(self.categories.handle[self._merge(founded)])
        np.add.at(self.load, self.categories.of(rows.handle), 1.0)
        moves = self.placement.add(rows, term, self._masks(rows.handle))
        moved = np.setdiff1d(np.concatenate(changed), rows.handle)
        return Moves.joined([moves, self._reassigned(moved)])

    def remove(self, handles: Integers) -> Moves:
        was = self.categories.remove(np.asarray(handles, np.int64))
        np.add.at(self.load, was, 1.0)
        return self.placement.remove(handles)

    def route(self, events: Events) -> Routed:
        return self.placement.route(events)

    def received(self, events: Events) -> tuple[Integers, Integers]:
        """Pairs of an event and a category it is sent to, each once, ordered by event."""
        found = self.placement.admitted(hashed_events(events))
        category = self.categories.of(self.placement.handle[found.row])
        pairs = np.unique(found.event * np.int64(len(self.worker)) + category)
        event, category = np.divmod(pairs, np.int64(len(self.worker)))
        return event, category

    def observe(self, events: Events, matches: Matches) -> None:
        self.placement.see(hashed_events(events))
        _, category = self.received(events)
        np.add.at(self.load, category, self.categories.slots.size[category])
        self.categories.observe(matches.event, matches.subscription)

    def balance(self) -> Moves:
        sizes = self.categories.slots.size
        moved = relieve(
            self.load, sizes, np.where(sizes > 0, self.worker, -1), self.workers, self.categories.matrix,
            self.distribution.overload,
        )  # fmt: skip
        rows = [np.empty(0, np.int64)]
        for category, target in moved:
            self.worker[category] = target
            rows.append(self.categories.members(category))
        self.load[:] = 0.0
        return self._reassigned(self.categories.handle[np.concatenate(rows)])

    def arrays(self) -> Arrays:
        kept = {f"category_{name}": array for name, array in self.categories.arrays().items()}
        return {**self.placement.arrays(), **kept, "worker": self.worker, "load": self.load}

    @classmethod
    def of_arrays(cls, workers: int, parameters: Parameters, distribution: Distribution, arrays: Arrays) -> Self:
        self = cls(workers, parameters, distribution)
        prefix = "category_"
        kept = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        self.categories = Categories.of_arrays(parameters, kept)
        self.placement = Placement.of_arrays(arrays)
        self.worker, self.load = arrays["worker"].copy(), arrays["load"].copy()
        return self

    def _place(self, founded: Founded) -> int:
        """On the worker of the most similar category; on the least loaded one, if it is like none."""
        if founded.similarity > 0:
            return int(self.worker[founded.like])
        live = self.categories.live
        held = np.bincount(
            self.worker[live[live != founded.category]],
            self.categories.slots.size[live[live != founded.category]],
            minlength=self.workers,
        )
        return int(held.argmin())

    def _merge(self, founded: Founded) -> Integers:
        """One category less. Returns the rows of those that changed theirs."""
        categories, size = self.categories, self.categories.slots.size
        self.effort.merges += 1
        live = size > 0
        fits = (size[:, np.newaxis] + size) <= categories.room
        np.fill_diagonal(fits, False)
        if categories.correlation.seen and categories.parameters.correlation:
            matrix = categories.matrix
            judged = judge(matrix, np.where(live, self.worker, -1), live, fits)
            if not np.isnan(judged.quotient).all():
                greatest = np.nanmax(judged.quotient)
                if greatest >= self.distribution.merge or not self.distribution.between:
                    # Of equals, such as on one worker all are, the pair that correlates most.
                    own = fits & live & (self.worker[:, np.newaxis] == self.worker)
                    pairs = np.where(own & (judged.quotient == greatest)[:, np.newaxis], matrix, -1.0)
                    return self._absorbed(*divmod(int(pairs.argmax()), len(size)))
                return self._distributed(int(np.nanargmin(judged.quotient)))
        return self._absorbed(founded.category, founded.like)

    def _absorbed(self, one: int, other: int) -> Integers:
        small, large = sorted((one, other), key=lambda each: (self.categories.slots.size[each], each))
        rows = self.categories.absorb(small, large)
        self.load[large] += self.load[small]
        self._count(rows, np.full(len(rows), self.worker[small]), np.full(len(rows), self.worker[large]))
        self.worker[small], self.load[small] = -1, 0.0
        return rows

    def _distributed(self, category: int) -> Integers:
        """The members of a category go one by one to the side they correlate with more, and there to the category."""
        categories = self.categories
        rows = categories.members(category)
        score = categories.correlation.of_rows(rows, categories.rows.category, len(self.worker))
        size, own = categories.slots.size.copy(), int(self.worker[category])
        others = (size > 0) & (np.arange(len(size)) != category)
        mine = others & (self.worker == own)
        targets = []
        for points in score:
            room = others & (size + 1 <= categories.room)
            side = (
                mine if points[mine].sum() >= points[others & ~mine].sum() and (mine & room).any() else others & ~mine
            )
            side = side & room if (side & room).any() else room
            # Of equals the smallest, so that those without any correlation do not all go the same way.
            chosen = min(np.flatnonzero(side).tolist(), key=lambda c: (-points[c], size[c], c))
            size[chosen] += 1
            targets.append(chosen)
        into = np.array(targets, np.int64)
        self._count(rows, np.full(len(rows), own), self.worker[into])
        categories.move(rows, into)
        self.worker[category], self.load[category] = -1, 0.0
        return rows

    def _count(self, rows: Integers, before: Integers, after: Integers) -> None:
        self.effort.relabelled += len(rows)
        self.effort.moved += int((before != after).sum())

    def _reassigned(self, handles: Integers) -> Moves:
        rows = self.placement.find(np.unique(handles))
        return self.placement.assign(rows, self._masks(self.placement.handle[rows]))

    def _masks(self, handles: Integers) -> Masks:
        return np.uint64(1) << self.worker[self.categories.of(handles)].astype(np.uint64)
