"""What a registry keeps, and how it is changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from roamcast.bind.lcesm.messages import Bound, StateChanged, Unbound
from roamcast.journal.records import Record
from roamcast.model import Position, Subscription

__all__ = [
    "AttributesSet",
    "Binding",
    "BodySet",
    "Change",
    "Entity",
    "EntityAdded",
    "EntityKind",
    "EntityRemoved",
    "LifecycleEnded",
    "PositionErased",
    "SubscriptionAdded",
    "SubscriptionRemoved",
    "TokenSet",
]

EntityKind = Literal["source", "subscriber"]


@dataclass(frozen=True, slots=True)
class Entity:
    """A registered source or subscriber. Only the hash of its token is kept."""

    id: str
    kind: EntityKind
    token_hash: str
    attributes: Mapping[str, str | float | bool] = field(default_factory=dict)
    position: Position | None = None


class Binding(NamedTuple):
    """A subscription had this source from `bound_at` to `unbound_at`; None: it still has."""

    subscription: str
    source: str
    bound_at: int
    unbound_at: int | None


@dataclass(frozen=True, slots=True)
class EntityAdded:
    """The id is free: nobody has it, and no subscriber ever had. A source that comes back keeps its sequence bound."""

    entity: Entity


@dataclass(frozen=True, slots=True)
class AttributesSet:
    id: str
    attributes: Mapping[str, str | float | bool]


@dataclass(frozen=True, slots=True)
class TokenSet:
    """The entity has another token from now on; the one before is worth nothing."""

    id: str
    token_hash: str


@dataclass(frozen=True, slots=True)
class PositionErased:
    """Where the entity is is not known any more, nor what it, or its subscriptions, were bound to in the past."""

    id: str


@dataclass(frozen=True, slots=True)
class EntityRemoved:
    """Its subscriptions and their bindings go with it."""

    id: str


@dataclass(frozen=True, slots=True)
class SubscriptionAdded:
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class BodySet:
    """The pipeline is told something else of this subscription from now on."""

    id: str
    body: str


@dataclass(frozen=True, slots=True)
class LifecycleEnded:
    """The subscription simply runs from now on."""

    id: str


@dataclass(frozen=True, slots=True)
class SubscriptionRemoved:
    """Its bindings go with it."""

    id: str


Change: TypeAlias = (
    EntityAdded
    | AttributesSet
    | TokenSet
    | PositionErased
    | EntityRemoved
    | Position
    | SubscriptionAdded
    | BodySet
    | LifecycleEnded
    | SubscriptionRemoved
    | StateChanged
    | Bound
    | Unbound
    | Record
)
"""A Position is where its entity is now, unless a later one is known. A StateChanged is how a subscription stands; it
has joined once it is active. Bound and Unbound begin and end a binding. A Record is a record to be journalled."""
