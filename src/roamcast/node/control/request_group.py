"""The work on one group of requests: each is checked and done in its turn; all of it is then stored as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from roamcast.bind.lcesm.messages import (
    SourceChanged,
    SourceMessage,
    SourceRemoved,
    SubscriberChanged,
    SubscriberRemoved,
)
from roamcast.errors import NotFoundError, PermissionDeniedError
from roamcast.journal.records import REMOVAL, SUBSCRIPTION, Record
from roamcast.model import Position, Standing, Subscription
from roamcast.node.clock import Clock
from roamcast.node.control.binder_adapter import Following, Outcome, registered
from roamcast.node.control.directory import Directory
from roamcast.node.control.queries import Asked, places_of
from roamcast.store.registry import refusals
from roamcast.store.registry.port import RegistryStore
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

__all__ = ["Work"]


class Work:
    """What a group does. A request that is refused raises a RoamcastError and has changed nothing.

    Requests see what those before them did, stored or not. Moves wait until something else is to be done, or the group
    ends, and are then worked on at once.
    """

    def __init__(self, registry: RegistryStore, directory: Directory, following: Following, clock: Clock) -> None:
        self._registry = registry
        self._directory = directory
        self._following = following
        self._clock = clock
        self._waiting: dict[str, Position] = {}
        self._subscriptions: dict[str, Subscription | None] = {}
        self.entities: dict[str, Entity | None] = {}
        self.outcome = Outcome()
        self.left: list[str] = []
        self.moves = 0
        self.stale = 0
        self.running = 0  # how many more subscriptions simply run
        self.anew = False  # what is in memory is to be made anew, once the group is stored
        self.pipeline: str | None = None  # is to be told everything, once the group is stored

    def following(self) -> Following:
        """With all that was asked for so far."""
        self.settle()
        return self._following

    def register(self, entity: Entity) -> None:
        if self._find(entity.id) is not None:
            raise refusals.entity_taken(entity.id)
        was = self._retired(entity.id)
        if was is not None and (was, entity.kind) != ("source", "source"):
            raise refusals.id_used_up(entity.id, was)
        self.settle()
        self.outcome.changes.append(EntityAdded(entity))
        self.outcome.add(self._following.tell(registered(entity), self._clock.now()))
        self.entities[entity.id] = entity

    def change(self, id: str, attributes: dict[str, str | float | bool]) -> Entity:
        """The entity as it is then."""
        entity = replace(self._get(id), attributes=attributes)
        self.settle()
        message = (SourceChanged if entity.kind == "source" else SubscriberChanged)(id, attributes)
        self.outcome.changes.append(AttributesSet(id, attributes))
        self.outcome.add(self._following.tell(message, self._clock.now()))
        self.entities[id] = entity
        return entity

    def set_token(self, id: str, token_hash: str) -> None:
        entity = replace(self._get(id), token_hash=token_hash)
        self.outcome.changes.append(TokenSet(id, token_hash))
        self.entities[id] = entity

    def forget_position(self, id: str) -> None:
        """The pipeline, too, has regions around a subscriber anew, and nowhere."""
        entity = self._get(id)
        self.settle()
        at = self._clock.now()
        for subscription in self._own_subscriptions(id) if entity.kind == "subscriber" else ():
            if subscription.is_around and subscription.is_told:
                self.outcome.records += (
                    Record(REMOVAL, id, id=subscription.id, time=at),
                    Record(SUBSCRIPTION, id, id=subscription.id, time=at, body=subscription.body),
                )
        self.outcome.changes.append(PositionErased(id))
        self.entities[id] = replace(entity, position=None)
        self.anew = True

    def leave(self, id: str) -> list[str]:
        """The ids of the subscriptions that go with it."""
        entity = self._get(id)
        own = self._own_subscriptions(id) if entity.kind == "subscriber" else []
        self.settle()
        at = self._clock.now()
        message = SourceRemoved(id) if entity.kind == "source" else SubscriberRemoved(id)
        self.outcome.add(self._following.tell(message, at))
        for subscription in own:
            if subscription.standing is None:
                self._end(subscription, at)
            else:
                self.outcome.add(self._following.forget(subscription.id, at))
            self._subscriptions[subscription.id] = None
        self.outcome.changes.append(EntityRemoved(id))
        self.entities[id] = None
        if entity.kind == "subscriber":
            self.left.append(id)
        return [subscription.id for subscription in own]

    def move(self, positions: Sequence[Position]) -> int:
        """How many of them were older than what was known, and ignored."""
        for position in positions:
            self._get(position.entity)
        stale = 0
        for position in positions:
            entity = self._get(position.entity)
            if not position.counts_after(entity.position):
                stale += 1
                continue
            self.entities[entity.id] = replace(entity, position=position)
            self._waiting[entity.id] = position
        self.moves += len(positions) - stale
        self.stale += stale
        return stale

    def subscribe(self, id: str, subscriber: str, asked: Asked, body: str | None) -> bool:
        """Whether it is new: False when it was there, the same in all parts."""
        self._get(subscriber)
        known = self._subscription(id)
        if known is not None:
            if (known.subscriber, known.text) == (subscriber, asked.text):
                return False
            raise refusals.subscription_taken(id)
        self.settle()
        at = self._clock.now()
        standing = Standing("start", None, at) if asked.stands else None
        subscription = Subscription(
            id, subscriber, asked.text, body, at, places_of(asked.query), standing, asked.is_around, asked.source
        )
        self.outcome.changes.append(SubscriptionAdded(subscription))
        if standing is not None:
            self.outcome.add(self._following.subscribe(subscription, asked, at))
        else:
            self.outcome.records.append(Record(SUBSCRIPTION, subscriber, id=id, time=at, body=body))
            if asked.is_around:
                self.outcome.records += self._following.surround(id, subscriber)
            self._following.seek(subscription.source, 1)
            self.running += 1
        self._subscriptions[id] = subscription
        return True

    def unsubscribe(self, id: str, subscriber: str) -> None:
        known = self._subscription(id)
        if known is None:
            raise refusals.unknown_subscription(id)
        if known.subscriber != subscriber:
            raise PermissionDeniedError(
                "this subscription is somebody else's", where="id", hint="see your own: GET /v1/subscriptions"
            )
        self.settle()
        at = self._clock.now()
        if known.standing is not None:
            self.outcome.add(self._following.unsubscribe(id, at))
        else:
            self._end(known, at)
        self.outcome.changes.append(SubscriptionRemoved(id))
        self._subscriptions[id] = None

    def tell(self, pipeline: str) -> None:
        self.pipeline = pipeline

    def hear(self, messages: Sequence[SourceMessage]) -> None:
        """Of sources of other nodes."""
        self.settle()
        if messages:
            self.outcome.add(self._following.hear(messages, self._clock.now()))

    def settle(self) -> None:
        """Let the moves that wait happen."""
        if self._waiting:
            positions = list(self._waiting.values())
            self._waiting = {}
            self.outcome.changes += positions
            self.outcome.add(self._following.move(positions, self._clock.now()))

    def _end(self, subscription: Subscription, at: int) -> None:
        """Of one that simply runs."""
        self.outcome.records.append(Record(REMOVAL, subscription.subscriber, id=subscription.id, time=at))
        self._following.leave_alone(subscription.id, subscription.subscriber)
        self._following.seek(subscription.source, -1)
        self.running -= 1

    def _find(self, id: str) -> Entity | None:
        return self.entities[id] if id in self.entities else self._directory.find(id)

    def _get(self, id: str) -> Entity:
        if (entity := self._find(id)) is None:
            raise refusals.unknown_entity(id)
        return entity

    def _retired(self, id: str) -> str | None:
        if id in self.entities and (entity := self._directory.find(id)) is not None:
            return entity.kind  # it left in this group
        return self._registry.retired(id)

    def _subscription(self, id: str) -> Subscription | None:
        if id in self._subscriptions:
            return self._subscriptions[id]
        try:
            return self._registry.subscription(id)
        except NotFoundError:
            return None

    def _own_subscriptions(self, subscriber: str) -> list[Subscription]:
        own = {subscription.id: subscription for subscription in self._registry.subscriptions(subscriber)}
        for id, subscription in self._subscriptions.items():
            own.pop(id, None)
            if subscription is not None and subscription.subscriber == subscriber:
                own[id] = subscription
        return list(own.values())
