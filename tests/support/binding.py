"""What tests of binding share: queries from text, places from boxes, and a binder that is told things in a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shapely.geometry import box

from roamcast.bind.core import Binder
from roamcast.bind.messages import (
    Effect,
    Message,
    Moved,
    SourceRegistered,
    Subscribed,
    SubscriberRegistered,
)
from roamcast.lacl import Query, check, parse
from roamcast.model import Position
from roamcast.places import Places
from roamcast.space import PLANAR, Space

Point = tuple[float, float]


def query(text: str) -> Query:
    return check(parse(text))


def places(space: Space = PLANAR, /, **rooms: tuple[float, float, float, float]) -> Places:
    """Rectangular ones: min_x, min_y, max_x, max_y."""
    return Places({name: box(*sides) for name, sides in rooms.items()}, space)


class Node:
    """A binder with a clock that ticks at every message."""

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
        return self.tell(Moved(id, x, y, self.now))

    def sources(self, subscription: str) -> tuple[str, ...]:
        return self.binder.status(subscription).sources

    def states(self) -> Mapping[str, str]:
        return {status.id: status.state.value for status in self.binder.statuses()}

    def _position(self, id: str, at: Point | None) -> Position | None:
        return None if at is None else Position(id, *at, self.now)
