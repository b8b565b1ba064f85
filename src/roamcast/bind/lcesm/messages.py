"""Messages to a binder, and the effects it returns: frozen values.

Times are integer microseconds since 1970. Attributes replace all earlier ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from roamcast.lacl import Query
from roamcast.lacl.conditions import Attribute
from roamcast.model import Position

__all__ = [
    "Attributes",
    "Bound",
    "Effect",
    "EntityMoved",
    "EntityRegistered",
    "MatchStarted",
    "MatchStopped",
    "Message",
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
    "SubscriptionState",
    "Unbound",
    "Unsubscribed",
    "same_attributes",
]

Attributes: TypeAlias = Mapping[str, Attribute]


def same_attributes(first: Attributes, second: Attributes) -> bool:
    """Whether attributes are equal, where True and 1 are different."""
    return dict(first) == dict(second) and all(
        isinstance(value, bool) == isinstance(second[name], bool) for name, value in first.items()
    )


@dataclass(frozen=True, slots=True)
class SourceRegistered:
    """Repeating it with the same attributes is harmless; its position then counts as a move."""

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
    """The position of a source is erased. The next position counts, whatever its time."""

    id: str


@dataclass(frozen=True, slots=True)
class SubscriberRegistered:
    """Repeating it with the same attributes is harmless; its position then counts as a move."""

    id: str
    attributes: Attributes
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class SubscriberChanged:
    id: str
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class SubscriberRemoved:
    """Removes the subscriber's subscriptions, too."""

    id: str


@dataclass(frozen=True, slots=True)
class EntityMoved:
    """An entity was at (x, y) at `time`. Ignored if a later position is known."""

    entity: str
    x: float
    y: float
    time: int


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The query has been checked. Repeating it with the same subscriber and query is harmless."""

    id: str
    subscriber: str
    query: Query


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    id: str


class SubscriptionState(StrEnum):
    START = "start"  # it runs, and its agent has not found a source yet
    ACTIVE = "active"  # it has a source, or runs and is of plan match
    INACTIVE = "inactive"  # it has lost its source, and its agent looks for another
    STOP = "stop"  # it does not run


EntityRegistered: TypeAlias = SourceRegistered | SubscriberRegistered
SourceMessage: TypeAlias = SourceRegistered | SourceChanged | SourceRemoved | PositionForgotten | EntityMoved
Message: TypeAlias = (
    SourceMessage | SubscriberRegistered | SubscriberChanged | SubscriberRemoved | Subscribed | Unsubscribed
)


@dataclass(frozen=True, slots=True)
class Bound:
    """The subscription receives the source's events from `at` on."""

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
    """`why` explains to people why the subscription receives nothing; None when it is active."""

    subscription: str
    state: SubscriptionState
    why: str | None
    at: int


@dataclass(frozen=True, slots=True)
class MatchStarted:
    """A subscription of plan match starts to run."""

    subscription: str
    at: int


@dataclass(frozen=True, slots=True)
class MatchStopped:
    """A subscription of plan match stops running."""

    subscription: str
    at: int


@dataclass(frozen=True, slots=True)
class SourceDemanded:
    """The source is demanded by a binding of this node, and was not before.

    `discovery/demand.py` adds plan match and peers.
    """

    source: str
    at: int


@dataclass(frozen=True, slots=True)
class SourceIdle:
    """The source has no binding of this node any more."""

    source: str
    at: int


Effect: TypeAlias = Bound | Unbound | StateChanged | MatchStarted | MatchStopped | SourceDemanded | SourceIdle
