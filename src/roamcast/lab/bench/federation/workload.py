"""The subscriptions, sources and events of the federation benchmark, and the letters that must follow.

Of 1,000 subscriptions, 989 are boxes with two to four terms, as in the match benchmarks. 10 are circles that move with
their subscriber, and need one term. One follows the nearest of the `noise` sources of a domain, and wants the loud half
of its events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from roamcast.lab.bench.match.data import MatchData
from roamcast.lab.models.matcher import ReferenceMatcher
from roamcast.match.port import Events
from roamcast.model import Box
from roamcast.space import GEOGRAPHIC

__all__ = ["BenchSource", "BoxSubscription", "LaclSubscription", "Workload"]

_MOVING: Final = 100  # one of that many subscriptions has a moving region
_BOUND: Final = 1_000  # one of that many is bound
_NOISE: Final = 10  # one of that many sources can be bound to
_RADIUS: Final = 10_000.0  # metres
_LOUD: Final = 0.5


class BoxSubscription(NamedTuple):
    """Events in a box that have all terms."""

    id: str
    subscriber: str
    box: Box
    terms: list[str]


class LaclSubscription(NamedTuple):
    id: str
    subscriber: str
    text: str


class BenchSource(NamedTuple):
    id: str
    attributes: dict[str, str]
    x: float
    y: float


class Workload:
    """The same numbers give the same workload. Subscribers do not move.

    There are as many different events as subscriptions, so that one box was made of each event on average. Event
    numbers beyond repeat them.
    """

    def __init__(self, subscriptions: int, subscribers: int, sources: int, domains: tuple[str, ...]) -> None:
        """`domains` are those with sources."""
        rng = np.random.default_rng(17)
        self._data = MatchData(subscriptions)
        self._term_lists = self._data.events(0, subscriptions)["terms"]
        self._terms: list[list[str]] = self._term_lists.to_pylist()
        self._domains = domains
        self._bound = max(len(domains), subscriptions // _BOUND)
        moving = max(1, subscriptions // _MOVING)
        self._boxes = self._data.subscriptions(subscriptions - self._bound - moving)
        self.subscribers = {f"reader-{number}": self._point(rng) for number in range(subscribers)}
        self._source_points = [self._point(rng) for _ in range(sources)]
        self._letters: list[list[str]] = [[] for _ in range(subscriptions)]  # by event, without bound ones
        self._match_boxes()
        self._moving = [*self._match_moving(rng, moving)]

    def sources(self, domain: str) -> list[BenchSource]:
        return [
            BenchSource(f"{domain}-{number}", {"context": f"noise-{domain}"} if number % _NOISE == 0 else {}, *point)
            for number, point in enumerate(self._source_points)
        ]

    def subscriptions(self) -> Iterator[BoxSubscription | LaclSubscription]:
        readers = list(self.subscribers)
        boxes = np.stack(self._boxes[:4], axis=1).tolist()
        for number, (box, terms) in enumerate(zip(boxes, self._boxes.terms.to_pylist(), strict=True)):
            yield BoxSubscription(f"box-{number}", readers[number % len(readers)], Box(*box), terms)
        yield from self._moving
        for number in range(self._bound):
            domain = self._domains[number % len(self._domains)]
            text = f'Select Where &context = "noise-{domain}" and &location in nearest On @level > {_LOUD}'
            yield LaclSubscription(f"bound-{number}", readers[number % len(readers)], text)

    def last_subscriptions(self) -> list[str]:
        """The last box and moving region, and all that are bound: if they are active, so are the others."""
        bound = [f"bound-{number}" for number in range(self._bound)]
        return [f"box-{len(self._boxes.min_x) - 1}", f"moving-{len(self._moving) - 1}", *bound]

    def event(self, number: int) -> dict[str, Any]:
        """The content of an event, without an id."""
        row = number % len(self._terms)
        x, y = float(self._data.x[row]), float(self._data.y[row])
        return {"x": x, "y": y, "terms": self._terms[row], "readings": {"level": _level(number)}}

    def letters(self, number: int, source: str, bound: Mapping[str, list[str]]) -> list[str]:
        """The subscriptions that must get an event of a source. `bound` has those that are bound to each source."""
        is_loud = _level(number) > _LOUD
        return self._letters[number % len(self._letters)] + (bound.get(source, []) if is_loud else [])

    def _point(self, rng: np.random.Generator) -> tuple[float, float]:
        x, y = self._data.centre[:, rng.integers(self._data.centre.shape[1])].tolist()
        return x, y

    def _match_boxes(self) -> None:
        events = Events(self._data.x, self._data.y, self._term_lists)
        matches = ReferenceMatcher(self._boxes).match(events)
        for event, subscription in zip(matches.event.tolist(), matches.subscription.tolist(), strict=True):
            self._letters[event].append(f"box-{subscription}")

    def _match_moving(self, rng: np.random.Generator, count: int) -> Iterator[LaclSubscription]:
        """Share `count` moving regions among the subscribers."""
        for turn, (reader, point) in enumerate(self.subscribers.items()):
            near = np.flatnonzero(GEOGRAPHIC.distance(*point, self._data.x, self._data.y) <= _RADIUS).tolist()
            for number in range(turn, count, len(self.subscribers)):
                id, term = f"moving-{number}", self._terms[rng.choice(near) if near else 0][0]
                for event in near:
                    if term in self._terms[event]:
                        self._letters[event].append(id)
                text = f'Select all() Where &location in rang:loc({_RADIUS}) and &terms has ("{term}")'
                yield LaclSubscription(id, reader, text)


def _level(number: int) -> float:
    return number * 7919 % 1000 / 1000
