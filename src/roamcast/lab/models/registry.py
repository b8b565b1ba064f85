"""The registry in memory, for tests and simulations: nothing is durable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from threading import Lock

from roamcast.bind.lcesm.messages import Bound, StateChanged, SubscriptionState, Unbound
from roamcast.journal.records import Record
from roamcast.model import Lifecycle, Position, Subscription
from roamcast.store.registry.port import (
    check_id,
    entity_exists,
    subscription_exists,
    unknown_entity,
    unknown_source,
    unknown_subscription,
)
from roamcast.store.registry.values import (
    AttributesSet,
    Binding,
    BodySet,
    Change,
    Entity,
    EntityAdded,
    EntityKind,
    EntityRemoved,
    LifecycleEnded,
    PositionErased,
    SubscriptionAdded,
    SubscriptionRemoved,
    TokenSet,
    Want,
    WantAdded,
    WantRemoved,
)

__all__ = ["MemoryRegistry"]


@dataclass(slots=True)
class _Tables:
    entities: dict[str, Entity] = field(default_factory=dict)
    retired: dict[str, EntityKind] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    bindings: list[Binding] = field(default_factory=list)
    wants: set[Want] = field(default_factory=set)
    control_outbox: dict[int, Record] = field(default_factory=dict)
    next_ticket: int = 1
    latest: int = 0

    def copied(self) -> _Tables:
        tables = copy(self)
        for name in ("entities", "retired", "subscriptions", "bindings", "wants", "control_outbox"):
            setattr(tables, name, copy(getattr(self, name)))
        return tables


class MemoryRegistry:
    """A RegistryStore. It copies everything at every change."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._incarnation = 0
        self._tables = _Tables()
        self._bounds: dict[str, int] = {}
        self._pipeline: str | None = None

    def apply(self, changes: Sequence[Change], *, at: int, journalled: int = 0) -> int:
        with self._lock:
            tables = self._tables.copied()
            for change in changes:
                _apply(tables, change)
            _forget(tables, journalled)
            tables.latest = max(at, tables.latest)
            before, self._tables = self._tables.next_ticket, tables
            return tables.next_ticket - 1 if tables.next_ticket > before else 0

    def entity(self, id: str) -> Entity:
        return _entity(self._tables, id)

    def entities(self) -> list[Entity]:
        return [entity for _, entity in sorted(self._tables.entities.items())]

    def retired(self, ids: Sequence[str]) -> dict[str, EntityKind]:
        return {id: self._tables.retired[id] for id in ids if id in self._tables.retired}

    def retired_subscribers(self) -> list[str]:
        return sorted(id for id, kind in self._tables.retired.items() if kind == "subscriber")

    def sequence_bounds(self, sources: Sequence[str]) -> dict[str, int]:
        return {source: self._bounds.get(source, 1) for source in sources}

    def raise_sequence_bounds(self, bounds: Mapping[str, int]) -> None:
        with self._lock:
            for source in bounds:
                entity = self._tables.entities.get(source)
                if entity is None or entity.kind != "source":
                    raise unknown_source(source)
            for source, bound in bounds.items():
                self._bounds[source] = max(bound, self._bounds.get(source, 1))

    def subscription(self, id: str) -> Subscription:
        return _subscription(self._tables, id)

    def subscriptions_among(self, ids: Sequence[str]) -> list[Subscription]:
        return [self._tables.subscriptions[id] for id in dict.fromkeys(ids) if id in self._tables.subscriptions]

    def subscriptions(
        self, subscriber: str | None = None, *, after: str = "", limit: int | None = None
    ) -> list[Subscription]:
        found = (s for _, s in sorted(self._tables.subscriptions.items()) if s.id > after)
        return [s for s in found if subscriber in (None, s.subscriber)][:limit]

    def subscription_count(self, subscriber: str) -> int:
        return len(self.subscriptions(subscriber))

    def subscriptions_with_lifecycle(self) -> list[Subscription]:
        return [s for s in self.subscriptions() if s.lifecycle is not None]

    def subscriptions_naming_places(self) -> list[Subscription]:
        return [s for s in self.subscriptions() if s.places]

    def subscriptions_with_moving_region(self) -> list[Subscription]:
        return [s for s in self.subscriptions() if s.has_moving_region]

    def count_without_lifecycle(self) -> Counter[tuple[str, str]]:
        return Counter((s.source_condition, s.cell) for s in self.subscriptions() if not s.has_lifecycle)

    def live_bindings(self, subscriptions: Collection[str] | None = None) -> list[Bound]:
        live = [b for b in _live(self._tables) if subscriptions is None or b.subscription in subscriptions]
        return [Bound(b.subscription, b.source, b.bound_at) for b in sorted(live, key=lambda b: b[:2])]

    def bindings(self, subscription: str, limit: int, skip: int = 0) -> list[Binding]:
        found = [b for b in self._tables.bindings if b.subscription == subscription]
        return sorted(found, key=lambda b: (-b.bound_at, b.source))[skip : skip + limit]

    def prune(self, before: int, limit: int) -> int:
        with self._lock:
            ended = [b for b in self._tables.bindings if b.unbound_at is not None and b.unbound_at < before]
            gone = set(sorted(ended, key=lambda b: b.unbound_at or 0)[:limit])
            self._tables.bindings = [b for b in self._tables.bindings if b not in gone]
            return len(gone)

    def control_outbox(self, *, after: int = 0, limit: int | None = None) -> list[tuple[int, Record]]:
        return [(ticket, record) for ticket, record in self._tables.control_outbox.items() if ticket > after][:limit]

    def trim_outbox(self, through: int) -> None:
        with self._lock:
            _forget(self._tables, through)

    def latest(self) -> int:
        return self._tables.latest

    def new_incarnation(self, at: int) -> int:
        with self._lock:
            self._incarnation = max(at, self._incarnation + 1)
            return self._incarnation

    def pipeline(self) -> str | None:
        return self._pipeline

    def set_pipeline(self, identity: str) -> None:
        self._pipeline = identity

    def wants(self) -> list[Want]:
        return sorted(self._tables.wants)

    def close(self) -> None:
        """Nothing to release."""


