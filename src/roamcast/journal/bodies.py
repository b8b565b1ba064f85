"""The JSON in a control record: what the pipeline must know of a subscription, and of a binding."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import inf
from typing import Any, Final, Self

import orjson
import shapely

from roamcast.errors import InputError
from roamcast.lacl import Query, to_text
from roamcast.lacl.printing import condition_text
from roamcast.lacl.syntax import BoxRegion, Circle, RangLoc, Within
from roamcast.lacl.vocabulary import MAX_PERIOD
from roamcast.model import Box
from roamcast.places import Places
from roamcast.space import SPACES, Space

__all__ = ["BindingBody", "SubscriptionBody"]

_VERSION: Final = 1

# What JSON has for numbers and for texts. Types are asked for by sets: a batch may bring very many bodies.
_NUMBERS: Final = frozenset([int, float])
_TEXTS: Final = frozenset([str])


@dataclass(frozen=True, slots=True)
class SubscriptionBody:
    """A subscription of the match plan, split into what an index finds and what is tested after.

    `box` (None: anywhere) and `terms` are necessary, and where `query` is None sufficient. Otherwise `query` is the
    whole, as canonical text; a circle in it is one in `space`, and a place has the polygon `area` (GeoJSON). With
    `around` there is no box: the region is so many metres around the subscriber, wherever that is.
    """

    box: Box | None
    terms: tuple[str, ...]
    query: str | None = None
    area: str | None = None
    every: int | None = None
    space: str = "geographic"
    around: float | None = None

    @classmethod
    def of(cls, query: Query, places: Places, space: Space) -> Self:
        """Raises NotFoundError for a place that is not known."""
        box, area, around = None, None, None
        match query.location:
            case BoxRegion(given):
                box = given
            case Circle(x, y, radius):
                box = space.box_around(x, y, radius)
            case Within(place):
                box, area = places.bounds(place), shapely.to_geojson(places.get(place))
            case RangLoc(radius):
                around = radius
        exact = (
            isinstance(query.location, BoxRegion | RangLoc | None)
            and query.source_expression is None
            and query.on is None
        )
        every = None if query.every is None else query.every.period
        text = None if exact else to_text(query)
        return cls(box, tuple(sorted(query.terms)), text, area, every, space.name, around)

    def to_json(self) -> str:
        return _to_json(self)

    @classmethod
    def from_json(cls, text: str | None) -> Self:
        """Raises InputError for what is not such a body."""
        given = _given(text, "subscription")
        try:
            body = cls(_box(given.pop("box")), _terms(given.pop("terms")), **given)
        except (KeyError, TypeError) as error:
            raise InputError(f"the body of a subscription is unreadable: {error}") from error
        _check_texts(body.query, body.area, body.space)
        _check_every(body.every)
        if body.space not in SPACES:
            raise InputError(f"no space {body.space!r}")
        if body.around is not None and (body.box is not None or not _is_radius(body.around)):
            raise InputError(f"not a radius around a subscriber: {body.around!r}")
        return body


@dataclass(frozen=True, slots=True)
class BindingBody:
    """What events of the source a binding lets through: those that satisfy `on`, at most one in `every` microseconds.

    `initial`: the subscription has just begun, and the last known reading of the source is news to it.
    """

    subscriber: str
    on: str | None = None
    every: int | None = None
    initial: bool = False

    @classmethod
    def of(cls, query: Query, subscriber: str, *, initial: bool) -> Self:
        on = None if query.on is None else condition_text(query.on)
        return cls(subscriber, on, None if query.every is None else query.every.period, initial)

    def to_json(self) -> str:
        return _to_json(self)

    @classmethod
    def from_json(cls, text: str | None) -> Self:
        """Raises InputError for what is not such a body."""
        try:
            body = cls(**_given(text, "binding"))
        except TypeError as error:
            raise InputError(f"the body of a binding is unreadable: {error}") from error
        if not isinstance(body.subscriber, str) or not body.subscriber or not isinstance(body.initial, bool):
            raise InputError("a binding needs a subscriber, and whether it is the first")
        _check_texts(body.on)
        _check_every(body.every)
        return body


def _to_json(body: SubscriptionBody | BindingBody) -> str:
    values = {field.name: getattr(body, field.name) for field in fields(body)}
    given = {name: value for name, value in values.items() if value is not None or name == "box"}
    return orjson.dumps({"version": _VERSION, **given}, default=list).decode()  # a box is a list of four


def _given(text: str | None, what: str) -> dict[str, Any]:
    try:
        given = orjson.loads(text or b"")
        if not isinstance(given, dict):
            raise TypeError("not an object")
    except (ValueError, TypeError) as error:
        raise InputError(f"the body of a {what} is unreadable: {error}") from error
    version = given.pop("version", None)
    if type(version) is not int or version != _VERSION:
        raise InputError(f"the body of a {what} has version {version!r}, not {_VERSION}")
    return given


def _box(given: Any) -> Box | None:
    if given is None:
        return None
    if type(given) is not list or len(given) != 4 or not _NUMBERS.issuperset(map(type, given)) or given[1] > given[3]:
        raise InputError(f"a subscription's box is not a box: {given}")
    return Box(*map(float, given))


def _terms(given: Any) -> tuple[str, ...]:
    if type(given) is not list or not _TEXTS.issuperset(map(type, given)):
        raise InputError("a subscription's terms are not a list of texts")
    return tuple(sorted(set(given)))


def _is_radius(given: object) -> bool:
    return type(given) in (int, float) and 0 <= given < inf  # type: ignore[operator]  # a number it is


def _check_texts(*values: object) -> None:
    for value in values:
        if value is not None and not isinstance(value, str):
            raise InputError(f"not a text: {value!r}")


def _check_every(every: object) -> None:
    if every is not None and (type(every) is not int or not 0 < every <= MAX_PERIOD):
        raise InputError(f"not a period in microseconds: {every!r}")
