"""Shared by tests of binding: queries, places, a binder with a clock, and a simple model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shapely.geometry import box

from roamcast.bind.lcesm.binder import Binder
from roamcast.bind.lcesm.messages import (
    Effect,
    EntityMoved,
    Message,
    SourceRegistered,
    Subscribed,
    SubscriberRegistered,
)
from roamcast.lacl import Query, check, holds, parse, plan_of
from roamcast.lacl.syntax import BoxRegion, Circle, Nearest, RangLoc, Region, Within
from roamcast.model import Position
from roamcast.places import Places
from roamcast.space import PLANAR, Space

Point = tuple[float, float]


def query(text: str) -> Query:
    return check(parse(text))


def places(space: Space = PLANAR, /, **rooms: tuple[float, float, float, float]) -> Places:
    """Rectangular places: min_x, min_y, max_x, max_y."""
    return Places({name: box(*sides) for name, sides in rooms.items()}, space)


class Node:
    """A binder with a clock that advances with every message."""

    def __init__(self, known: Places | None = None, space: Space = PLANAR) -> None:
        self.binder = Binder(space, known)
        self.now = 0

    def tell(self, message: Message) -> list[Effect]:
        self.now += 1
        return self.binder.handle(message, self.now)

    def source(self, id: str, at: Point | None = None, **attributes: Any) -> list[Effect]:
        return self.tell(SourceRegistered(id, attributes, self._position(id, at)))

    def subscriber(self, id: str, at: Point | None = None, **attributes: Any) -> list[Effect]:
        return self.tell(SubscriberRegistered(id, attributes, self._position(id, at)))

    def subscribe(self, id: str, subscriber: str, text: str) -> list[Effect]:
        return self.tell(Subscribed(id, subscriber, query(text)))

    def move(self, id: str, x: float, y: float = 0.0) -> list[Effect]:
        return self.tell(EntityMoved(id, x, y, self.now))

    def sources(self, subscription: str) -> tuple[str, ...]:
        return self.binder.status(subscription).sources

    def states(self) -> Mapping[str, str]:
        return {status.id: status.state.value for status in self.binder.statuses()}

    def _position(self, id: str, at: Point | None) -> Position | None:
        return None if at is None else Position(id, *at, self.now)


@dataclass
class Thing:
    """An entity of the model."""

    attributes: dict[str, str | float | bool]
    at: tuple[float, float] | None = None
    time: int = -1


@dataclass
class World:
    """A model of the binder: its entities and subscriptions, and the expected bindings."""

    space: Space
    rooms: dict[str, tuple[float, float, float, float]]
    sources: dict[str, Thing] = field(default_factory=dict)
    subscribers: dict[str, Thing] = field(default_factory=dict)
    subscriptions: dict[str, tuple[str, Query]] = field(default_factory=dict)

    def move(self, id: str, x: float, y: float, time: int) -> None:
        thing = self.sources.get(id) or self.subscribers[id]
        if thing.at is None or time >= thing.time:
            thing.at, thing.time = (x, y), time

    def distance(self, a: tuple[float, float], b: tuple[float, float]) -> float:
        return float(self.space.distance(*a, *b))

    def runs(self, id: str) -> bool:
        subscriber, query = self.subscriptions[id]
        thing = self.subscribers[subscriber]
        return query.life_control is None or holds(
            query.life_control, thing.attributes, inside=lambda region: self.holds(region, thing.at)
        )

    def holds(self, region: Region, at: tuple[float, float] | None) -> bool:
        if at is None:
            return False
        match region:
            case BoxRegion(bounds):
                return bounds.min_x <= at[0] <= bounds.max_x and bounds.min_y <= at[1] <= bounds.max_y
            case Circle(x, y, radius):
                return self.distance((x, y), at) <= radius
            case Within(place) if place in self.rooms:
                min_x, min_y, max_x, max_y = self.rooms[place]
                return min_x <= at[0] <= max_x and min_y <= at[1] <= max_y
            case _:
                return False

    def qualifying(self, id: str) -> list[tuple[float, str]]:
        """The sources that a running subscription may be bound to, by distance and id."""
        subscriber, query = self.subscriptions[id]
        here, expression = self.subscribers[subscriber].at, query.source_condition
        if plan_of(query) != "bind" or here is None or not self.runs(id):
            return []
        found = []
        for source, thing in self.sources.items():
            if thing.at is not None and (expression is None or holds(expression, thing.attributes)):
                distance = self.distance(here, thing.at)
                if not isinstance(query.location, RangLoc) or distance <= query.location.radius:
                    found.append((distance, source))
        return sorted(found)

    def chosen(self, id: str) -> set[str]:
        """The expected sources, except for anyof()."""
        _, query = self.subscriptions[id]
        found = self.qualifying(id)
        if query.select.function == "remoteof":
            return {min((-distance, source) for distance, source in found)[1]} if found else set()
        count = query.location.count if isinstance(query.location, Nearest) else 1
        return {source for _, source in found[:count]}