def _apply(tables: _Tables, change: Change) -> None:
    match change:
        case EntityAdded(entity):
            _add_entity(tables, entity)
        case AttributesSet(id, attributes):
            tables.entities[id] = replace(_entity(tables, id), attributes=dict(attributes))
        case TokenSet(id, token_hash):
            if any(other.token_hash == token_hash for other in tables.entities.values() if other.id != id):
                raise entity_exists(id)
            tables.entities[id] = replace(_entity(tables, id), token_hash=token_hash)
        case PositionErased(id):
            tables.entities[id] = replace(_entity(tables, id), position=None)
            mine = {s.id for s in tables.subscriptions.values() if s.subscriber == id}
            past = [
                b for b in tables.bindings if b.unbound_at is not None and (b.subscription in mine or b.source == id)
            ]
            tables.bindings = [b for b in tables.bindings if b not in past]
        case EntityRemoved(id):
            tables.retired[id] = _entity(tables, id).kind
            del tables.entities[id]
            for own in [s.id for s in tables.subscriptions.values() if s.subscriber == id]:
                _remove_subscription(tables, own)
        case Position(id):
            entity = _entity(tables, id)
            if change.supersedes(entity.position):
                tables.entities[id] = replace(entity, position=change)
        case SubscriptionAdded(subscription):
            if subscription.id in tables.subscriptions:
                raise subscription_exists(subscription.id)
            tables.subscriptions[subscription.id] = subscription
        case BodySet(id, body, cell):
            tables.subscriptions[id] = replace(_subscription(tables, id), body=body, cell=cell)
        case LifecycleEnded(id):
            tables.subscriptions[id] = replace(_subscription(tables, id), lifecycle=None)
        case SubscriptionRemoved(id):
            _subscription(tables, id)
            _remove_subscription(tables, id)
        case StateChanged(id, state, why, at):
            subscription = _subscription(tables, id)
            was_active = subscription.lifecycle is not None and subscription.lifecycle.was_active
            lifecycle = Lifecycle(state.value, why, at, was_active or state is SubscriptionState.ACTIVE)
            tables.subscriptions[id] = replace(subscription, lifecycle=lifecycle)
        case Bound(id, source, at):
            _subscription(tables, id)
            tables.bindings.append(Binding(id, source, at, None))
        case Unbound(id, source, at):
            for binding in [b for b in _live(tables) if (b.subscription, b.source) == (id, source)]:
                tables.bindings[tables.bindings.index(binding)] = binding._replace(unbound_at=at)
        case WantAdded(want):
            tables.wants.add(want)
        case WantRemoved(want):
            tables.wants.discard(want)
        case Record():
            tables.control_outbox[tables.next_ticket] = change
            tables.next_ticket += 1


def _add_entity(tables: _Tables, entity: Entity) -> None:
    hashes = {other.token_hash for other in tables.entities.values()} - {None}
    if entity.id in tables.entities or entity.token_hash in hashes:
        raise entity_exists(entity.id)
    check_id(entity.id, entity.kind, tables.retired.get(entity.id))
    tables.retired.pop(entity.id, None)
    tables.entities[entity.id] = replace(entity, attributes=dict(entity.attributes))


def _entity(tables: _Tables, id: str) -> Entity:
    if id not in tables.entities:
        raise unknown_entity(id)
    return tables.entities[id]


def _subscription(tables: _Tables, id: str) -> Subscription:
    if id not in tables.subscriptions:
        raise unknown_subscription(id)
    return tables.subscriptions[id]


def _remove_subscription(tables: _Tables, id: str) -> None:
    del tables.subscriptions[id]
    tables.bindings = [b for b in tables.bindings if b.subscription != id]


def _live(tables: _Tables) -> list[Binding]:
    return [b for b in tables.bindings if b.unbound_at is None]


def _forget(tables: _Tables, through: int) -> None:
    for ticket in [ticket for ticket in tables.control_outbox if ticket <= through]:
        del tables.control_outbox[ticket]
