"""The reference for `NearestSources`: measures every source for every subscription."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from roamcast.bind.nearest.rebinding import choose_source
from roamcast.bind.nearest.sources import BindingChanges, NearestSources, Rule
from roamcast.space import Space


def join(nearest: NearestSources, sources: npt.ArrayLike, groups: npt.ArrayLike) -> BindingChanges:
    """Add sources to groups, pair by pair."""
    return nearest.move([], [], [], joining=(sources, groups))


def leave(nearest: NearestSources, sources: npt.ArrayLike, groups: npt.ArrayLike) -> BindingChanges:
    """Remove sources from groups, pair by pair."""
    return nearest.move([], [], [], leaving=(sources, groups))


def binding_counts(nearest: NearestSources, sources: npt.ArrayLike) -> list[int]:
    """The number of subscriptions bound to each of these sources, as `anyof()` sees it."""
    return np.atleast_1d(nearest._rebinder.bindings[sources]).tolist()


@dataclass(frozen=True, slots=True)
class ReferenceSource:
    x: float
    y: float
    groups: frozenset[int]


@dataclass(frozen=True, slots=True)
class ReferenceSubscription:
    """A subscription at the current position of its subscriber."""

    x: float
    y: float
    group: int
    rule: Rule
    radius: float = np.inf
    suspended: bool = False


def rebind(
    space: Space,
    sources: Mapping[str, ReferenceSource],
    subscriptions: Mapping[int, ReferenceSubscription],
    bound: Mapping[int, str | None],
) -> dict[int, str | None]:
    """The bindings of all subscriptions after a change; `bound` are those before it.

    ANYOF comes last: bound ones keep their source if it qualifies, then the others choose in the order of their
    numbers; each new binding counts for the next.
    """
    bindings: dict[int, str | None] = dict.fromkeys(subscriptions)
    undecided = []
    for number, subscription in sorted(subscriptions.items()):
        if not subscription.suspended and subscription.rule != Rule.ANYOF:
            bindings[number] = _choose(space, sources, subscription, Counter())
        elif not subscription.suspended:
            current = sources.get(bound.get(number) or "")
            if (
                current
                and subscription.group in current.groups
                and _distance(space, subscription, current) <= subscription.radius
            ):
                bindings[number] = bound[number]
            else:
                undecided.append(number)
    for number in undecided:
        bindings[number] = _choose(space, sources, subscriptions[number], Counter(filter(None, bindings.values())))
    return bindings


def _choose(
    space: Space,
    sources: Mapping[str, ReferenceSource],
    subscription: ReferenceSubscription,
    bindings: Counter[str],
) -> str | None:
    ids = sorted(id for id, source in sources.items() if subscription.group in source.groups)
    distance = np.array([_distance(space, subscription, sources[id]) for id in ids], np.float64)
    counts = np.array([bindings[id] for id in ids], np.int64)
    row = choose_source(subscription.rule, subscription.radius, distance, np.arange(len(ids)), counts)
    return ids[row] if row >= 0 else None


def _distance(space: Space, subscription: ReferenceSubscription, source: ReferenceSource) -> float:
    return float(space.distance(subscription.x, subscription.y, source.x, source.y))
