"""Request bodies: the JSON that the API accepts.

Unknown fields and wrong types are refused ("12" and true are not numbers), and so are NaN and infinities.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    RootModel,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from roamcast.errors import InputError
from roamcast.model import EARLIEST, EPOCH, LATEST, Box
from roamcast.settings_model import NodeLimits
from roamcast.validation import DOMAIN, ID, NO_CONTROLS, TOKEN

if TYPE_CHECKING:
    from roamcast.coordinates import CoordinateLimits
    from roamcast.space import Space

__all__ = [
    "HIGHEST_SEQ", "AckIn", "ArrivalIn", "AttributesIn", "Domain", "DomainIn", "EntityIn", "EventIn", "FeatureIn",
    "GatewayIn", "LetterIn", "Name", "NumbersIn", "PositionIn", "PullIn", "RequestModel", "SceneIn",
    "SubscriptionIdsIn", "SubscriptionIn", "micros",
]  # fmt: skip

HIGHEST_SEQ = 2**53 - 1
"""The largest integer that every JSON reader represents exactly."""

_LONGEST_TEXT = 1_000
_BOX_HINT = 'send "box": [min_x, min_y, max_x, max_y]'
_DEFAULT_LIMITS = NodeLimits()


def _invalid(kind: str, message: str, hint: str) -> PydanticCustomError:
    return PydanticCustomError(kind, message, {"hint": hint})


def micros(value: object) -> int:
    """Microseconds since 1970, from ISO 8601 with a UTC offset or from seconds. Raises a ValueError."""
    hint = "use ISO 8601 with a UTC offset, such as 2026-01-31T12:00:00Z, or seconds since 1970"
    try:
        if isinstance(value, str):
            time = (datetime.fromisoformat(value) - EPOCH) // timedelta(microseconds=1)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            time = round(value * 1_000_000)
        else:
            raise TypeError
    except (TypeError, ValueError, OverflowError):  # a time without an offset is a TypeError, NaN a ValueError
        raise _invalid("time", "must be a time with a UTC offset, or a number of seconds", hint) from None
    if not EARLIEST <= time <= LATEST:  # the UTC offset or rounding may lead beyond
        raise _invalid("time", "must be a time between the years 1 and 9999", hint)
    return time


def _not_null(value: object) -> object:
    """Refuse null coordinates: some senders write NaN as null, and treating it as absent would hide that."""
    if value is None:
        raise _invalid("coordinate", "must be a finite number, not null", "omit it, or send a number")
    return value


def _limits(info: ValidationInfo) -> NodeLimits:
    limits: NodeLimits = info.context or _DEFAULT_LIMITS
    return limits


def _check_terms(terms: tuple[str, ...], limits: NodeLimits, most: int) -> tuple[str, ...]:
    if len(terms) > most:
        raise _invalid("terms", f"{len(terms)} terms; at most {most} are allowed", "send fewer terms")
    for term in terms:
        if not 0 < len(term) <= limits.term_length:
            raise _invalid(
                "terms",
                f"a term has {len(term)} characters; 1 to {limits.term_length} are allowed",
                "use shorter terms, and omit empty ones",
            )
    return terms


def _event_terms(terms: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    limits = _limits(info)
    return _check_terms(terms, limits, limits.event_terms)


def _subscription_terms(terms: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    limits = _limits(info)
    if any("\0" in term for term in terms):
        raise _invalid("terms", "a term contains the character U+0000", "remove it: LACL has no such terms")
    return tuple(dict.fromkeys(_check_terms(terms, limits, limits.subscription_terms)))


def _check_readings(readings: dict[str, float], info: ValidationInfo) -> dict[str, float]:
    limits = _limits(info)
    if len(readings) > limits.readings:
        raise _invalid(
            "readings", f"{len(readings)} readings; at most {limits.readings} are allowed", "send fewer readings"
        )
    if not all(0 < len(name) <= limits.term_length for name in readings):
        raise _invalid("readings", f"names must have 1 to {limits.term_length} characters", "use shorter names")
    return readings


def _is_number(value: object) -> bool:
    """Whether it is a finite number or a boolean. Integers must be exact in every JSON reader."""
    if isinstance(value, int):
        return abs(value) <= HIGHEST_SEQ
    return isinstance(value, float) and math.isfinite(value)


def _check_attributes(attributes: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
    limits = _limits(info)
    if len(attributes) > limits.attributes:
        raise _invalid(
            "attributes",
            f"{len(attributes)} attributes; at most {limits.attributes} are allowed",
            "send fewer attributes",
        )
    for name, value in attributes.items():
        if not 0 < len(name) <= limits.term_length or (isinstance(value, str) and len(value) > _LONGEST_TEXT):
            hint = f"names have 1 to {limits.term_length} characters, strings at most {_LONGEST_TEXT}"
            raise _invalid("attributes", "a name is empty, or a name or string is too long", hint)
        if not isinstance(value, str) and not _is_number(value):
            raise _invalid("attributes", f"{name} must be a string, a finite number or a boolean", "change its type")
    return attributes


Id = Annotated[str, Field(pattern=ID)]
Time = Annotated[
    int,
    BeforeValidator(micros),
    WithJsonSchema({"anyOf": [{"type": "string", "format": "date-time"}, {"type": "number"}]}),
]
Coordinate = Annotated[float | None, BeforeValidator(_not_null), WithJsonSchema({"type": "number"})]


class RequestModel(BaseModel):
    """Unknown keys and values of other types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)
    former_fields: ClassVar[dict[str, str]] = {}
    """Fields of earlier versions, and hints what to send instead."""


