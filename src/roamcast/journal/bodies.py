"""The JSON bodies of control records: what the pipeline needs to know of a subscription and of a binding.

Conditions are encoded as in `lacl.codec`: the pipeline never parses LACL.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from math import inf
from typing import Any, Final, Self

import orjson
import shapely

from roamcast.errors import InputError
from roamcast.lacl import Query
from roamcast.lacl.codec import condition_from_json, condition_to_json
from roamcast.lacl.syntax import BoxRegion, Circle, Condition, RangLoc, Within
from roamcast.lacl.vocabulary import MAX_PERIOD
from roamcast.model import EARLIEST, LATEST, Box
from roamcast.places import Places
from roamcast.space import SPACES, Space

__all__ = [
    "LINK", "BindingBody", "PositionBody", "RemovalBody", "SubscriptionBody", "box_body", "decode_condition",
    "encode_condition",
]  # fmt: skip

LINK: Final = "@"
"""The subscriber of a control record that begins with this is a link: another data folder wants these events."""

_VERSION: Final = 2
_CONDITIONS: Final = ("source", "on")

# JSON numbers and texts. Types are compared as sets because a batch may bring very many bodies.
_NUMBERS: Final = frozenset([int, float])
_TEXTS: Final = frozenset([str])


@lru_cache(maxsize=10_000)
def encode_condition(condition: Condition) -> str:
    """A condition as JSON text. Equal conditions have equal texts."""
    return orjson.dumps(condition_to_json(condition)).decode()


@lru_cache(maxsize=100_000)
def decode_condition(text: str) -> Condition:
    """The condition that `encode_condition` encoded. Raises InputError."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InputError(f"not an encoded condition: {error}") from error
    return condition_from_json(value)


@dataclass(frozen=True, slots=True)
class SubscriptionBody:
    """A subscription of plan match, split into what the index finds and what is tested afterwards.

    The index finds `box` (None: everywhere) and `terms`. Afterwards an event must lie in the `circle` (x, y, radius in
    metres) or in the `area` (GeoJSON) of a `place`, and satisfy the conditions `source` and `on`. Each of these may be
    None. `every` is in microseconds. With a `moving_radius` there is no box: the region is a circle with this
    radius, in metres, around the subscriber.
    """

    box: Box | None
    terms: tuple[str, ...]
    circle: tuple[float, float, float] | None = field(default=None, kw_only=True)
    place: str | None = field(default=None, kw_only=True)
    area: str | None = field(default=None, kw_only=True)
    source: Condition | None = field(default=None, kw_only=True)
    on: Condition | None = field(default=None, kw_only=True)
    every: int | None = field(default=None, kw_only=True)
    space: str = field(default="geographic", kw_only=True)
    moving_radius: float | None = field(default=None, kw_only=True)

    @classmethod
    def of(cls, query: Query, places: Places, space: Space) -> Self:
        """Split a query. Raises NotFoundError for an unknown place."""
        box: Box | None = None
        region: dict[str, Any] = {}
        match query.location:
            case BoxRegion(bounds):
                box = bounds
            case Circle(x, y, radius):
                box, region = space.box_around(x, y, radius), {"circle": (float(x), float(y), float(radius))}
            case Within(place):
                box, region = places.bounds(place), {"place": place, "area": shapely.to_geojson(places.get(place))}
            case RangLoc(radius):
                region = {"moving_radius": radius}
        return cls(
            box,
            tuple(sorted(query.terms)),
            source=query.source_condition,
            on=query.on,
            every=None if query.every is None else query.every.period,
            space=space.name,
            **region,
        )

    def to_json(self) -> str:
        return _to_json(self)

    @classmethod
    def from_json(cls, text: str | None) -> Self:
        """Decode a body. Raises InputError if it is not one."""
        values = _values(text, "subscription")
        try:
            box, terms, circle = (
                _box(values.pop("box")),
                _terms(values.pop("terms")),
                _circle(values.pop("circle", None)),
            )
            body = cls(box, terms, circle=circle, **values)
        except (KeyError, TypeError) as error:
            raise InputError(f"the body of a subscription is unreadable: {error}") from error
        _check_texts(body.place, body.area, body.space)
        _check_every(body.every)
        if body.space not in SPACES:
            raise InputError(f"unknown space {body.space!r}")
        if (body.place is None) != (body.area is None):
            raise InputError("a place needs an area")
        if body.moving_radius is not None and (body.box is not None or not _is_radius(body.moving_radius)):
            raise InputError(f"not a radius around a subscriber: {body.moving_radius!r}")
        return body


def box_body(box: Box | None, terms: Iterable[str], space: str) -> str:
    """The JSON of a SubscriptionBody that has nothing else. Much faster, for very many."""
    corners = None if box is None else list(box)
    return orjson.dumps({"version": _VERSION, "box": corners, "terms": sorted(terms), "space": space}).decode()


