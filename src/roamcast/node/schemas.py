"""What requests carry: the JSON that is accepted.

Unknown fields and wrong types are refused ("12" is no number, nor is true), as are NaN and infinities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, Protocol

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    RootModel,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from roamcast.errors import InputError
from roamcast.model import EPOCH, Box
from roamcast.settings import DOMAIN, NodeLimits

__all__ = [
    "HIGHEST_SEQ", "AckIn", "ArrivalIn", "AttributesIn", "BoxIn", "DomainIn", "EntityIn", "EventIn", "FeatureIn",
    "IdentityIn", "IntroductionIn", "JoinIn", "LetterIn", "MalformedError", "NumbersIn", "PositionIn", "SceneIn",
    "SubscriptionIn", "VouchIn", "input_error_of",
]  # fmt: skip

HIGHEST_SEQ = 2**53 - 1
"""Every JSON reader keeps whole numbers up to here exactly."""

_LONGEST_TEXT = 1_000
_DEFAULT_LIMITS = NodeLimits()
_EARLIEST, _LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999  # microseconds: the years 1 to 9999


def _refused(kind: str, message: str, hint: str) -> PydanticCustomError:
    return PydanticCustomError(kind, message, {"hint": hint})


def _micros(value: object) -> int:
    """Whole microseconds since 1970 from ISO 8601 with an offset, or from seconds."""
    hint = "give ISO 8601 with an offset, such as 2026-01-31T12:00:00Z, or seconds since 1970"
    try:
        if isinstance(value, str):
            micros = (datetime.fromisoformat(value) - EPOCH) // timedelta(microseconds=1)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            micros = round(value * 1_000_000)
        else:
            raise TypeError
    except (TypeError, ValueError, OverflowError):  # a time without an offset is a TypeError, NaN a ValueError
        raise _refused("time", "neither a time with an offset nor a number of seconds", hint) from None
    if not _EARLIEST <= micros <= _LATEST:  # an offset or rounding may have led beyond
        raise _refused("time", "not a time between the years 1 and 9999", hint)
    return micros


def _not_null(value: object) -> object:
    """A null coordinate is how some senders write NaN; taking it for an absent one would hide that."""
    if value is None:
        raise _refused("coordinate", "must be a finite number, not null", "leave it out, or give a number")
    return value


def _limits(info: ValidationInfo) -> NodeLimits:
    limits: NodeLimits = info.context or _DEFAULT_LIMITS
    return limits


def _check_terms(terms: tuple[str, ...], limits: NodeLimits, most: int) -> tuple[str, ...]:
    if len(terms) > most:
        raise _refused("terms", f"{len(terms)} terms are more than the {most} allowed", "send fewer terms")
    for term in terms:
        if not 0 < len(term) <= limits.term_length:
            raise _refused(
                "terms",
                f"a term has {len(term)} characters, not 1 to {limits.term_length}",
                "shorten it, or leave it out if it is empty",
            )
    return terms


def _event_terms(terms: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    limits = _limits(info)
    return _check_terms(terms, limits, limits.event_terms)


def _subscription_terms(terms: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    limits = _limits(info)
    return tuple(dict.fromkeys(_check_terms(terms, limits, limits.subscription_terms)))


def _check_readings(readings: dict[str, float], info: ValidationInfo) -> dict[str, float]:
    limits = _limits(info)
    if len(readings) > limits.readings:
        raise _refused("readings", f"more than {limits.readings} readings", "send fewer readings")
    if not all(0 < len(name) <= limits.term_length for name in readings):
        raise _refused("readings", f"a name has not 1 to {limits.term_length} characters", "choose a shorter name")
    return readings


def _is_number(value: object) -> bool:
    """Or a boolean. Whole numbers only as large as every JSON reader keeps them."""
    if isinstance(value, int):
        return abs(value) <= HIGHEST_SEQ
    return isinstance(value, float) and math.isfinite(value)


def _check_attributes(attributes: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    limits = _limits(info)
    if len(attributes) > limits.attributes:
        raise _refused("attributes", f"more than {limits.attributes} attributes", "send fewer attributes")
    for name, value in attributes.items():
        if not 0 < len(name) <= limits.term_length or (isinstance(value, str) and len(value) > _LONGEST_TEXT):
            hint = f"a name has 1 to {limits.term_length} characters, a text at most {_LONGEST_TEXT}"
            raise _refused("attributes", "a name or a text is too long or empty", hint)
        if not isinstance(value, str) and not _is_number(value):
            raise _refused("attributes", f"{name} is no text, finite number or boolean", "use one of these")
    return attributes


ID = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"
Id = Annotated[str, Field(pattern=ID)]
Time = Annotated[
    int,
    BeforeValidator(_micros),
    WithJsonSchema({"anyOf": [{"type": "string", "format": "date-time"}, {"type": "number"}]}),
]
Coordinate = Annotated[float | None, BeforeValidator(_not_null), WithJsonSchema({"type": "number"})]


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class _Located(_In):
    x: Coordinate = None
    y: Coordinate = None

    @model_validator(mode="after")
    def _both_or_neither(self) -> _Located:
        if (self.x is None) != (self.y is None):
            raise _refused("point", "x and y go together", "give both or neither")
        return self


_Attributes = Annotated[dict[str, Any], AfterValidator(_check_attributes)]


class EntityIn(_Located):
    """A source or subscriber to be registered."""

    id: Id
    attributes: _Attributes = {}


class AttributesIn(RootModel[_Attributes]):
    """Attributes by name: texts, finite numbers and truth values."""

    model_config = ConfigDict(strict=True, frozen=True)


class EventIn(_Located):
    """An event. Left out, `seq` is the next number, `id` is source:seq, `time` is now, `x`, `y` the source's."""

    source: str | None = None
    seq: int | None = Field(default=None, ge=1, le=HIGHEST_SEQ)
    id: str | None = Field(default=None, min_length=1, max_length=256)
    time: Time | None = None
    terms: Annotated[tuple[str, ...], AfterValidator(_event_terms)] = ()
    readings: Annotated[dict[str, float], AfterValidator(_check_readings)] = {}


