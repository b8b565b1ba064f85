"""A group of requests to the control writer: each is checked and applied in order; the group is stored as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from roamcast.bind.lcesm.messages import (
    SourceChanged,
    SourceMessage,
    SourceRemoved,
    SubscriberChanged,
    SubscriberRemoved,
)
from roamcast.errors import NotFoundError, PermissionDeniedError, RoamcastError
from roamcast.group_commit import Submission
from roamcast.journal.records import REMOVAL, SUBSCRIPTION, Record
from roamcast.model import Lifecycle, Position, Subscription
from roamcast.node.clock import Clock
from roamcast.node.control.binder_adapter import BinderAdapter, ControlUpdate, registration
from roamcast.node.control.entity_cache import EntityCache
from roamcast.node.control.queries import CheckedQuery, cell_of, places_of
from roamcast.store.registry.port import (
    RegistryStore,
    entity_exists,
    id_retired,
    subscription_exists,
    unknown_entity,
    unknown_subscription,
)
from roamcast.store.registry.values import (
    AttributesSet,
    Entity,
    EntityAdded,
    EntityRemoved,
    PositionErased,
    SubscriptionAdded,
    SubscriptionRemoved,
    TokenSet,
)

__all__ = ["Completion", "ControlRequest", "RequestGroup"]


class ControlRequest(NamedTuple):
    """A request to the control writer.

    `done_when_stored`: it succeeds even if the journal fails, because its token is returned only once.
    `alone`: it forms a group of its own. `reads`: it changes nothing and needs no disk.
    """

    apply: Callable[[RequestGroup], Any]
    done_when_stored: bool = False
    alone: bool = False
    reads: bool = False


class Completion(NamedTuple):
    """The result of a request, delivered after its group is stored."""

    submission: Submission[ControlRequest]
    result: object
    error: RoamcastError | None

    def deliver(self) -> None:
        if self.error is None:
            self.submission.future.set_result(self.result)
        else:
            self.submission.future.set_exception(self.error)


class RequestGroup:
    """Applies requests in memory and collects what to store. A refused request raises and has changed nothing.

    Requests see the changes of earlier ones in the group. Moves are collected and handed to the binder together: before
    the next request that depends on them, or at the end of the group.
    """

    def __init__(self, registry: RegistryStore, entities: EntityCache, adapter: BinderAdapter, clock: Clock) -> None:
        self._registry = registry
        self._cache = entities
        self._adapter = adapter
        self._clock = clock
        self._moves: dict[str, Position] = {}
        self._subscriptions: dict[str, Subscription | None] = {}
        self.entities: dict[str, Entity | None] = {}  # changed ones; None is removed
        self.update = ControlUpdate()
        self.removed_subscribers: list[str] = []
        self.accepted_moves = 0
        self.stale_moves = 0
        self.without_lifecycle = 0  # change in the number of subscriptions without a lifecycle
        self.erased: PositionErased | None = None  # rebuild the binder without this position once the group is stored
        self.pipeline: str | None = None  # send it everything in force once the group is stored

    def apply(self, submission: Submission[ControlRequest]) -> Completion:
        try:
            return Completion(submission, submission.request.apply(self), None)
        except RoamcastError as error:
            return Completion(submission, None, error)

    def adapter(self) -> BinderAdapter:
        """The binder adapter, with all requests so far applied."""
        self.flush_moves()
        return self._adapter

    def register(self, entity: Entity) -> None:
        if self._find(entity.id) is not None:
            raise entity_exists(entity.id)
        former_kind = self._retired(entity.id)
        if former_kind is not None and (former_kind, entity.kind) != ("source", "source"):
            raise id_retired(entity.id, former_kind)
        self.flush_moves()
        self.update.changes.append(EntityAdded(entity))
        self.update.add(self._adapter.handle(registration(entity), self._clock.now()))
        self.entities[entity.id] = entity

    def set_attributes(self, id: str, attributes: dict[str, str | float | bool]) -> Entity:
        """Replace all attributes; returns the changed entity."""
        entity = replace(self._get(id), attributes=attributes)
        self.flush_moves()
        message = (SourceChanged if entity.kind == "source" else SubscriberChanged)(id, attributes)
        self.update.changes.append(AttributesSet(id, attributes))
        self.update.add(self._adapter.handle(message, self._clock.now()))
        self.entities[id] = entity
        return entity

    def set_token(self, id: str, token_hash: str) -> None:
        entity = replace(self._get(id), token_hash=token_hash)
        self.update.changes.append(TokenSet(id, token_hash))
        self.entities[id] = entity

    def erase_position(self, id: str) -> None:
        """Erase the position. The pipeline gets the subscriber's moving regions again, without a position."""
        entity = self._get(id)
        self.flush_moves()
        at = self._clock.now()
        for subscription in self._subscriptions_of(id) if entity.kind == "subscriber" else ():
            if subscription.has_moving_region and subscription.in_pipeline:
                self.update.records += (
                    Record(REMOVAL, id, id=subscription.id, time=at),
                    Record(SUBSCRIPTION, id, id=subscription.id, time=at, body=subscription.body),
                )
        self.erased = PositionErased(id)
        self.update.changes.append(self.erased)
        self.entities[id] = replace(entity, position=None)

    def remove(self, id: str) -> list[str]:
        """Remove an entity; returns the ids of the subscriptions removed with it."""
        entity = self._get(id)
        subscriptions = self._subscriptions_of(id) if entity.kind == "subscriber" else []
        self.flush_moves()
        at = self._clock.now()
        message = SourceRemoved(id) if entity.kind == "source" else SubscriberRemoved(id)
        self.update.add(self._adapter.handle(message, at))
        for subscription in subscriptions:
            if subscription.has_lifecycle:
                self.update.add(self._adapter.drop(subscription.id, at))
            else:
                self._end_without_lifecycle(subscription, at)
            self._subscriptions[subscription.id] = None
        self.update.changes.append(EntityRemoved(id))
        self.entities[id] = None
        if entity.kind == "subscriber":
            self.removed_subscribers.append(id)
        return [subscription.id for subscription in subscriptions]

    def move(self, positions: Sequence[Position]) -> int:
        """Set positions; returns how many were older than the known ones and ignored."""
        for position in positions:
            self._get(position.entity)
        stale = 0
        for position in positions:
            entity = self._get(position.entity)
            if not position.supersedes(entity.position):
                stale += 1
                continue
            self.entities[entity.id] = replace(entity, position=position)
            self._moves[entity.id] = position
        self.accepted_moves += len(positions) - stale
        self.stale_moves += stale
        return stale

    def subscribe(self, id: str, subscriber: str, query: CheckedQuery, body: str | None) -> bool:
        """Add a subscription; False if the same one exists already."""
        self._get(subscriber)
        existing = self._subscription(id)
        if existing is not None:
            if (existing.subscriber, existing.text) == (subscriber, query.text):
                return False
            raise subscription_exists(id)
        self.flush_moves()
        at = self._clock.now()
        lifecycle = Lifecycle("start", None, at) if query.has_lifecycle else None
        subscription = Subscription(
            id,
            subscriber,
            query.text,
            body,
            at,
            places_of(query.query),
            lifecycle,
            query.has_moving_region,
            query.source_condition,
            cell_of(body),
        )
        self.update.changes.append(SubscriptionAdded(subscription))
        if lifecycle is not None:
            self.update.add(self._adapter.subscribe(subscription, query, at))
        else:
            self.update.records.append(Record(SUBSCRIPTION, subscriber, id=id, time=at, body=body))
            if query.has_moving_region:
                self.update.records += self._adapter.add_moving_region(id, subscriber)
            self._adapter.adjust_interest(subscription.source_condition, subscription.cell, 1)
            self.without_lifecycle += 1
        self._subscriptions[id] = subscription
        return True

    def unsubscribe(self, id: str, subscriber: str) -> None:
        subscription = self._subscription(id)
        if subscription is None:
            raise unknown_subscription(id)
        if subscription.subscriber != subscriber:
            raise PermissionDeniedError(
                "this subscription belongs to another subscriber",
                where="id",
                hint="GET /v1/subscriptions lists your own",
            )
        self.flush_moves()
        at = self._clock.now()
        if subscription.has_lifecycle:
            self.update.add(self._adapter.unsubscribe(id, at))
        else:
            self._end_without_lifecycle(subscription, at)
        self.update.changes.append(SubscriptionRemoved(id))
        self._subscriptions[id] = None

    def inform_pipeline(self, pipeline: str) -> None:
        self.pipeline = pipeline

    def apply_source_messages(self, messages: Sequence[SourceMessage], *, silent: bool = False) -> None:
        """Apply changes of other nodes' sources. `silent`: these nodes do not respond."""
        self.flush_moves()
        if messages:
            self.update.add(self._adapter.handle_sources(messages, self._clock.now(), silent=silent))

    def confirm_wants(self) -> None:
        """Other nodes have confirmed what subscriptions want."""
        self.update.add(self.adapter().confirm(self._clock.now()))

    def node_responds(self, node: str) -> None:
        """All sources of another node are known."""
        self.update.add(self.adapter().node_responds(node, self._clock.now()))

    def flush_moves(self) -> None:
        """Hand the collected moves to the binder."""
        if self._moves:
            positions = list(self._moves.values())
            self._moves = {}
            self.update.changes += positions
            self.update.add(self._adapter.move(positions, self._clock.now()))

    def _end_without_lifecycle(self, subscription: Subscription, at: int) -> None:
        self.update.records.append(
            self._adapter.wants.removal(subscription.subscriber, subscription.id, at, subscription.body)
        )
        self._adapter.remove_moving_region(subscription.id, subscription.subscriber)
        self._adapter.adjust_interest(subscription.source_condition, subscription.cell, -1)
        self.without_lifecycle -= 1

    def _find(self, id: str) -> Entity | None:
        return self.entities[id] if id in self.entities else self._cache.find(id)

    def _get(self, id: str) -> Entity:
        if (entity := self._find(id)) is None:
            raise unknown_entity(id)
        return entity

    def _retired(self, id: str) -> str | None:
        """The kind of a removed entity that had this id."""
        if id in self.entities and (entity := self._cache.find(id)) is not None:
            return entity.kind  # removed in this group
        return self._registry.retired(id)

    def _subscription(self, id: str) -> Subscription | None:
        if id in self._subscriptions:
            return self._subscriptions[id]
        try:
            return self._registry.subscription(id)
        except NotFoundError:
            return None

    def _subscriptions_of(self, subscriber: str) -> list[Subscription]:
        by_id = {subscription.id: subscription for subscription in self._registry.subscriptions(subscriber)}
        for id, subscription in self._subscriptions.items():
            by_id.pop(id, None)
            if subscription is not None and subscription.subscriber == subscriber:
                by_id[id] = subscription
        return list(by_id.values())
