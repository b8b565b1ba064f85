"""The reference of DRt-Cluster: computes all similarities and correlations from the members and events.

Tests compare `categories` and `balance` with it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from typing import TypeAlias

from roamcast.match.kernels.merging import MIN_CAPACITY
from roamcast.match.partitioners.categories import CategoryParameters, Distribution
from roamcast.match.partitioners.drtcluster import MergeEffort

__all__ = ["ReferenceCategories"]

Box: TypeAlias = tuple[float, float, float, float]


class ReferenceCategories:
    """By category, all of them lists: the handles of its members (none if it is free), its box, worker and load."""

    def __init__(self, parameters: CategoryParameters, workers: int, distribution: Distribution) -> None:
        self.parameters, self.workers, self.distribution = parameters, workers, distribution
        count = parameters.max_categories + 1
        self.members: list[list[int]] = [[] for _ in range(count)]
        self.bounds: list[Box | None] = [None] * count
        self.worker = [-1] * count
        self.load = [0.0] * count
        self.box: dict[int, Box] = {}
        self.terms: dict[int, frozenset[str]] = {}
        self.events: list[frozenset[int]] = []
        self.effort = MergeEffort(0, 0, 0)

    def add(self, handle: int, box: Box, terms: Sequence[str]) -> None:
        self.box[handle], self.terms[handle] = box, frozenset(terms)
        live = self.live
        fits = [number for number in live if len(self.members[number]) + 1 <= self._capacity]
        ranked = sorted(fits, key=lambda n: (-self._similarity(handle, n), self._growth(handle, n), n))
        best = ranked[0] if ranked else None
        if best is not None and self._similarity(handle, best) >= self.parameters.new_threshold:
            self._join(handle, best)
            return
        founded = next(number for number, members in enumerate(self.members) if not members)
        if best is not None and self._similarity(handle, best) > 0:
            self.worker[founded] = self.worker[best]
        else:
            held = [sum(len(self.members[n]) for n in live if self.worker[n] == w) for w in range(self.workers)]
            self.worker[founded] = held.index(min(held))
        self.load[founded], self.bounds[founded] = 0.0, None
        self._join(handle, founded)
        if len(live) + 1 > self.parameters.max_categories:
            self._merge(founded, best)

    def remove(self, handle: int) -> None:
        number = self.category_of(handle)
        self.members[number].remove(handle)
        self.load[number] += 1
        del self.box[handle], self.terms[handle]

    def observe(self, matches: Sequence[int]) -> None:
        self.events = [*self.events, frozenset(matches)][-self.parameters.window :]

    def balance(self, factor: float) -> None:
        """Move categories away from overloaded workers, in the order of DiviPara."""
        loads = self._loads()
        for source in sorted(range(self.workers), key=lambda w: -loads[w]):
            divi = {n: (self._cd(n) - self._cs(n)) / len(self.members[n]) for n in self.live}
            here = sorted((n for n in self.live if self.worker[n] == source), key=lambda n: -divi[n])
            for number in here:
                loads = self._loads()
                if sum(loads) == 0 or loads[source] < factor / self.workers * sum(loads):
                    break
                lighter = (w for w in range(self.workers) if w != source)
                fits = [w for w in lighter if loads[w] + self.load[number] < loads[source]]
                toward = Counter({w: self._correlation_with_worker(number, w) for w in fits})
                if fits:
                    self.worker[number] = min(fits, key=lambda w: (-toward[w], loads[w], w))

    @property
    def live(self) -> list[int]:
        return [number for number, members in enumerate(self.members) if members]

    def category_of(self, handle: int) -> int:
        return next(number for number, members in enumerate(self.members) if handle in members)

    def correlation(self, one: int, other: int) -> int:
        return sum(self._correlation_of_row(handle, other) for handle in self.members[one])

    def _correlation_of_row(self, handle: int, number: int) -> int:
        return sum(len(event.intersection(self.members[number])) for event in self.events if handle in event)

    def _correlation_with_worker(self, number: int, worker: int) -> int:
        others = (n for n in self.live if n != number and self.worker[n] == worker)
        return sum(self.correlation(number, n) for n in others)

    def _cs(self, number: int) -> int:
        return self._correlation_with_worker(number, self.worker[number])

    def _cd(self, number: int) -> int:
        return sum(self._correlation_with_worker(number, w) for w in range(self.workers) if w != self.worker[number])

    def _merge_judge_para(self, number: int) -> float:
        cs, cd = self._cs(number), self._cd(number)
        return cs / cd if cd else math.inf

    def _merge(self, founded: int, like: int | None) -> None:
        """Merge two categories or distribute one; without correlation, merge the new category with `like`."""
        if self.parameters.correlation:
            pairs = [(a, b) for a, b in permutations(self.live, 2) if self._are_partners(a, b)]
            judged = {number: self._merge_judge_para(number) for number, _ in pairs}
            best = max(pairs, key=lambda p: (judged[p[0]], self.correlation(*p), -p[0], -p[1]), default=None)
            if best and (judged[best[0]] >= self.distribution.merge or not self.distribution.between):
                self._merge_pair(*best)
                return
            least = min((n for n in self.live if self._may_go(n)), key=self._merge_judge_para, default=None)
            if least is not None and self.distribution.between:
                self._distribute(least)
                return
        assert like is not None
        self._merge_pair(founded, like)

    def _are_partners(self, one: int, other: int) -> bool:
        fit = len(self.members[one]) + len(self.members[other]) <= self._capacity
        return fit and self.worker[one] == self.worker[other] and self.correlation(one, other) > 0

    def _may_go(self, number: int) -> bool:
        """Whether a category is more correlated with other workers than with its own, which has others left."""
        alone = all(self.worker[n] != self.worker[number] for n in self.live if n != number)
        return not alone and self._cd(number) > 0 and self._merge_judge_para(number) < self.distribution.merge

    def _merge_pair(self, one: int, other: int) -> None:
        source, target = sorted((one, other), key=lambda number: (len(self.members[number]), number))
        moving = self.members[source]
        self._count(source, [target] * len(moving))
        self.members[source] = []
        for handle in moving:
            self._join(handle, target)
        self.load[target] += self.load[source]

    def _distribute(self, number: int) -> None:
        moving, own = sorted(self.members[number]), self.worker[number]
        size = [len(members) for members in self.members]
        others = [n for n in self.live if n != number]
        targets = []
        for handle in moving:
            points = {n: self._correlation_of_row(handle, n) for n in others}
            room = [n for n in others if size[n] + 1 <= self._capacity]
            near, far = ([n for n in room if (self.worker[n] == own) == side] for side in (True, False))
            near_points = sum(points[n] for n in others if self.worker[n] == own)
            stays = near_points >= sum(points.values()) - near_points and near
            # Of equals the smallest, so that members without correlation do not all go the same way.
            targets.append(min((near if stays else far) or room, key=lambda n: (-points[n], size[n], n)))
            size[targets[-1]] += 1
        self._count(number, targets)
        self.members[number] = []
        for handle, target in zip(moving, targets, strict=True):
            self._join(handle, target)

    def _count(self, source: int, targets: Sequence[int]) -> None:
        merges, relabelled, moved = self.effort
        crossing = sum(self.worker[target] != self.worker[source] for target in targets)
        self.effort = MergeEffort(merges + 1, relabelled + len(targets), moved + crossing)

    def _join(self, handle: int, number: int) -> None:
        self.members[number].append(handle)
        self.bounds[number] = _union(self.bounds[number], self.box[handle])

    def _loads(self) -> list[float]:
        return [sum(self.load[n] for n in self.live if self.worker[n] == w) for w in range(self.workers)]

    def _similarity(self, handle: int, number: int) -> float:
        frequency = Counter(term for member in self.members[number] for term in self.terms[member])
        terms = self.terms[handle]
        if self.parameters.frequencies:
            shared, whole = sum(frequency[term] for term in terms), sum(frequency.values())
        else:
            shared, whole = sum(frequency[term] > 0 for term in terms), len(frequency)
        keys = shared / whole if shared else 0.0
        area = max(_area(self.bounds[number]), self.parameters.least_area)
        alpha = self.parameters.alpha
        return alpha * keys / ((1 - alpha) * (1 + self._growth(handle, number) / area))

    def _growth(self, handle: int, number: int) -> float:
        bounds = self.bounds[number]
        return _area(_union(bounds, self.box[handle])) - _area(bounds)

    @property
    def _capacity(self) -> float:
        return max(MIN_CAPACITY, self.parameters.max_relative_size * len(self.box) / self.parameters.max_categories)


def _union(one: Box | None, other: Box) -> Box:
    if one is None:
        return other
    return min(one[0], other[0]), min(one[1], other[1]), max(one[2], other[2]), max(one[3], other[3])


def _area(box: Box | None) -> float:
    return 0.0 if box is None else (box[2] - box[0]) * (box[3] - box[1])
