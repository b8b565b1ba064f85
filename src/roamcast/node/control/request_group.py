"""A group of requests to the control writer: each is checked and applied in order; the group is stored as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from roamcast.bind.lcesm.messages import (
    SourceChanged,
    SourceMessage,
    SourceRemoved,
    SubscriberChanged,
    SubscriberRemoved,
)
from roamcast.errors import ConflictError, NotFoundError, PermissionDeniedError, RoamcastError
from roamcast.group_commit import Submission
from roamcast.journal.records import FORGOTTEN, REMOVAL, SUBSCRIPTION, Record
from roamcast.model import Lifecycle, Position, Subscription
from roamcast.node.clock import Clock
from roamcast.node.control.binder_adapter import BinderAdapter
from roamcast.node.control.control_update import ControlUpdate
from roamcast.node.control.entity_cache import EntityCache
from roamcast.node.control.queries import AcceptedQuery
from roamcast.node.control.tracking import history_records, registration
from roamcast.store.registry.port import (
    RegistryStore,
    check_id,
    entity_exists,
    subscription_exists,
    unknown_entity,
    unknown_subscription,
)
from roamcast.store.registry.values import (
    AttributesSet,
    Entity,
    EntityAdded,
    EntityKind,
    EntityRemoved,
    PositionErased,
    SubscriptionAdded,
    SubscriptionRemoved,
    TokenSet,
)

__all__ = ["Completion", "ControlRequest", "NamedQueries", "Outcome", "RequestGroup"]

NamedQueries: TypeAlias = Sequence[tuple[str, AcceptedQuery]]
"""Ids of subscriptions, and their queries."""

Outcome: TypeAlias = bool | RoamcastError
"""Whether a subscription or a source is new, or why it was refused."""


class ControlRequest(NamedTuple):
    """A request to the control writer.

    `done_when_stored`: it succeeds even if the journal fails, because its token is returned only once.
    `alone`: it forms a group of its own. `reads`: it changes nothing and needs no disk. `subscriptions`: the ids that
    it is about; those of all requests of a group are read at once. `entities`: how many entities it adds or removes.
    """

    apply: Callable[[RequestGroup], Any]
    done_when_stored: bool = False
    alone: bool = False
    reads: bool = False
    subscriptions: Sequence[str] = ()
    entities: int = 0

    @property
    def weight(self) -> int:
        return len(self.subscriptions) + self.entities


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
        self._stored: dict[str, Subscription | None] = {}  # as read before the group
        self._subscriptions: dict[str, Subscription | None] = {}  # changed ones; None is removed
        self.entities: dict[str, Entity | None] = {}  # changed ones; None is removed
        self.update = ControlUpdate()
        self.removed_subscribers: list[str] = []
        self.accepted_moves = 0
        self.stale_moves = 0
        self.without_lifecycle = 0  # change in the number of subscriptions without a lifecycle
        self.erased: PositionErased | None = None  # rebuild the binder without this position once the group is stored
        self.pipeline: str | None = None  # send it everything in force once the group is stored

    def apply_all(self, submissions: Sequence[Submission[ControlRequest]]) -> list[Completion]:
        ids = [id for each in submissions for id in each.request.subscriptions]
        unread: RoamcastError | None = None
        try:
            self._stored = dict.fromkeys(ids)
            self._stored.update((one.id, one) for one in self._registry.subscriptions_among(ids))
        except RoamcastError as error:
            unread = error
        completions = [self._apply(each, unread) for each in submissions]
        self.flush_moves()
        return completions

    def _apply(self, submission: Submission[ControlRequest], unread: RoamcastError | None) -> Completion:
        """`unread`: why the subscriptions of the group could not be read."""
        if unread is not None and submission.request.subscriptions:
            return Completion(submission, None, copy(unread))
        try:
            return Completion(submission, submission.request.apply(self), None)
        except RoamcastError as error:
            return Completion(submission, None, error)

    def adapter(self) -> BinderAdapter:
        """The binder adapter, with all requests so far applied."""
        self.flush_moves()
        return self._adapter

    def register(self, entity: Entity) -> None:
        if self.find(entity.id) is not None:
            raise entity_exists(entity.id)
        check_id(entity.id, entity.kind, self.retired([entity.id]).get(entity.id))
        self.flush_moves()
        self.update.changes.append(EntityAdded(entity))
        if (message := registration(entity)) is not None:
            self.update.add(self._adapter.handle(message, self._clock.now()))
        self.entities[entity.id] = entity

    def set_attributes(self, id: str, attributes: dict[str, str | float | bool]) -> Entity:
        """Replace all attributes; returns the changed entity."""
        entity = replace(self.get(id), attributes=attributes)
        self.flush_moves()
        self.update.changes.append(AttributesSet(id, attributes))
        if entity.kind != "gateway":
            message = (SourceChanged if entity.kind == "source" else SubscriberChanged)(id, attributes)
            self.update.add(self._adapter.handle(message, self._clock.now()))
        self.entities[id] = entity
        return entity

    def set_token(self, id: str, token_hash: str) -> None:
        entity = self.get(id)
        if entity.gateway is not None:
            raise ConflictError(
                f"{id} has no token: it belongs to gateway {entity.gateway}", where=id, hint="renew that of the gateway"
            )
        entity = replace(entity, token_hash=token_hash)
        self.update.changes.append(TokenSet(id, token_hash))
        self.entities[id] = entity

    def erase_position(self, id: str) -> None:
        """Erase the position. The pipeline gets the subscriber's moving regions again, without a position."""
        entity = self.get(id)
        self.flush_moves()
        at = self._clock.now()
        self.update.records += [Record(FORGOTTEN, id, at)] if self._adapter.is_tracked else []
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
        """Remove an entity; returns the ids of the subscriptions removed with it.

        Raises ConflictError for a gateway that has sources.
        """
        entity = self.get(id)
        if entity.kind == "gateway":
            self._check_empty(id)
        subscriptions = self._subscriptions_of(id) if entity.kind == "subscriber" else []
        self.flush_moves()
        at = self._clock.now()
        if entity.kind != "gateway":
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

    def _check_empty(self, gateway: str) -> None:
        """Raises ConflictError if a gateway has sources."""
        sources = {id for id in self._cache.sources_of(gateway) if id not in self.entities}
        sources |= {id for id, source in self.entities.items() if source is not None and source.gateway == gateway}
        if sources:
            raise ConflictError(
                f"gateway {gateway} has {len(sources)} sources",
                where=gateway,
                hint="remove them first, or send sources=true to remove them, too",
            )

    def move(self, positions: Sequence[Position]) -> int:
        """Set positions; returns how many were older than the known ones and ignored."""
        for position in positions:
            self.get(position.entity)
        stale = 0
        for position in positions:
            entity = self.get(position.entity)
            if not position.supersedes(entity.position):
                stale += 1
                continue
            self.entities[entity.id] = replace(entity, position=position)
            self._moves[entity.id] = position
        self.accepted_moves += len(positions) - stale
        self.stale_moves += stale
        return stale

    def subscribe(self, id: str, subscriber: str, query: AcceptedQuery) -> bool:
        """Add a subscription; False if the same one exists already."""
        self.get(subscriber)
        if self._exists(id, subscriber, query):
            return False
        self.flush_moves()
        self._add(id, subscriber, query, self._clock.now())
        return True

    def subscribe_many(self, subscriber: str, queries: NamedQueries, *, all_or_none: bool) -> list[Outcome]:
        """For each query what `subscribe` returns, or the error. With `all_or_none` the first error is raised, before
        anything is changed.
        """
        self.get(subscriber)
        self.flush_moves()
        if all_or_none:
            texts: dict[str, str] = {}
            for id, query in queries:
                if self._exists(id, subscriber, query) or texts.setdefault(id, query.text) == query.text:
                    continue
                raise subscription_exists(id)
        at = self._clock.now()
        outcomes: list[Outcome] = []
        for id, query in queries:
            try:
                is_new = not self._exists(id, subscriber, query)
                if is_new:
                    self._add(id, subscriber, query, at)
                outcomes.append(is_new)
            except ConflictError as error:
                outcomes.append(error)
        return outcomes

    def replace(self, id: str, subscriber: str, query: AcceptedQuery) -> bool:
        """Give a subscription another query; False if it has this one already.

        Its records are next to each other in the journal, so each event of this node is matched with one of the two.
        """
        if self._own(id, subscriber).text == query.text:
            return False
        self.unsubscribe(id, subscriber)
        self._add(id, subscriber, query, self._clock.now())
        return True

    def _exists(self, id: str, subscriber: str, query: AcceptedQuery) -> bool:
        """Whether this subscription exists already. Raises ConflictError if another one has the id."""
        existing = self._subscription(id)
        if existing is not None and (existing.subscriber, existing.text) != (subscriber, query.text):
            raise subscription_exists(id)
        return existing is not None

    def _add(self, id: str, subscriber: str, query: AcceptedQuery, at: int) -> None:
        text, body, cell, places, source_condition, has_moving_region, with_lifecycle, _ = query
        self.update.records += history_records(id, subscriber, query, at, is_tracked=self._adapter.is_tracked)
        lifecycle = None if with_lifecycle is None else Lifecycle("start", None, at)
        subscription = Subscription(
            id, subscriber, text, body, at, places, lifecycle, has_moving_region, source_condition, cell
        )
        self.update.changes.append(SubscriptionAdded(subscription))
        if with_lifecycle is not None:
            self.update.add(self._adapter.subscribe(subscription, with_lifecycle, at))
        else:
            self.update.records.append(Record(SUBSCRIPTION, subscriber, id=id, time=at, body=body))
            if has_moving_region:
                self.update.records += self._adapter.add_moving_region(id, subscriber)
            self._adapter.adjust_interest(source_condition, cell, 1)
            self.without_lifecycle += 1
        self._subscriptions[id] = subscription

    def unsubscribe_many(self, subscriber: str, ids: Sequence[str]) -> list[RoamcastError | None]:
        """For each id None, or the error of `unsubscribe`."""
        outcomes: list[RoamcastError | None] = []
        for id in ids:
            try:
                self.unsubscribe(id, subscriber)
                outcomes.append(None)
            except (NotFoundError, PermissionDeniedError) as error:
                outcomes.append(error)
        return outcomes

    def unsubscribe(self, id: str, subscriber: str) -> None:
        subscription = self._own(id, subscriber)
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
        """Apply changes of sources. `silent`: they are of other nodes, which do not respond."""
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

    def find(self, id: str) -> Entity | None:
        """An entity, as the requests so far have left it."""
        return self.entities[id] if id in self.entities else self._cache.find(id)

    def get(self, id: str) -> Entity:
        """As `find`. Raises NotFoundError."""
        if (entity := self.find(id)) is None:
            raise unknown_entity(id)
        return entity

    def retired(self, ids: Sequence[str]) -> Mapping[str, EntityKind]:
        """The kinds of removed entities that had these ids."""
        gone = {id: entity.kind for id in ids if id in self.entities and (entity := self._cache.find(id)) is not None}
        return {**self._registry.retired(ids), **gone}

    def _own(self, id: str, subscriber: str) -> Subscription:
        """Raises NotFoundError, and PermissionDeniedError if it belongs to another subscriber."""
        if (subscription := self._subscription(id)) is None:
            raise unknown_subscription(id)
        if subscription.subscriber != subscriber:
            raise PermissionDeniedError(
                "this subscription belongs to another subscriber",
                where="id",
                hint="GET /v1/subscriptions lists your own",
            )
        return subscription

    def _subscription(self, id: str) -> Subscription | None:
        return self._subscriptions[id] if id in self._subscriptions else self._stored[id]

    def _subscriptions_of(self, subscriber: str) -> list[Subscription]:
        by_id = {subscription.id: subscription for subscription in self._registry.subscriptions(subscriber)}
        for id, subscription in self._subscriptions.items():
            by_id.pop(id, None)
            if subscription is not None and subscription.subscriber == subscriber:
                by_id[id] = subscription
        return list(by_id.values())