class PositionIn(_In):
    """Where an entity is, now or at `time`."""

    x: float
    y: float
    time: Time | None = None
    entity: str | None = None


class BoxIn(_In):
    """A closed rectangle. With `crosses_antimeridian`, min_x (the western border) is greater than max_x."""

    min_x: float
    min_y: float
    max_x: float
    max_y: float
    crosses_antimeridian: bool = False

    def box(self) -> Box:
        return Box(self.min_x, self.min_y, self.max_x, self.max_y)


class SubscriptionIn(_In):
    """A query in LACL; or events inside `region` (left out: anywhere) that carry all `terms` (left out: any)."""

    id: Id | None = None
    lacl: str | None = None
    region: BoxIn | None = None
    terms: Annotated[tuple[str, ...], AfterValidator(_subscription_terms)] = ()

    @model_validator(mode="after")
    def _asks_for_something(self) -> SubscriptionIn:
        if self.lacl is not None:
            if self.region is not None or self.terms:
                raise _refused("subscription", "lacl says it all", "leave out region and terms, or put them into lacl")
        elif self.region is None and not self.terms:
            raise _refused(
                "subscription",
                "neither region nor terms: this would be every event",
                'give "lacl": "Select …", or "region": {"min_x": …, "min_y": …, "max_x": …, "max_y": …}, '
                'or "terms": ["…"], or both of these',
            )
        return self


class NumbersIn(_In):
    count: Annotated[int, Field(ge=1, le=10_000)]


class AckIn(_In):
    """Acknowledge all letters up to and with this place."""

    through: int = Field(ge=0, le=2**63 - 1)


class PullIn(_In):
    """A mailbox, by the token that opens it: acknowledge up to and with place `ack`, and pull what is behind it."""

    token: str = Field(max_length=200)
    ack: int = Field(default=0, ge=0, le=2**63 - 1)
    limit: int = Field(default=100, ge=1)


