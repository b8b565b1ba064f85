"""The binder of this node, its effects turned into what the registry stores and the pipeline is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from roamcast.bind.discovery.messages import SourceRequest, request_of
from roamcast.bind.lcesm.binder import Binder
from roamcast.bind.lcesm.messages import (
    Activated,
    Attributes,
    Bound,
    Deactivated,
    Effect,
    EntityRegistered,
    Message,
    SourceDemanded,
    SourceIdle,
    SourceMessage,
    SourceRegistered,
    StateChanged,
    Subscribed,
    SubscriberRegistered,
    Unbound,
    Unsubscribed,
)
from roamcast.bind.lcesm.states import SubscriptionState
from roamcast.bind.lcesm.views import EntityStatus, SubscriptionStatus
from roamcast.errors import RoamcastError
from roamcast.journal.bodies import BindingBody
from roamcast.journal.records import BINDING, POSITION, REMOVAL, SUBSCRIPTION, UNBINDING, Record
from roamcast.lacl import Query, plan_of, to_text
from roamcast.model import Position, Standing, Subscription
from roamcast.node.control.queries import Asked, Queries
from roamcast.store.registry.port import RegistryStore
from roamcast.store.registry.values import Change, Entity

__all__ = ["Following", "Outcome", "registered"]


@dataclass(slots=True)
class Outcome:
    """Changes to be stored, and records to be journalled, each in the order in which they happened."""

    changes: list[Change] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        self.changes += other.changes
        self.records += other.records


@dataclass(slots=True)
class _Row:
    """A subscription that stands: what the binder does not know of it. `expression` is its agent's, if it has one.

    `waits`: how it stands while it cannot be served, and the binder does not have it. `sought` is what it asks of
    sources now.
    """

    subscriber: str
    query: Query
    body: str | None
    joined: bool
    expression: str | None
    is_around: bool
    state: SubscriptionState = SubscriptionState.START
    waits: Standing | None = None
    sought: SourceRequest | None = None
    binding: str = ""

    def binding_body(self) -> str:
        """Of a binding that is not the first; made once."""
        self.binding = self.binding or BindingBody.of(self.query, self.subscriber, initial=False).to_json()
        return self.binding


class Following:
    """Everybody who is registered, and the subscriptions that stand. One thread at a time.

    If what happened cannot be stored, it is of no use any more: make another from the registry.
    """

    def __init__(self, queries: Queries) -> None:
        self._binder = Binder(queries.space, queries.places)
        self._rows: dict[str, _Row] = {}
        self._agents: Counter[str] = Counter()
        self._around: dict[str, set[str]] = {}  # by subscriber: what the pipeline has around it
        self.states: Counter[str] = Counter()
        self.bindings = 0
        self._sought: Counter[SourceRequest] = Counter()
        self._demand: list[Effect] = []

    @classmethod
    def restored(
        cls,
        entities: Iterable[Entity],
        others: Iterable[SourceRegistered],
        registry: RegistryStore,
        queries: Queries,
        at: int,
    ) -> tuple[Following, Outcome]:
        """As it was, and what is different now: after a restart in between that is nothing. `others` are the sources of
        other nodes.

        Those that cannot be served are stopped and have no bindings, see `outlines`.
        """
        following = cls(queries)
        for around in registry.around_subscribers():
            if around.is_told:
                following._around.setdefault(around.subscriber, set()).add(around.id)
        standing, bindings = registry.standing(), registry.live_bindings()
        messages: list[EntityRegistered | Subscribed] = [*map(registered, entities), *others]
        states = []
        for subscription in standing:
            asked = queries.stored(subscription)
            stands = subscription.standing
            if queries.why_not(subscription) is not None:
                following._add(subscription, asked, waits=stands)
                continue
            following._add(subscription, asked)
            messages.append(Subscribed(subscription.id, subscription.subscriber, asked.query))
            if stands is not None:
                states.append(StateChanged(subscription.id, SubscriptionState(stands.state), stands.why, stands.since))
        following.bindings = len(bindings)
        outcome = following._outcome(following._binder.restore(messages, bindings, states, at))
        outcome.changes += following._new_reasons(standing)
        following._demand = [SourceDemanded(source, at) for source in following._binder.wanted]
        for source, count in registry.always_running().items():
            following._sought[SourceRequest("match", source)] += count
        return following, outcome

    def __contains__(self, subscription: str) -> bool:
        return subscription in self._rows

    @property
    def agents(self) -> int:
        """How many there are."""
        return len(self._agents)

    def tell(self, message: Message, at: int) -> Outcome:
        with _agreed():
            return self._outcome(self._binder.handle(message, at))

    def hear(self, messages: Sequence[SourceMessage], at: int) -> Outcome:
        """Of sources of other nodes."""
        with _agreed():
            return self._outcome(self._binder.handle_sources(messages, at))

    def seek(self, source: str, times: int) -> None:
        """So many subscriptions more, or fewer, that simply run want events of sources with this condition."""
        self._sought[SourceRequest("match", source)] += times

    def stirred(self) -> tuple[Counter[SourceRequest], list[Effect]]:
        """What is asked of sources more often, or less, and which are wanted, since it was asked last."""
        sought, self._sought = self._sought, Counter()
        demand, self._demand = self._demand, []
        return sought, demand

    def move(self, positions: Sequence[Position], at: int) -> Outcome:
        """One position of each entity."""
        ids, x, y, times = zip(*((p.entity, p.x, p.y, p.time) for p in positions), strict=True)
        with _agreed():
            outcome = self._outcome(self._binder.handle_moves(ids, x, y, times, at))
        outcome.records += (_position_record(position) for position in positions if position.entity in self._around)
        return outcome

    def subscribe(self, subscription: Subscription, asked: Asked, at: int) -> Outcome:
        self._add(subscription, asked)
        return self.tell(Subscribed(subscription.id, subscription.subscriber, asked.query), at)

    def unsubscribe(self, id: str, at: int) -> Outcome:
        outcome = Outcome() if self._rows[id].waits else self.tell(Unsubscribed(id), at)
        outcome.add(self.forget(id, at))
        return outcome

    def surround(self, id: str, subscriber: str) -> list[Record]:
        """The pipeline has a region around this subscriber from now on, and is to be told where that is, if known."""
        self._around.setdefault(subscriber, set()).add(id)
        return self.position_records(id, subscriber)

    def leave_alone(self, id: str, subscriber: str) -> None:
        """The pipeline has this region no more, if it was one."""
        around = self._around.get(subscriber, set())
        around.discard(id)
        if not around:
            self._around.pop(subscriber, None)

    def position_records(self, id: str, subscriber: str) -> list[Record]:
        """What comes after the record of a subscription that is around its subscriber; nothing after any other."""
        if id not in self._around.get(subscriber, ()) or (at := self._binder.where(subscriber).position) is None:
            return []
        return [_position_record(at)]

    def forget(self, id: str, at: int) -> Outcome:
        """The binder has it no more. What is told of it lets no event meet its bindings, not even the past ones."""
        row = self._rows.pop(id)
        self.leave_alone(id, row.subscriber)
        self.states[row.state.value] -= 1
        self._look(row, runs=False)
        if row.expression is not None:
            self._agents[row.expression] -= 1
            if not self._agents[row.expression]:
                del self._agents[row.expression]
        final = [Record(REMOVAL, row.subscriber, id=id, time=at)] if row.body is None else []
        return Outcome(records=final)

    def status(self, subscription: str) -> SubscriptionStatus:
        row = self._rows.get(subscription)
        if row is None or row.waits is None:
            return self._binder.status(subscription)
        text, plan = to_text(row.query), plan_of(row.query)
        return SubscriptionStatus(
            subscription, row.subscriber, text, plan, row.state, (), row.waits.since, row.waits.why
        )

    def where(self, entity: str) -> EntityStatus:
        return self._binder.where(entity)

    def binding_record(self, bound: Bound) -> Record:
        """Of a binding that is live already."""
        return Record(BINDING, bound.source, id=bound.subscription, time=bound.at, body=self._body(bound))

    def _add(self, subscription: Subscription, asked: Asked, waits: Standing | None = None) -> None:
        stands = subscription.standing
        state = SubscriptionState.START if stands is None else SubscriptionState(stands.state)
        joined = stands is not None and stands.joined
        expression = None if waits else asked.expression
        row = _Row(
            subscription.subscriber, asked.query, subscription.body, joined, expression, asked.is_around, state, waits
        )
        self._rows[subscription.id] = row
        self.states[state.value] += 1
        self._look(row)
        if expression is not None:
            self._agents[expression] += 1

    def _look(self, row: _Row, *, runs: bool = True) -> None:
        """Of plan match events of any source that may do are wanted while it runs. Of plan bind sources are looked for
        also while a life-control stops it: when it starts, the best of all nodes is known.
        """
        looks = row.body is None or row.state is SubscriptionState.ACTIVE
        sought = request_of(row.query) if runs and row.waits is None and looks else None
        if sought != row.sought:
            for request, times in ((row.sought, -1), (sought, 1)):
                if request is not None:
                    self._sought[request] += times
            row.sought = sought

    def _new_reasons(self, standing: Iterable[Subscription]) -> list[Change]:
        """Of those that are stopped as before, but not any more because a place is not known."""
        changes: list[Change] = []
        for subscription in standing:
            stands = subscription.standing
            if stands is None or not subscription.places or stands.state != SubscriptionState.STOP.value:
                continue
            now = self.status(subscription.id)
            if now.state is SubscriptionState.STOP and now.why != stands.why:
                changes.append(StateChanged(subscription.id, SubscriptionState.STOP, now.why, stands.since))
        return changes

    def _body(self, bound: Bound) -> str:
        return self._rows[bound.subscription].binding_body()

    def _outcome(self, effects: Iterable[Effect]) -> Outcome:
        outcome = Outcome()
        joined = []
        for effect in effects:
            match effect:
                case Bound(id, source, at):
                    row = self._rows[id]
                    record = self.binding_record(effect)
                    if not row.joined:
                        first = BindingBody.of(row.query, row.subscriber, initial=True)
                        record = record._replace(body=first.to_json())
                        joined.append(row)
                    outcome.changes.append(effect)
                    outcome.records.append(record)
                    self.bindings += 1
                case Unbound(id, source, at):
                    outcome.changes.append(effect)
                    outcome.records.append(Record(UNBINDING, source, id=id, time=at))
                    self.bindings -= 1
                case StateChanged(id, state):
                    outcome.changes.append(effect)
                    self.states[self._rows[id].state.value] -= 1
                    self.states[state.value] += 1
                    self._rows[id].state = state
                    self._look(self._rows[id])
                case Activated(id, at):
                    row = self._rows[id]
                    outcome.records.append(Record(SUBSCRIPTION, row.subscriber, id=id, time=at, body=row.body))
                    if row.is_around:
                        outcome.records += self.surround(id, row.subscriber)
                case Deactivated(id, at):
                    outcome.records.append(Record(REMOVAL, self._rows[id].subscriber, id=id, time=at))
                    self.leave_alone(id, self._rows[id].subscriber)
                case SourceDemanded() | SourceIdle():
                    self._demand.append(effect)
        for row in joined:
            row.joined = True
        return outcome


def _position_record(position: Position) -> Record:
    return Record(POSITION, position.entity, time=position.time, x=position.x, y=position.y)


@contextmanager
def _agreed() -> Iterator[None]:
    """What the binder is told has been checked: if it refuses, it has lost touch with the registry."""
    try:
        yield
    except RoamcastError as error:
        raise RuntimeError(f"the binder does not agree with the registry: {error}") from error


def registered(entity: Entity) -> EntityRegistered:
    attributes: Attributes = entity.attributes
    if entity.kind == "source":
        return SourceRegistered(entity.id, attributes, entity.position)
    return SubscriberRegistered(entity.id, attributes, entity.position)