class _Located(RequestModel):
    x: Coordinate = None
    y: Coordinate = None

    @model_validator(mode="after")
    def _both_or_neither(self) -> _Located:
        if (self.x is None) != (self.y is None):
            raise _invalid("point", "x and y must be given together", "send both or neither")
        return self


_Attributes = Annotated[dict[str, Any], AfterValidator(_check_attributes)]


class EntityIn(_Located):
    """A source or subscriber to register.

    `token` is a random one that the caller has chosen and stored; then the request can be repeated. Otherwise, the node
    chooses one. A source of a gateway has none.
    """

    id: Id
    attributes: _Attributes = {}
    token: str | None = Field(default=None, pattern=TOKEN)


class GatewayIn(RequestModel):
    """A gateway to register. For `token` see `EntityIn`."""

    id: Id
    attributes: _Attributes = {}
    token: str | None = Field(default=None, pattern=TOKEN)


class AttributesIn(RootModel[_Attributes]):
    """Attributes by name: strings, finite numbers and booleans."""

    model_config = ConfigDict(strict=True, frozen=True)


class EventIn(_Located):
    """An event. Defaults: `seq` the next number, `id` source:seq, `time` now, `x` and `y` the source's position."""

    source: str | None = None
    seq: int | None = Field(default=None, ge=1, le=HIGHEST_SEQ)
    id: str | None = Field(default=None, min_length=1, max_length=256)
    time: Time | None = None
    terms: Annotated[tuple[str, ...], FailFast(), AfterValidator(_event_terms)] = ()
    readings: Annotated[dict[str, float], AfterValidator(_check_readings)] = {}


class PositionIn(RequestModel):
    """The position of an entity, now or at `time`."""

    x: float
    y: float
    time: Time | None = None
    entity: str | None = None


_SHORTEST_HISTORY: Final = 1e-6  # seconds


class SubscriptionIn(RequestModel):
    """A LACL query (`lacl`); or events inside `box` (default: anywhere) with all `terms` (default: any).

    With `since` (seconds), it also gets the letters that it would have received in that time before, from the archive.
    Only in a request for a single subscription, and at most as long as the node allows.

    A box is [min_x, min_y, max_x, max_y]; its borders are inside. `min_x > max_x` is refused unless
    `crosses_antimeridian` is true (geographic space only).
    """

    former_fields = {"region": _BOX_HINT}

    id: Id | None = None
    lacl: str | None = None
    box: list[float] | None = Field(default=None, min_length=4, max_length=4)
    crosses_antimeridian: bool = False
    terms: Annotated[tuple[str, ...], FailFast(), AfterValidator(_subscription_terms)] = ()
    since: float | None = Field(default=None, ge=_SHORTEST_HISTORY, allow_inf_nan=False)

    @model_validator(mode="after")
    def _has_query(self) -> SubscriptionIn:
        if self.lacl is not None:
            if self.box is not None or self.terms or self.crosses_antimeridian:
                raise _invalid(
                    "subscription",
                    "lacl cannot be combined with box, crosses_antimeridian or terms",
                    "put box and terms into the LACL query",
                )
        elif self.crosses_antimeridian and self.box is None:
            raise _invalid("subscription", "crosses_antimeridian needs a box", _BOX_HINT)
        elif self.box is None and not self.terms:
            raise _invalid(
                "subscription",
                "no query: it would match every event",
                'send "lacl": "Select …", or "box": [min_x, min_y, max_x, max_y], or "terms": ["…"], or both of these',
            )
        return self

    def box_in(self, space: Space | CoordinateLimits) -> Box | None:
        """The box. Raises InputError, which names the border by its index, if it is invalid in the space."""
        if self.box is None:
            return None
        box = Box(*self.box)
        try:
            space.check_box(box, crosses_antimeridian=self.crosses_antimeridian)
        except InputError as error:
            where = f"box[{Box._fields.index(error.where)}]" if error.where in Box._fields else error.where
            raise InputError(error.message, where=where, hint=error.hint) from None
        return box


