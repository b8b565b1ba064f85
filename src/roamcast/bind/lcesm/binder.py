"""The binder of one node: messages in, effects out. No clock, thread, socket or random source of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Final

import numpy.typing as npt

from roamcast.bind.lcesm.binding_manager import BindingManager
from roamcast.bind.lcesm.effects import Ledger
from roamcast.bind.lcesm.location_listener import Listener, LocationEvent
from roamcast.bind.lcesm.messages import (
    Attributes,
    Bound,
    Effect,
    EntityMoved,
    EntityRegistered,
    Message,
    PlacesChanged,
    PositionForgotten,
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
    same_attributes,
)
from roamcast.bind.lcesm.registry import STILL, Arrivals, Entity, Kind, Moves, Registry
from roamcast.bind.lcesm.requirement_manager import RequirementManager
from roamcast.bind.lcesm.requirements import Requirement
from roamcast.bind.lcesm.restore import Before, differences
from roamcast.bind.lcesm.source_batch import Tidings
from roamcast.bind.lcesm.views import AgentStatus, EntityStatus, SubscriptionStatus, Views
from roamcast.bind.nearest.finder import Finder
from roamcast.bind.nearest.hot import Run
from roamcast.bind.nearest.id_table import Names
from roamcast.bind.nearest.watch import Watch
from roamcast.errors import ConflictError
from roamcast.places import Places
from roamcast.space import Space

__all__ = ["Binder"]

_SOME: Final = 100_000  # subscriptions that are entered at a time


class Binder:
    """Keeps every subscription of a node in its state and bound to its sources, whatever moves, comes or goes.

    A message that cannot be applied raises a RoamcastError (NotFoundError for who is unknown, ConflictError for a
    taken id, InputError for a point out of space) and changes nothing. `now` is when it is applied: effects carry it,
    or the latest so far if a clock has gone back. The same messages give the same effects.

    With several lanes, large batches of moves are worked on by as many calls through `run` at once.
    """

    def __init__(self, space: Space, places: Places | None = None, *, lanes: int = 1, run: Run = map) -> None:
        self._watch = Watch(space, lanes=lanes, run=run)
        self._registry = Registry(space, self._watch, Names(lanes, run))
        self._listener = Listener(space, places or Places({}, space))
        self._finder = Finder(space, self._registry, self._watch)
        self._bindings = BindingManager(self._registry, self._finder)
        self._ledger = Ledger()
        self._requirements = RequirementManager(
            self._registry, self._listener, self._finder, self._bindings, self._ledger
        )
        self._views = Views(space, self._registry, self._requirements.table, self._finder, self._listener)

    @property
    def stale_moves(self) -> int:
        """How many moves were ignored because a later position was known."""
        return self._registry.stale

    @property
    def wanted(self) -> frozenset[str]:
        """The sources that a binding names."""
        return frozenset(self._finder.wanted)

    @property
    def hot_bytes(self) -> int:
        """The memory of what moves are compared with: positions, bindings and how far they are safe."""
        return self._watch.nbytes + self._registry.nbytes

    def handle(self, message: Message, now: int) -> list[Effect]:
        """Bindings in the order in which they change, then states, then demand."""
        self._ledger.open(now)
        match message:
            case SourceChanged() | SourceRemoved() | PositionForgotten():
                return self.handle_sources([message], now)
            case EntityMoved(entity, x, y, time):
                self._move([entity], [x], [y], [time])
            case SourceRegistered() | SubscriberRegistered():
                self._register(message)
            case SubscriberChanged(id, attributes):
                self._change_subscriber(self._registry.get(id, "subscriber"), attributes)
            case SubscriberRemoved(id):
                self._remove_subscriber(self._registry.get(id, "subscriber"))
            case Subscribed():
                self._subscribe(message)
            case Unsubscribed(id):
                self._requirements.unsubscribe(self._requirements.table.get(id))
            case PlacesChanged(places):
                events = self._listener.change_places(places, self._registry.where)
                self._requirements.start(self._requirements.review(self._concerned(events)))
        return self._effects()

    def handle_moves(
        self, entities: Sequence[str], x: npt.ArrayLike, y: npt.ArrayLike, times: npt.ArrayLike, now: int
    ) -> list[Effect]:
        """Many moves at once, all or none. Only where each entity is in the end counts."""
        self._ledger.open(now)
        self._move(entities, x, y, times)
        return self._effects()

    def handle_sources(self, messages: Iterable[SourceMessage], now: int) -> list[Effect]:
        """What is said of many sources at once, all or none. Of bindings only what is different in the end is told.

        Of a source that comes or goes nothing else is said; others may change, lose their position and then move. Who
        comes is new.
        """
        told = Tidings.of(messages)
        sources = self._told_of(told)
        self._ledger.open(now)
        for id in told.unplaced:
            self._registry.unplace(sources[id].handle)
        moves = self._registry.move(*told.moves)
        for id, attributes in told.changed.items():
            self._registry.change(sources[id], attributes)
        stay = [sources[id].handle for id in told.stirred if id not in told.gone]
        here = [*self._registry.add("source", told.new).tolist(), *stay]
        self._change(moves, [sources[id] for id in told.stirred], [self._registry.at(handle) for handle in here])
        effects = self._effects()
        self._registry.remove(*(sources[id] for id in told.gone))
        return effects

    def restore(
        self,
        messages: Iterable[EntityRegistered | Subscribed],
        bindings: Iterable[Bound],
        states: Iterable[StateChanged],
        now: int,
    ) -> list[Effect]:
        """Rebuild from a registry what was there before a restart, and say only what is different from then.

        `messages` are the entities with their last positions, then the subscriptions; `bindings` and `states` the last
        effects that still stood. anyof() keeps its source; what was active or inactive and has no source is inactive.
        There may be millions: messages, bindings and states are read once, one after another, and not kept.

        Raises ConflictError unless the binder is new. If it raises anything else, the binder is of no use.
        """
        if len(self._registry):
            raise ConflictError("this binder is in use", hint="restore into a new one")
        self._ledger.open(now)
        for _, some in itertools.groupby(messages, type):
            self._enter(some)
        rows = list(self._requirements.table.all())
        sources = map(self._registry.id, self._registry.sources)
        before = Before(bindings, states, self._requirements.table, sources)
        self._finder.restore([row for row in rows if row.agent is not None], before.sources)
        return differences(before, rows, self._finder.sources_of(rows), self.wanted, self._why, self._ledger.at)

    def status(self, subscription: str) -> SubscriptionStatus:
        """Raises NotFoundError."""
        return self._views.statuses([self._requirements.table.get(subscription)])[0]

    def statuses(self) -> list[SubscriptionStatus]:
        """Of all subscriptions, by id."""
        return self._views.statuses(sorted(self._requirements.table.all(), key=lambda row: row.id))

    def where(self, entity: str) -> EntityStatus:
        """Raises NotFoundError."""
        return self._views.where(self._registry.get(entity))

    def agents(self) -> list[AgentStatus]:
        """By source expression."""
        return self._views.agents()

    def _effects(self) -> list[Effect]:
        return self._ledger.effects(self._finder.demand(), self._why)

    def _why(self, row: Requirement) -> str | None:
        return self._views.why(row, brief=True)

    def _concerned(self, events: Iterable[LocationEvent]) -> list[Requirement]:
        ids = dict.fromkeys(event.subscription for event in events)
        return [self._requirements.table.get(id) for id in ids]

    def _told_of(self, told: Tidings) -> dict[str, Entity]:
        """The sources of which something is said, but for the new ones. Raises what keeps it from being applied."""
        known = self._registry.known(told.known, "source")
        taken = self._registry.find(told.new.ids)
        for handle in taken[taken >= 0].tolist():
            raise _taken(self._registry.at(handle))
        self._registry.checked(told.new.ids, told.new.x, told.new.y)
        self._registry.checked(told.moves.ids, told.moves.x, told.moves.y)
        return {source.id: source for source in map(self._registry.at, known.tolist())}

    def _move(self, entities: Sequence[str], x: npt.ArrayLike, y: npt.ArrayLike, times: npt.ArrayLike) -> None:
        self._change(self._registry.move(entities, x, y, times))

    def _change(self, moves: Moves, before: Iterable[Entity] = (), now: Iterable[Entity] = ()) -> None:
        """Stop what ends, move and have sources be as they are `now`, then start what begins: where the move ends, not
        where it began.
        """
        begun = self._requirements.review(self._concerned(self._listener.move(moves.handles, moves.x, moves.y)))
        first = [self._registry.at(handle) for handle in moves.handles[moves.first].tolist()]
        placed = (entity for entity in first if entity.kind == "source")
        self._requirements.follow(self._bindings.change(moves, before, [*now, *placed]))
        self._requirements.start(begun, [row for entity in first for row in self._requirements.table.of(entity.handle)])

    def _register(self, message: EntityRegistered) -> None:
        if message.id not in self._registry:
            new = Arrivals()
            new.add(message.id, message.attributes, message.position)
            self._arrive(_kind(message), new)
            return
        entity = self._registry.get(message.id)
        if entity.kind != _kind(message) or not same_attributes(entity.attributes, message.attributes):
            raise _taken(entity)
        if (position := message.position) is not None:
            self._move([message.id], [position.x], [position.y], [position.time])

    def _arrive(self, kind: Kind, new: Arrivals) -> None:
        """One whose position is not known is in no group, and nothing of it is awake."""
        handles = self._registry.add(kind, new)
        if kind == "source":
            self._change(STILL, (), map(self._registry.at, handles.tolist()))

    def _enter(self, messages: Iterable[EntityRegistered | Subscribed]) -> None:
        """Many messages of one kind. Nothing is bound yet."""
        kind: Kind = "source"
        new = Arrivals()
        subscribed: list[Subscribed] = []
        for message in messages:
            if isinstance(message, Subscribed):
                subscribed.append(message)
            else:
                kind = _kind(message)
                new.add(message.id, message.attributes, message.position)
            if len(subscribed) == _SOME:
                self._requirements.enter(subscribed)
                subscribed.clear()
        self._requirements.enter(subscribed)
        self._arrive(kind, new)

    def _change_subscriber(self, subscriber: Entity, attributes: Attributes) -> None:
        self._registry.change(subscriber, attributes)
        rows = [row for row in self._requirements.table.of(subscriber.handle) if row.query.life_control is not None]
        self._requirements.start(self._requirements.review(rows))

    def _remove_subscriber(self, subscriber: Entity) -> None:
        for row in self._requirements.table.of(subscriber.handle):
            self._requirements.unsubscribe(row)
        self._registry.remove(subscriber)

    def _subscribe(self, message: Subscribed) -> None:
        subscriber = self._registry.get(message.subscriber, "subscriber")
        if not self._requirements.table.has(message.id, subscriber.handle, message.query):
            self._requirements.subscribe(message)


def _taken(by: Entity) -> ConflictError:
    hint = "take another id, or change its attributes"
    return ConflictError(f"the id {by.id!r} is taken by a {by.kind}", where="id", hint=hint)


def _kind(message: EntityRegistered) -> Kind:
    return "source" if isinstance(message, SourceRegistered) else "subscriber"
