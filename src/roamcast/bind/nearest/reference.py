"""The slow, obvious choice of sources: every source is measured for every subscription."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from roamcast.bind.nearest.kernels.layout import Rule
from roamcast.space import Floats, Space

__all__ = ["Listener", "Source", "choose", "rebind"]


@dataclass(frozen=True, slots=True)
class Source:
    x: float
    y: float
    groups: frozenset[int]


@dataclass(frozen=True, slots=True)
class Listener:
    """A subscription, where its subscriber is now."""

    x: float
    y: float
    group: int
    rule: Rule
    radius: float = np.inf
    awake: bool = True


def choose(
    rule: Rule, radius: float, distance: Floats, order: npt.NDArray[np.int64], bindings: npt.NDArray[np.int64]
) -> int:
    """Which of the qualifying sources a subscription without one takes: its row, or -1.

    A distance equal to the radius is within it. Of equals the lowest in `order` wins.
    """
    within = np.flatnonzero(distance <= radius) if rule != Rule.NEAREST else np.arange(len(distance))
    if not len(within):
        return -1
    cost = {Rule.REMOTEOF: -distance, Rule.ANYOF: -bindings}.get(rule, distance)[within]
    best = within[cost == cost.min()]
    return int(best[np.argmin(order[best])])


def rebind(
    space: Space,
    sources: Mapping[str, Source],
    listeners: Mapping[int, Listener],
    bound: Mapping[int, str | None],
) -> dict[int, str | None]:
    """The binding of every listener after a change; `bound` is as before it.

    ANYOF comes last: bound ones stay if they may, then the others choose in turn, by number; each counts for the next.
    """
    new: dict[int, str | None] = dict.fromkeys(listeners)
    open_ = []
    for number, listener in sorted(listeners.items()):
        if listener.awake and listener.rule != Rule.ANYOF:
            new[number] = _choice(space, sources, listener, Counter())
        elif listener.awake:
            kept = sources.get(bound.get(number) or "")
            if kept and listener.group in kept.groups and _distance(space, listener, kept) <= listener.radius:
                new[number] = bound[number]
            else:
                open_.append(number)
    for number in open_:
        new[number] = _choice(space, sources, listeners[number], Counter(filter(None, new.values())))
    return new


def _choice(space: Space, sources: Mapping[str, Source], listener: Listener, bindings: Counter[str]) -> str | None:
    ids = sorted(id for id, source in sources.items() if listener.group in source.groups)
    distance = np.array([_distance(space, listener, sources[id]) for id in ids], np.float64)
    counts = np.array([bindings[id] for id in ids], np.int64)
    at = choose(listener.rule, listener.radius, distance, np.arange(len(ids)), counts)
    return ids[at] if at >= 0 else None


def _distance(space: Space, listener: Listener, source: Source) -> float:
    return float(space.distance(listener.x, listener.y, source.x, source.y))
