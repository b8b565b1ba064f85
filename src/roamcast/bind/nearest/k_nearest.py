"""Subscriptions to several sources at once, `nearest(k)`: exact, by measuring every source of the group.

This is slower than the search for one source. When a source of a group moves, joins or leaves, all subscriptions to
the group are computed again, each in time proportional to the number of sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from roamcast.bind.nearest.arrays import Membership
from roamcast.bind.nearest.kernels.layout import Int32s
from roamcast.bind.nearest.rebinding import BindingChanges, Rebinder
from roamcast.space import Space

__all__ = ["KNearest"]


@dataclass(slots=True)
class _KGroup:
    count: int
    sources: set[int] = field(default_factory=set)
    subscriptions: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _KSubscription:
    subscriber: int
    group: _KGroup
    is_suspended: bool = True
    sources: frozenset[int] = frozenset()


class KNearest:
    """Keeps each subscription bound to the `count` nearest sources of its group, unless it is suspended.

    Ties go to the lower id. Everything is known by handles. Positions and the order of ids are those of the rebinder.
    """

    def __init__(self, space: Space, rebinder: Rebinder) -> None:
        self._space = space
        self._rebinder = rebinder
        self._groups: dict[int, _KGroup] = {}
        self._subscriptions: dict[int, _KSubscription] = {}

    def __contains__(self, group: int) -> bool:
        return group in self._groups

    def add_group(self, group: int, count: int) -> None:
        self._groups[group] = _KGroup(count)

    def remove_group(self, group: int) -> None:
        del self._groups[group]

    def add(self, subscription: int, subscriber: int, group: int) -> None:
        """Add a suspended subscription."""
        added = self._subscriptions[subscription] = _KSubscription(subscriber, self._groups[group])
        added.group.subscriptions.add(subscription)

    def remove(self, subscriptions: Sequence[int]) -> BindingChanges:
        changes = self.set_suspended(subscriptions, suspended=True)
        for subscription in subscriptions:
            self._subscriptions.pop(subscription).group.subscriptions.remove(subscription)
        return changes

    def select(self, subscriptions: Int32s) -> list[int]:
        """Those of these subscriptions that are to several sources."""
        return [one for one in subscriptions.tolist() if one in self._subscriptions] if self._subscriptions else []

    def set_suspended(self, subscriptions: Sequence[int], *, suspended: bool) -> BindingChanges:
        for subscription in subscriptions:
            self._subscriptions[subscription].is_suspended = suspended
        return self._rebind(subscriptions)

    def update(self, moved: Int32s, leaving: Iterable[Membership], joining: Iterable[Membership]) -> BindingChanges:
        """Update bindings after sources left and joined groups, and entities moved."""
        groups = set[int]()
        for source, group in leaving:
            self._groups[group].sources.discard(source)
            groups.add(group)
        for source, group in joining:
            self._groups[group].sources.add(source)
            groups.add(group)
        if not self._subscriptions:
            return BindingChanges.none()
        movers = set(moved.tolist())
        groups.update(number for number, group in self._groups.items() if not movers.isdisjoint(group.sources))
        affected = {one for group in groups for one in self._groups[group].subscriptions}
        affected.update(number for number, one in self._subscriptions.items() if one.subscriber in movers)
        return self._rebind(affected)

    def memberships_of(self, sources: Int32s) -> list[Membership]:
        """The memberships of these sources in groups for several sources."""
        return [
            (one, number) for number, group in self._groups.items() for one in sources.tolist() if one in group.sources
        ]

    def sources_of(self, subscription: int) -> list[int]:
        """By id; empty for an unknown subscription."""
        known = self._subscriptions.get(subscription)
        return [] if known is None else self._in_id_order(known.sources)

    def bound_to(self, source: int) -> list[int]:
        """The subscriptions that are bound to a source."""
        return [number for number, one in self._subscriptions.items() if source in one.sources]

    def _rebind(self, subscriptions: Iterable[int]) -> BindingChanges:
        rows: list[tuple[int, int, int]] = []
        for number in sorted(subscriptions):
            subscription = self._subscriptions[number]
            previous = subscription.sources
            subscription.sources = frozenset() if subscription.is_suspended else self._nearest(subscription)
            rows += ((number, source, -1) for source in self._in_id_order(previous - subscription.sources))
            rows += ((number, -1, source) for source in self._in_id_order(subscription.sources - previous))
        columns = np.array(rows, np.int32).reshape(-1, 3)
        return BindingChanges(columns[:, 0], columns[:, 1], columns[:, 2])

    def _nearest(self, subscription: _KSubscription) -> frozenset[int]:
        count = subscription.group.count
        sources = np.fromiter(subscription.group.sources, np.int32, len(subscription.group.sources))
        here, there = self._rebinder.entity[subscription.subscriber], self._rebinder.entity[sources]
        distance = self._space.distance(here["x"], here["y"], there["x"], there["y"])
        if len(sources) > count:
            near = np.flatnonzero(distance <= np.partition(distance, count - 1)[count - 1])
            sources, distance = sources[near], distance[near]
        return frozenset(sources[np.lexsort((self._rebinder.label[sources], distance))[:count]].tolist())

    def _in_id_order(self, sources: frozenset[int]) -> list[int]:
        return sorted(sources, key=lambda source: self._rebinder.label[source])
