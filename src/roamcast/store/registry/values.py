"""The values of a registry and the changes that can be applied to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

from roamcast.bind.lcesm.messages import Bound, StateChanged, Unbound
from roamcast.journal.records import Record
from roamcast.model import Position, Subscription

__all__ = [
    "NO_ATTRIBUTES",
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
    "Want",
    "WantAdded",
    "WantRemoved",
]

EntityKind = Literal["source", "subscriber", "gateway"]

NO_ATTRIBUTES: Final[Mapping[str, str | float | bool]] = {}
"""The attributes of all entities without any: there may be very many."""


@dataclass(frozen=True, slots=True)
class Entity:
    """A registered source, subscriber or gateway. Only the hash of its token is stored.

    A source may belong to a gateway. Then it has no token of its own.
    """

    id: str
    kind: EntityKind
    token_hash: str | None
    attributes: Mapping[str, str | float | bool] = field(default_factory=lambda: NO_ATTRIBUTES)
    position: Position | None = None
    gateway: str | None = None


class Binding(NamedTuple):
    """A subscription was bound to this source from `bound_at` to `unbound_at`; None while the binding is live."""

    subscription: str
    source: str
    bound_at: int
    unbound_at: int | None


@dataclass(frozen=True, slots=True)
class EntityAdded:
    """The id must be unused, and must not have been an entity of another kind or a subscriber.

    A source that returns keeps its sequence bound, also if it has another gateway now.
    """

    entity: Entity


@dataclass(frozen=True, slots=True)
class AttributesSet:
    id: str
    attributes: Mapping[str, str | float | bool]


@dataclass(frozen=True, slots=True)
class TokenSet:
    """Replaces the token of an entity that has one. The old one becomes invalid."""

    id: str
    token_hash: str


@dataclass(frozen=True, slots=True)
class PositionErased:
    """Erases the entity's position and binding history."""

    id: str


@dataclass(frozen=True, slots=True)
class EntityRemoved:
    """Removes the entity, its subscriptions and their bindings."""

    id: str


@dataclass(frozen=True, slots=True)
class SubscriptionAdded:
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class BodySet:
    """Replaces what the pipeline receives for this subscription, and the cell that its region is in."""

    id: str
    body: str
    cell: str


@dataclass(frozen=True, slots=True)
class LifecycleEnded:
    """The subscription runs unconditionally from now on."""

    id: str


@dataclass(frozen=True, slots=True)
class SubscriptionRemoved:
    """Removes the subscription and its bindings."""

    id: str


class Want(NamedTuple):
    """What a peer wants of this node's sources, for its data folder `link`; see `journal.wants`."""

    link: str
    peer: str
    want: str


@dataclass(frozen=True, slots=True)
class WantAdded:
    want: Want


@dataclass(frozen=True, slots=True)
class WantRemoved:
    want: Want


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
    | WantAdded
    | WantRemoved
    | Record
)
"""A Position sets the entity's position unless a later one is stored. A StateChanged sets the lifecycle of a
subscription. Bound and Unbound begin and end a binding. A Record goes to the control outbox."""
