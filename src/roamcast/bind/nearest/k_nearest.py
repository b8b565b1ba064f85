"""Subscriptions to several sources at once, `nearest(k)`: exact, by measuring every qualifying source.

Slower than the watch, which keeps one source a subscription: whenever a source of a group moves, comes or goes, all
its subscriptions are looked at, and each look costs as much as the group has sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from roamcast.bind.lcesm.registry import Registry
from roamcast.bind.lcesm.requirements import Requirement
from roamcast.bind.nearest.kernels.layout import Integers
from roamcast.space import Space

__all__ = ["Found", "Several"]


class Found(NamedTuple):
    """The sources that a subscription no longer has and those it has now instead; and whether it has any."""

    row: Requirement
    lost: tuple[str, ...]
    found: tuple[str, ...]
    has_source: bool


@dataclass(slots=True)
class _Group:
    count: int
    sources: set[int] = field(default_factory=set)
    listeners: dict[str, _Listener] = field(default_factory=dict)


@dataclass(slots=True)
class _Listener:
    row: Requirement
    group: _Group
    awake: bool = False
    sources: frozenset[str] = frozenset()


class Several:
    """Keeps each awake subscription bound to the `count` nearest sources of its group; ties go to the lower id.

    Groups and sources are known by handles. Positions are the registry's.
    """

    def __init__(self, space: Space, registry: Registry) -> None:
        self._space = space
        self._registry = registry
        self._groups: dict[int, _Group] = {}
        self._listeners: dict[str, _Listener] = {}

    def __contains__(self, group: int) -> bool:
        return group in self._groups

    def add_group(self, group: int, count: int) -> None:
        self._groups[group] = _Group(count)

    def remove_group(self, group: int) -> None:
        del self._groups[group]

    def subscribe(self, row: Requirement, group: int) -> None:
        """Asleep."""
        listener = _Listener(row, self._groups[group])
        self._listeners[row.id] = listener.group.listeners[row.id] = listener

    def unsubscribe(self, rows: Sequence[Requirement]) -> list[Found]:
        found = self.sleep(rows)
        for row in rows:
            del self._listeners.pop(row.id).group.listeners[row.id]
        return found

    def wake(self, rows: Sequence[Requirement]) -> list[Found]:
        return self._set_awake(rows, awake=True)

    def sleep(self, rows: Sequence[Requirement]) -> list[Found]:
        return self._set_awake(rows, awake=False)

    def change(
        self, moved: Integers, leaving: Iterable[tuple[int, int]], joining: Iterable[tuple[int, int]]
    ) -> list[Found]:
        """Sources leave groups and join others, and entities have moved: the registry knows where to."""
        touched = set[int]()
        for source, group in leaving:
            self._groups[group].sources.discard(source)
            touched.add(group)
        for source, group in joining:
            self._groups[group].sources.add(source)
            touched.add(group)
        if not self._listeners:
            return []
        movers = set(moved.tolist())
        touched.update(number for number, group in self._groups.items() if not movers.isdisjoint(group.sources))
        ids = {id for group in touched for id in self._groups[group].listeners}
        ids.update(id for id, listener in self._listeners.items() if listener.row.subscriber in movers)
        return self._look(ids)

    def sources_of(self, row: Requirement) -> tuple[str, ...]:
        """By id; none for a row that is not here."""
        return tuple(sorted(self._listeners[row.id].sources)) if row.id in self._listeners else ()

    def bound_to(self, source: str) -> list[str]:
        """The subscriptions that are bound to a source."""
        return [id for id, listener in self._listeners.items() if source in listener.sources]

    def _set_awake(self, rows: Sequence[Requirement], *, awake: bool) -> list[Found]:
        for row in rows:
            self._listeners[row.id].awake = awake
        return self._look(row.id for row in rows)

    def _look(self, ids: Iterable[str]) -> list[Found]:
        changes = []
        for id in sorted(ids):
            listener = self._listeners[id]
            before, now = listener.sources, self._nearest(listener) if listener.awake else frozenset()
            if now != before:
                lost, found = tuple(sorted(before - now)), tuple(sorted(now - before))
                changes.append(Found(listener.row, lost, found, bool(now)))
                listener.sources = now
        return changes

    def _nearest(self, listener: _Listener) -> frozenset[str]:
        group = listener.group
        here = np.array([listener.row.subscriber], np.int32)
        sources = np.fromiter(group.sources, np.int32, len(group.sources))
        distance = self._space.distance(*self._registry.where(here), *self._registry.where(sources))
        if len(sources) > group.count:
            near = np.flatnonzero(distance <= np.partition(distance, group.count - 1)[group.count - 1])
            sources, distance = sources[near], distance[near]
        ids = map(self._registry.id, sources.tolist())
        return frozenset(id for _, id in sorted(zip(distance.tolist(), ids, strict=True))[: group.count])