@dataclass(frozen=True, slots=True)
class BindingBody:
    """Which events of the source a binding lets through: those that satisfy `on`, at most one in `every` microseconds.

    `initial`: the subscription has just started, so it also receives the last known event of the source.
    """

    subscriber: str
    on: Condition | None = None
    every: int | None = None
    initial: bool = False

    @classmethod
    def of(cls, query: Query, subscriber: str, *, initial: bool) -> Self:
        return cls(subscriber, query.on, None if query.every is None else query.every.period, initial)

    def to_json(self) -> str:
        return _to_json(self)

    @classmethod
    def from_json(cls, text: str | None) -> Self:
        """Decode a body. Raises InputError if it is not one."""
        try:
            body = cls(**_values(text, "binding"))
        except TypeError as error:
            raise InputError(f"the body of a binding is unreadable: {error}") from error
        if not isinstance(body.subscriber, str) or not body.subscriber or not isinstance(body.initial, bool):
            raise InputError("a binding needs a subscriber, and a boolean `initial`")
        _check_every(body.every)
        return body


@dataclass(frozen=True, slots=True)
class RemovalBody:
    """A removed subscription still gets forwarded events with a time before `forwarded_until`, until links are drained.

    A removal without a body applies to all events at once.
    """

    forwarded_until: int

    def to_json(self) -> str:
        return _to_json(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Decode a body. Raises InputError if it is not one."""
        try:
            body = cls(**_values(text, "removal"))
        except TypeError as error:
            raise InputError(f"the body of a removal is unreadable: {error}") from error
        if not _is_time(body.forwarded_until):
            raise InputError("a removal needs a time `forwarded_until` between the years 1 and 9999")
        return body


@dataclass(frozen=True, slots=True)
class PositionBody:
    """A move as forwarded events see it: the position counts from the time `begin` on, the one before until `end`.

    In between both count, because the clocks of peers are not known exactly. Earlier positions count until links are
    drained. A position without a body replaces the one before for all forwarded events.
    """

    begin: int
    end: int

    def to_json(self) -> str:
        return _to_json(self)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Decode a body. Raises InputError if it is not one."""
        try:
            body = cls(**_values(text, "position"))
        except TypeError as error:
            raise InputError(f"the body of a position is unreadable: {error}") from error
        if not _is_time(body.begin) or not _is_time(body.end) or body.begin > body.end:
            raise InputError("a move needs times `begin` and `end`, in this order, between the years 1 and 9999")
        return body


def _to_json(body: SubscriptionBody | BindingBody | RemovalBody | PositionBody) -> str:
    """Leave out what is None, except for the box."""
    values = {field.name: getattr(body, field.name) for field in fields(body)}
    for name in _CONDITIONS:
        if values.get(name) is not None:
            values[name] = condition_to_json(values[name])
    present = {name: value for name, value in values.items() if value is not None or name == "box"}
    return orjson.dumps({"version": _VERSION, **present}, default=list).decode()  # a box becomes a list of four


def _values(text: str | None, what: str) -> dict[str, Any]:
    """The values of a body by name, its conditions decoded."""
    try:
        values = orjson.loads(text or b"")
        if not isinstance(values, dict):
            raise TypeError("not an object")
    except (ValueError, TypeError) as error:
        raise InputError(f"the body of a {what} is unreadable: {error}") from error
    version = values.pop("version", None)
    if type(version) is not int or version != _VERSION:
        raise InputError(f"the body of a {what} has version {version!r}, not {_VERSION}")
    for name in _CONDITIONS:
        if values.get(name) is not None:
            values[name] = decode_condition(orjson.dumps(values[name]).decode())
    return values


def _box(value: Any) -> Box | None:
    if value is None:
        return None
    if not _are_numbers(value, 4) or value[1] > value[3]:
        raise InputError(f"not a box: {value}")
    return Box(*map(float, value))


def _circle(value: Any) -> tuple[float, float, float] | None:
    if value is None:
        return None
    if not _are_numbers(value, 3) or not _is_radius(value[2]):
        raise InputError(f"not a circle: {value}")
    x, y, radius = map(float, value)
    return x, y, radius


def _terms(value: Any) -> tuple[str, ...]:
    if type(value) is not list or not _TEXTS.issuperset(map(type, value)):
        raise InputError("the terms of a subscription must be a list of strings")
    return tuple(sorted(set(value)))


def _are_numbers(value: Sequence[Any], count: int) -> bool:
    return type(value) is list and len(value) == count and _NUMBERS.issuperset(map(type, value))


def _is_time(value: Any) -> bool:
    return type(value) is int and EARLIEST <= value <= LATEST


def _is_radius(value: Any) -> bool:
    return type(value) in _NUMBERS and bool(0 <= value < inf)


def _check_texts(*values: object) -> None:
    for value in values:
        if value is not None and not isinstance(value, str):
            raise InputError(f"not a string: {value!r}")


def _check_every(every: object) -> None:
    if every is not None and (type(every) is not int or not 0 < every <= MAX_PERIOD):
        raise InputError(f"not a period in microseconds: {every!r}")
