"""The binder of one node: messages in, effects out. It has no clock, thread, socket or random source of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Final

import numpy.typing as npt

from roamcast.bind.lcesm.binding_manager import BindingManager
from roamcast.bind.lcesm.entities import NO_MOVES, BinderEntity, EntityKind, EntityMoves, EntityTable, NewEntities
from roamcast.bind.lcesm.location_listener import LocationListener
from roamcast.bind.lcesm.messages import (
    Attributes,
    Bound,
    Effect,
    EffectLog,
    EntityMoved,
    EntityRegistered,
    Message,
    PositionForgotten,
    PreviousBindings,
    SourceChanged,
    SourceMessage,
    SourceRegistered,
    SourceRemoved,
    StateChanged,
    Subscribed,
    SubscriberChanged,
    SubscriberRegistered,
    SubscriberRemoved,
    Unsubscribed,
    restore_effects,
    same_attributes,
)
from roamcast.bind.lcesm.requirements import RequirementManager
from roamcast.bind.lcesm.source_batch import SourceBatch
from roamcast.bind.lcesm.views import AgentStatus, EntityStatus, StatusViews, SubscriptionStatus
from roamcast.bind.nearest.arrays import Run
from roamcast.bind.nearest.kernels.id_table import IdTable
from roamcast.bind.nearest.sources import NearestSources
from roamcast.errors import ConflictError
from roamcast.places import Places
from roamcast.space import Space

__all__ = ["Binder"]

_RESTORE_BATCH: Final = 100_000  # subscriptions


class Binder:
    """Keeps the state and the bindings of every subscription of a node up to date.

    A message that cannot be applied raises a RoamcastError (NotFoundError for an unknown id, ConflictError for an id in
    use, InputError for a point outside the space) and changes nothing. `now` is the time of a message; effects have
    that time, or the latest so far if the clock went back. Equal messages give equal effects.

    Large batches of moves are split over `lanes` concurrent calls of `run`.
    """

    def __init__(self, space: Space, places: Places | None = None, *, lanes: int = 1, run: Run = map) -> None:
        self._nearest = NearestSources(space, lanes=lanes, run=run)
        self._entities = EntityTable(space, self._nearest, IdTable(lanes, run))
        self._listener = LocationListener(space, places or Places({}, space))
        self._bindings = BindingManager(self._entities, self._nearest)
        self._log = EffectLog()
        self._requirements = RequirementManager(self._entities, self._listener, self._bindings, self._log)
        self._views = StatusViews(self._entities, self._requirements.table, self._bindings, self._listener)

    @property
    def bound_sources(self) -> frozenset[str]:
        return frozenset(self._bindings.bound_sources)

    @property
    def search_bytes(self) -> int:
        """The memory of the arrays that moves are compared with: positions, bindings and safe regions."""
        return self._nearest.nbytes + self._entities.nbytes

    def handle(self, message: Message, now: int) -> list[Effect]:
        """Apply a message. Returns bindings in the order of change, then states, then demand."""
        self._log.begin(now)
        match message:
            case SourceChanged() | SourceRemoved() | PositionForgotten():
                return self.handle_sources([message], now)
            case EntityMoved(entity, x, y, time):
                self._move([entity], [x], [y], [time])
            case SourceRegistered() | SubscriberRegistered():
                self._register(message)
            case SubscriberChanged(id, attributes):
                self._change_subscriber(self._entities.get(id, "subscriber"), attributes)
            case SubscriberRemoved(id):
                self._remove_subscriber(self._entities.get(id, "subscriber"))
            case Subscribed():
                self._subscribe(message)
            case Unsubscribed(id):
                self._requirements.unsubscribe(self._requirements.table.get(id))
        return self._effects()

    def handle_moves(
        self, entities: Sequence[str], x: npt.ArrayLike, y: npt.ArrayLike, times: npt.ArrayLike, now: int
    ) -> list[Effect]:
        """Apply many moves at once, all or none. Only the final position of each entity counts."""
        self._log.begin(now)
        self._move(entities, x, y, times)
        return self._effects()

    def handle_sources(self, messages: Iterable[SourceMessage], now: int) -> list[Effect]:
        """Apply many messages about sources at once, all or none. Only net changes of bindings are reported.

        A source that is registered (which must be new) or removed may have no other message. Others may change, lose
        their position, and then move.
        """
        if not (messages := list(messages)):
            return []
        batch = SourceBatch.of(messages)
        sources = self._check_batch(batch)
        self._log.begin(now)
        for id in batch.forgotten:
            self._entities.forget_position(sources[id].handle)
        moves = self._entities.move(*batch.moves)
        for id, attributes in batch.changed.items():
            self._entities.change(sources[id], attributes)
        staying = [sources[id].handle for id in batch.regrouped if id not in batch.removed]
        present = [*self._entities.add("source", batch.new).tolist(), *staying]
        old_sources = [sources[id] for id in batch.regrouped]
        self._change(moves, old_sources, [self._entities.at(handle) for handle in present])
        effects = self._effects()
        self._entities.remove(*(sources[id] for id in batch.removed))
        return effects

    def restore(
        self,
        messages: Iterable[EntityRegistered | Subscribed],
        bindings: Iterable[Bound],
        states: Iterable[StateChanged],
        now: int,
    ) -> list[Effect]:
        """Rebuild the state before a restart, and return only what is different now.

        `messages` are the entities with their last positions, then the subscriptions. `bindings` and `states` are the
        last effects still in force. anyof() keeps its source; a subscription that was active or inactive and has no
        source is inactive. There may be millions of each: they are read once, in this order, and not kept.

        Raises ConflictError unless the binder is new. After any other error the binder must not be used.
        """
        if len(self._entities):
            raise ConflictError("the binder is in use", hint="restore into a new one")
        self._log.begin(now)
        for _, group in itertools.groupby(messages, type):
            self._enter(group)
        sources = map(self._entities.id, self._entities.sources)
        previous = PreviousBindings(bindings, states, self._requirements.table, sources)
        self._requirements.restore(previous.sources)
        rows = list(self._requirements.table.all())
        current = self._bindings.sources_of(rows)
        return restore_effects(previous, rows, current, self.bound_sources, self._views.why, self._log.now)

    def status(self, subscription: str) -> SubscriptionStatus:
        """Raises NotFoundError."""
        return self._views.statuses([self._requirements.table.get(subscription)])[0]

    def statuses(self) -> list[SubscriptionStatus]:
        """All subscriptions, by id."""
        return self._views.statuses(sorted(self._requirements.table.all(), key=lambda row: row.id))

    def has_entity(self, id: str) -> bool:
        return id in self._entities

    def entity(self, id: str) -> EntityStatus:
        """Raises NotFoundError."""
        return self._views.entity(self._entities.get(id))

    def agents(self) -> list[AgentStatus]:
        """All agents, by source expression."""
        return self._views.agents()

    def _effects(self) -> list[Effect]:
        return self._log.effects(self._bindings.demand_changes(), self._views.why)

    def _check_batch(self, batch: SourceBatch) -> dict[str, BinderEntity]:
        """The known sources of a batch. Raises an error if the batch cannot be applied."""
        known = self._entities.known(batch.known, "source")
        in_use = self._entities.find(batch.new.ids)
        for handle in in_use[in_use >= 0].tolist():
            raise _id_conflict(self._entities.at(handle))
        self._entities.checked(batch.new.ids, batch.new.x, batch.new.y)
        self._entities.checked(batch.moves.ids, batch.moves.x, batch.moves.y)
        return {source.id: source for source in map(self._entities.at, known.tolist())}

    def _move(self, entities: Sequence[str], x: npt.ArrayLike, y: npt.ArrayLike, times: npt.ArrayLike) -> None:
        self._change(self._entities.move(entities, x, y, times))

    def _change(
        self,
        moves: EntityMoves,
        old_sources: Iterable[BinderEntity] = (),
        new_sources: Iterable[BinderEntity] = (),
    ) -> None:
        """Stop subscriptions, apply moves and changes of sources, then start subscriptions at the new positions.

        Moves and changes take effect at once: no subscription is bound for a moment to a source that is not the best in
        the end.
        """
        events = self._listener.move(moves.handles, moves.x, moves.y)
        to_start = self._requirements.review(self._requirements.concerned(events))
        first_positioned = [self._entities.at(handle) for handle in moves.handles[moves.is_first].tolist()]
        first_positioned_sources = (entity for entity in first_positioned if entity.kind == "source")
        leaving, joining = self._bindings.regroup(old_sources, [*new_sources, *first_positioned_sources])
        changes = self._nearest.move(moves.handles, moves.x, moves.y, leaving=leaving, joining=joining)
        self._requirements.apply(self._bindings.source_changes(changes))
        table = self._requirements.table
        rows_to_bind = [row for entity in first_positioned for row in table.of_subscriber(entity.handle)]
        self._requirements.start(to_start, rows_to_bind)

    def _register(self, message: EntityRegistered) -> None:
        if message.id not in self._entities:
            new = NewEntities()
            new.add(message.id, message.attributes, message.position)
            self._add(_kind(message), new)
            return
        entity = self._entities.get(message.id)
        if entity.kind != _kind(message) or not same_attributes(entity.attributes, message.attributes):
            raise _id_conflict(entity)
        if (position := message.position) is not None:
            self._move([message.id], [position.x], [position.y], [position.time])

    def _add(self, kind: EntityKind, new: NewEntities) -> None:
        handles = self._entities.add(kind, new)
        if kind == "source":
            self._change(NO_MOVES, (), map(self._entities.at, handles.tolist()))

    def _enter(self, messages: Iterable[EntityRegistered | Subscribed]) -> None:
        """Enter many messages of one type, without binding anything yet."""
        kind: EntityKind = "source"
        new = NewEntities()
        subscribed: list[Subscribed] = []
        for message in messages:
            if isinstance(message, Subscribed):
                subscribed.append(message)
            else:
                kind = _kind(message)
                new.add(message.id, message.attributes, message.position)
            if len(subscribed) == _RESTORE_BATCH:
                self._requirements.enter(subscribed)
                subscribed.clear()
        self._requirements.enter(subscribed)
        self._add(kind, new)

    def _change_subscriber(self, subscriber: BinderEntity, attributes: Attributes) -> None:
        self._entities.change(subscriber, attributes)
        rows = self._requirements.table.of_subscriber(subscriber.handle)
        concerned = [row for row in rows if row.query.life_control is not None]
        self._requirements.start(self._requirements.review(concerned))

    def _remove_subscriber(self, subscriber: BinderEntity) -> None:
        for row in self._requirements.table.of_subscriber(subscriber.handle):
            self._requirements.unsubscribe(row)
        self._entities.remove(subscriber)

    def _subscribe(self, message: Subscribed) -> None:
        subscriber = self._entities.get(message.subscriber, "subscriber")
        if not self._requirements.table.has(message.id, subscriber.handle, message.query):
            self._requirements.subscribe(message)


def _id_conflict(entity: BinderEntity) -> ConflictError:
    hint = "choose another id, or change its attributes"
    return ConflictError(f"id {entity.id!r} is in use by a {entity.kind}", where="id", hint=hint)


def _kind(message: EntityRegistered) -> EntityKind:
    return "source" if isinstance(message, SourceRegistered) else "subscriber"