class SubscriptionIdsIn(RequestModel):
    """Ids of subscriptions."""

    ids: Annotated[tuple[Id, ...], FailFast(), Field(min_length=1, max_length=100_000)]


_Count = Annotated[int, Field(ge=1, le=10_000)]


def _check_sources(sources: dict[str, int], info: ValidationInfo) -> dict[str, int]:
    most = _limits(info).bulk
    if not 0 < len(sources) <= most:
        raise _invalid("sources", f"{len(sources)} sources in one request", f"send 1 to {most} in a request")
    return sources


class NumbersIn(RequestModel):
    """How many sequence numbers to reserve: `count`, or by source, as a gateway does."""

    count: _Count | None = None
    sources: Annotated[dict[str, _Count], AfterValidator(_check_sources)] | None = None

    @model_validator(mode="after")
    def _has_count(self) -> NumbersIn:
        if (self.count is None) == (self.sources is None):
            raise _invalid("numbers", "either count or sources is required", 'a gateway sends "sources": {"id": count}')
        return self


class AckIn(RequestModel):
    """Acknowledge all letters up to and including this offset."""

    through: int = Field(ge=0, le=2**63 - 1)


class PullIn(RequestModel):
    """A mailbox, by its token: acknowledge up to and including offset `through`, then pull the letters after it."""

    token: str = Field(max_length=200)
    through: int = Field(default=0, ge=0, le=2**63 - 1)
    limit: int = Field(default=100, ge=1)


Name = Annotated[str, Field(min_length=1, max_length=520)]
Domain = Annotated[str, Field(pattern=DOMAIN)]


class LetterIn(RequestModel):
    """A letter to a subscriber, given by name or, in this domain, by id. `message` is any JSON value."""

    to: Name
    message: Any
    title: str = Field(default="", max_length=200, pattern=NO_CONTROLS)
    number: int | None = Field(default=None, ge=1, le=HIGHEST_SEQ)
    ttl: float | None = Field(default=None, gt=0, le=10 * 366 * 86_400)


class ArrivalIn(RequestModel):
    """A subscriber has arrived here. `previous` is the office that served it last, if known.

    `secret` is random and new for each epoch: only who knows it can repeat the arrival.
    """

    name: Name
    epoch: int = Field(ge=1, le=HIGHEST_SEQ)
    move_proof: str = Field(max_length=200)
    secret: str = Field(min_length=16, max_length=100)
    previous: Domain | None = None


class DomainIn(RequestModel):
    """The domain to invite."""

    domain: Domain


_Point = Annotated[tuple[float, float], Field()]
_LineString = Annotated[tuple[_Point, ...], FailFast(), Field(min_length=2, max_length=1_000)]
_Ring = Annotated[tuple[_Point, ...], FailFast(), Field(min_length=4, max_length=1_000)]


class PointIn(RequestModel):
    type: Literal["Point"]
    coordinates: _Point


class LineIn(RequestModel):
    type: Literal["LineString"]
    coordinates: _LineString


class AreaIn(RequestModel):
    type: Literal["Polygon"]
    coordinates: Annotated[tuple[_Ring, ...], FailFast(), Field(min_length=1, max_length=100)]


class FeatureIn(RequestModel):
    """A feature: a GeoJSON geometry with a label and a kind."""

    geometry: Annotated[PointIn | LineIn | AreaIn, Field(discriminator="type")]
    label: str = Field(default="", max_length=200)
    kind: str = Field(default="", max_length=64)


class SceneIn(RequestModel):
    """Changes to a layer: clear it, then remove features, then set some, for `ttl` seconds or permanently."""

    layer: str = Field(min_length=1, max_length=64)
    set: dict[Annotated[str, Field(max_length=256)], FeatureIn] = {}
    remove: Annotated[tuple[str, ...], FailFast(), Field(max_length=100_000)] = ()
    clear: bool = False
    ttl: float | None = Field(default=None, gt=0, le=3600)
