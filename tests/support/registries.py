"""Short constructors of registry changes, and applying them."""

from __future__ import annotations

from typing import Any

from roamcast.journal.records import SUBSCRIPTION, Record
from roamcast.model import Lifecycle, Subscription
from roamcast.store.registry.port import RegistryStore
from roamcast.store.registry.values import Change, Entity, EntityAdded, EntityKind, SubscriptionAdded

START = Lifecycle("start", "no source", 5)


def entity(id: str, kind: EntityKind = "source") -> EntityAdded:
    return EntityAdded(Entity(id, kind, token_hash=f"hash of {id}'s token"))


def added(id: str, subscriber: str = "ann", **fields: Any) -> SubscriptionAdded:
    return SubscriptionAdded(Subscription(id, subscriber, f"text of {id}", **fields))


def followed(id: str, subscriber: str = "ann") -> SubscriptionAdded:
    return added(id, subscriber, lifecycle=START)


def record(id: str, kind: str = SUBSCRIPTION) -> Record:
    return Record(kind, entity="ann", id=id, time=5, body="{}")


def apply(registry: RegistryStore, *changes: Change, at: int = 1) -> int:
    return registry.apply(changes, at=at)
