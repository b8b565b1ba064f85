"""What a binder is told, and what it answers: frozen values.

Times are whole microseconds since 1970, as everywhere. Attributes replace all earlier ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from roamcast.bind.lcesm.states import SubscriptionState
from roamcast.lacl import Query
from roamcast.lacl.conditions import Attribute
from roamcast.model import Position
from roamcast.places import Places

__all__ = [
    "Activated",
    "Attributes",
    "Bound",
    "Deactivated",
    "Effect",
    "EntityMoved",
    "EntityRegistered",
    "Message",
    "PlacesChanged",
    "PositionForgotten",
    "SourceChanged",
    "SourceDemanded",
    "SourceIdle",
    "SourceMessage",
    "SourceRegistered",
    "SourceRemoved",
    "StateChanged",
    "Subscribed",
    "SubscriberChanged",
    "SubscriberRegistered",
    "SubscriberRemoved",
    "Unbound",
    "Unsubscribed",
    "same_attributes",
]

Attributes: TypeAlias = Mapping[str, Attribute]


def same_attributes(some: Attributes, others: Attributes) -> bool:
    """True is not 1 here."""
    return dict(some) == dict(others) and all(
        isinstance(value, bool) == isinstance(others[name], bool) for name, value in some.items()
    )


@dataclass(frozen=True, slots=True)
class SourceRegistered:
    """Again with the same attributes it is harmless; its position is then taken as a move."""

    id: str
    attributes: Attributes
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class SourceChanged:
    id: str
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class SourceRemoved:
    id: str


@dataclass(frozen=True, slots=True)
class PositionForgotten:
    """It is not known any more where a source is. Whatever position is told next counts."""

    id: str


@dataclass(frozen=True, slots=True)
class SubscriberRegistered:
    """Again with the same attributes it is harmless; its position is then taken as a move."""

    id: str
    attributes: Attributes
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class SubscriberChanged:
    id: str
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class SubscriberRemoved:
    """Its subscriptions go with it."""

    id: str


@dataclass(frozen=True, slots=True)
class EntityMoved:
    """An entity was here at `time`. Older than what is known of it: ignored and counted."""

    entity: str
    x: float
    y: float
    time: int


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The query has been checked. Again with the same subscriber and query it is harmless."""

    id: str
    subscriber: str
    query: Query


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    id: str


@dataclass(frozen=True, slots=True)
class PlacesChanged:
    """These places and no others."""

    places: Places


EntityRegistered: TypeAlias = SourceRegistered | SubscriberRegistered
SourceMessage: TypeAlias = SourceRegistered | SourceChanged | SourceRemoved | PositionForgotten | EntityMoved
Message: TypeAlias = (
    SourceMessage
    | SubscriberRegistered
    | SubscriberChanged
    | SubscriberRemoved
    | Subscribed
    | Unsubscribed
    | PlacesChanged
)


@dataclass(frozen=True, slots=True)
class Bound:
    """From now on the subscription listens to the source."""

    subscription: str
    source: str
    at: int


@dataclass(frozen=True, slots=True)
class Unbound:
    subscription: str
    source: str
    at: int


@dataclass(frozen=True, slots=True)
class StateChanged:
    """`why` says to a person why the subscription hears nothing; None when it is active."""

    subscription: str
    state: SubscriptionState
    why: str | None
    at: int


@dataclass(frozen=True, slots=True)
class Activated:
    """A subscription of the match plan begins to run."""

    subscription: str
    at: int


@dataclass(frozen=True, slots=True)
class Deactivated:
    """A subscription of the match plan ceases to run."""

    subscription: str
    at: int


@dataclass(frozen=True, slots=True)
class SourceDemanded:
    """A binding names this source, and none did before."""

    source: str
    at: int


@dataclass(frozen=True, slots=True)
class SourceIdle:
    """No binding names this source any more."""

    source: str
    at: int


Effect: TypeAlias = Bound | Unbound | StateChanged | Activated | Deactivated | SourceDemanded | SourceIdle
