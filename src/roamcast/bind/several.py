"""Subscriptions to several sources at once, `nearest(k)`: exact, by measuring every qualifying source.

Slower than the watch, which keeps one source a subscription: whenever a source of a group moves, comes or goes, all
its subscriptions are looked at, and each look costs as much as the group has sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from roamcast.bind.kernels.layout import Integers
from roamcast.bind.registry import Registry
from roamcast.space import Space

__all__ = ["Found", "Several"]


class Found(NamedTuple):
    """The sources that a subscription no longer has, and those it has now instead."""

    subscription: str
    lost: tuple[str, ...]
    found: tuple[str, ...]


@dataclass(slots=True)
class _Group:
    count: int
    sources: set[int] = field(default_factory=set)
    listeners: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Listener:
    subscriber: int
    group: int
    awake: bool = False
    sources: frozenset[str] = frozenset()


class Several:
    """Keeps each awake subscription bound to the `count` nearest sources of its group; ties go to the lower id.

    Groups, sources and subscribers are known by handles, subscriptions by id. Positions are the registry's.
    """

    def __init__(self, space: Space, registry: Registry) -> None:
        self._space = space
        self._registry = registry
        self._groups: dict[int, _Group] = {}
        self._listeners: dict[str, _Listener] = {}

    def __contains__(self, group: int) -> bool:
        return group in self._groups

    def has(self, subscription: str) -> bool:
        return subscription in self._listeners

    def add_group(self, group: int, count: int) -> None:
        self._groups[group] = _Group(count)

    def remove_group(self, group: int) -> None:
        del self._groups[group]

    def join(self, sources: Iterable[int], group: int) -> list[Found]:
        self._groups[group].sources.update(sources)
        return self._look(self._groups[group].listeners)

    def leave(self, sources: Iterable[int], group: int) -> list[Found]:
        self._groups[group].sources.difference_update(sources)
        return self._look(self._groups[group].listeners)

    def subscribe(self, id: str, subscriber: int, group: int) -> None:
        """Asleep."""
        self._listeners[id] = _Listener(subscriber, group)
        self._groups[group].listeners.add(id)

    def unsubscribe(self, ids: Sequence[str]) -> list[Found]:
        found = self.sleep(ids)
        for id in ids:
            self._groups[self._listeners.pop(id).group].listeners.remove(id)
        return found

    def wake(self, ids: Sequence[str]) -> list[Found]:
        for id in ids:
            self._listeners[id].awake = True
        return self._look(ids)

    def sleep(self, ids: Sequence[str]) -> list[Found]:
        for id in ids:
            self._listeners[id].awake = False
        return self._look(ids)

    def move(self, entities: Integers) -> list[Found]:
        """These have moved; the registry knows where to."""
        if not self._listeners:
            return []
        moved = set(entities.tolist())
        touched = {group for group, row in self._groups.items() if not moved.isdisjoint(row.sources)}
        return self._look(id for id, row in self._listeners.items() if row.group in touched or row.subscriber in moved)

    def _look(self, ids: Iterable[str]) -> list[Found]:
        changes = []
        for id in sorted(ids):
            row = self._listeners[id]
            now = self._nearest(row) if row.awake else frozenset()
            if now != row.sources:
                changes.append(Found(id, tuple(sorted(row.sources - now)), tuple(sorted(now - row.sources))))
                row.sources = now
        return changes

    def _nearest(self, row: _Listener) -> frozenset[str]:
        group = self._groups[row.group]
        here = np.array([row.subscriber])
        sources = np.fromiter(group.sources, np.int32, len(group.sources))
        distance = self._space.distance(*self._registry.where(here), *self._registry.where(sources))
        if len(sources) > group.count:
            near = np.flatnonzero(distance <= np.partition(distance, group.count - 1)[group.count - 1])
            sources, distance = sources[near], distance[near]
        ids = [self._registry.at(source).id for source in sources.tolist()]
        return frozenset(id for _, id in sorted(zip(distance.tolist(), ids, strict=True))[: group.count])
