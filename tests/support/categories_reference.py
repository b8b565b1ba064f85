"""The reference of Rt-Cluster: computes every similarity from the members. Tests compare `categories` with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import TypeAlias

from roamcast.match.kernels.clustering import MIN_CAPACITY
from roamcast.match.partitioners.categories import CategoryParameters

__all__ = ["ReferenceCategories"]

Box: TypeAlias = tuple[float, float, float, float]


class ReferenceCategories:
    """`members` holds the handles of each category; None for a free number."""

    def __init__(self, parameters: CategoryParameters) -> None:
        self.parameters = parameters
        self.members: list[list[int] | None] = [None] * (parameters.max_categories + 1)
        self.bounds: list[Box | None] = [None] * (parameters.max_categories + 1)
        self.box: dict[int, Box] = {}
        self.terms: dict[int, frozenset[str]] = {}
        self.events: list[frozenset[int]] = []

    def add(self, handle: int, box: Box, terms: Sequence[str]) -> None:
        self.box[handle], self.terms[handle] = box, frozenset(terms)
        live = [number for number, members in enumerate(self.members) if members]
        fits = [number for number in live if len(self._of(number)) + 1 <= self._capacity(len(self.box))]
        ranked = sorted(fits, key=lambda n: (-self._similarity(handle, n), self._growth(handle, n), n))
        best = ranked[0] if ranked else None
        if best is not None and self._similarity(handle, best) >= self.parameters.new_threshold:
            self._join(handle, best)
            return
        founded = next(number for number, members in enumerate(self.members) if not members)
        self.members[founded], self.bounds[founded] = [], None
        self._join(handle, founded)
        if len(live) + 1 > self.parameters.max_categories:
            self._merge(founded, best)

    def remove(self, handle: int) -> None:
        for members in self.members:
            if members and handle in members:
                members.remove(handle)
        del self.box[handle], self.terms[handle]

    def observe(self, matches: Sequence[int]) -> None:
        self.events = [*self.events, frozenset(matches)][-self.parameters.window :]

    def groups(self) -> list[list[int]]:
        return sorted(sorted(members) for members in self.members if members)

    def correlation(self, one: int, other: int) -> int:
        pairs = ((a, b) for a in self._of(one) for b in self._of(other))
        return sum(a in event and b in event for a, b in pairs for event in self.events)

    def _merge(self, founded: int, like: int | None) -> None:
        live = [number for number, members in enumerate(self.members) if members]
        capacity = self._capacity(len(self.box))
        pairs = [(a, b) for a, b in combinations(live, 2) if len(self._of(a)) + len(self._of(b)) <= capacity]
        best = max(pairs, key=lambda pair: (self.correlation(*pair), -pair[0], -pair[1]), default=None)
        if self.parameters.correlation and best and self.correlation(*best):
            source, target = sorted(best, key=lambda number: (len(self._of(number)), number))
        else:
            source, target = founded, founded if like is None else like
        moving, self.members[source] = self._of(source), None
        for handle in moving:
            self._join(handle, target)

    def _join(self, handle: int, number: int) -> None:
        self._of(number).append(handle)
        self.bounds[number] = _union(self.bounds[number], self.box[handle])

    def _similarity(self, handle: int, number: int) -> float:
        frequency = Counter(term for member in self._of(number) for term in self.terms[member])
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

    def _capacity(self, live: int) -> float:
        return max(MIN_CAPACITY, self.parameters.max_relative_size * live / self.parameters.max_categories)

    def _of(self, number: int) -> list[int]:
        members = self.members[number]
        return [] if members is None else members


def _union(one: Box | None, other: Box) -> Box:
    if one is None:
        return other
    return min(one[0], other[0]), min(one[1], other[1]), max(one[2], other[2]), max(one[3], other[3])


def _area(box: Box | None) -> float:
    return 0.0 if box is None else (box[2] - box[0]) * (box[3] - box[1])