Name = Annotated[str, Field(min_length=1, max_length=520)]
Domain = Annotated[str, Field(pattern=DOMAIN)]
_Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class LetterIn(_In):
    """A letter to a subscriber, by its name or, in this domain, by its id. `message` is any JSON value."""

    to: Name
    message: Any
    title: str = Field(default="", max_length=200, pattern=r"^[^\x00-\x1f]*$")
    number: int | None = Field(default=None, ge=1, le=HIGHEST_SEQ)
    ttl: float | None = Field(default=None, gt=0, le=10 * 366 * 86_400)


class ArrivalIn(_In):
    """A subscriber has come here. `previous` is the office that served it last, if it knows.

    `secret` is random, and made anew for each epoch: who comes again with the epoch has to know it.
    """

    name: Name
    epoch: int = Field(ge=1, le=HIGHEST_SEQ)
    warrant: str = Field(max_length=200)
    secret: str = Field(min_length=16, max_length=100)
    previous: Domain | None = None


class DomainIn(_In):
    domain: Domain


class JoinIn(_In):
    """Of a node that was invited; `proof` shows that it knows the invitation's secret."""

    id: str = Field(max_length=64)
    domain: Domain
    url: str = Field(max_length=300, pattern=r"^https?://[^\s]+$")
    nonce: _Hex
    proof: _Hex


class IntroductionIn(_In):
    """Another office, and the key to share with it, sealed."""

    domain: Domain
    url: str = Field(max_length=300, pattern=r"^https?://[^\s]+$")
    nonce: _Hex
    key: _Hex


class VouchIn(_In):
    """Is this warrant good?"""

    name: Name
    epoch: int = Field(ge=1, le=HIGHEST_SEQ)
    warrant: str = Field(max_length=200)


class IdentityIn(_In):
    """Is this the passport of a source of yours?"""

    id: str
    proof: str


_Point = Annotated[tuple[float, float], Field()]
_Line = Annotated[tuple[_Point, ...], Field(min_length=2, max_length=1_000)]
_Ring = Annotated[tuple[_Point, ...], Field(min_length=4, max_length=1_000)]


class PointIn(_In):
    type: Literal["Point"]
    coordinates: _Point


class LineIn(_In):
    type: Literal["LineString"]
    coordinates: _Line


class AreaIn(_In):
    type: Literal["Polygon"]
    coordinates: Annotated[tuple[_Ring, ...], Field(min_length=1, max_length=100)]


class FeatureIn(_In):
    """A GeoJSON geometry with a label and a kind."""

    geometry: Annotated[PointIn | LineIn | AreaIn, Field(discriminator="type")]
    label: str = Field(default="", max_length=200)
    kind: str = Field(default="", max_length=64)


class SceneIn(_In):
    """Changes to a layer: clear it, then remove features, then set some, for `ttl` seconds or for good."""

    layer: str = Field(min_length=1, max_length=64)
    set: dict[Annotated[str, Field(max_length=256)], FeatureIn] = {}
    remove: tuple[str, ...] = Field(default=(), max_length=100_000)
    clear: bool = False
    ttl: float | None = Field(default=None, gt=0, le=3600)


class MalformedError(InputError):
    """The body is no JSON."""


_WORDS = {
    "extra_forbidden": "unknown field",
    "missing": "this field is missing",
    "finite_number": "must be a finite number",
}


class _HasErrors(Protocol):
    """FastAPI's RequestValidationError."""

    def errors(self) -> Sequence[Any]: ...


def input_error_of(error: ValidationError | _HasErrors, name: str) -> InputError:
    """The first thing that is wrong, with the path to it, such as `events[3].x`."""
    problems = error.errors()
    first = problems[0]
    message = _WORDS.get(first["type"]) or first["msg"][0].lower() + first["msg"][1:]
    if first["type"] == "json_invalid":
        return MalformedError(message, where="body", hint="send JSON in UTF-8")
    hint = first.get("ctx", {}).get("hint", "see /docs for what is expected")
    if len(problems) > 1:
        hint += f"; {len(problems) - 1} more errors"
    return InputError(message, where=_path(name, first["loc"]), hint=hint)


def _path(name: str, steps: Sequence[str | int]) -> str:
    path = name
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path or "body"
