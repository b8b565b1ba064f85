"""The binder adapter: turns the binder's effects into registry changes and control records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain

from roamcast.bind.discovery.cells import Cell
from roamcast.bind.discovery.messages import SourceRequest, request_of
from roamcast.bind.lcesm.messages import (
    Bound,
    Effect,
    MatchStarted,
    MatchStopped,
    Message,
    SourceDemanded,
    SourceIdle,
    SourceMessage,
    SourceRegistered,
    StateChanged,
    Subscribed,
    SubscriptionState,
    Unbound,
    Unsubscribed,
)
from roamcast.bind.lcesm.views import EntityStatus, SubscriptionStatus
from roamcast.errors import RoamcastError
from roamcast.journal.bodies import BindingBody
from roamcast.journal.records import BINDING, POSITION, REMOVAL, SUBSCRIPTION, UNBINDING, Record
from roamcast.lacl.syntax import RangLoc
from roamcast.model import BEFORE_ALL, Lifecycle, Position, Subscription, split_name
from roamcast.node.control.control_update import ControlUpdate
from roamcast.node.control.held_bindings import HeldBindings
from roamcast.node.control.queries import CheckedQuery, Queries
from roamcast.node.control.tracking import Tracker, registration, state_record
from roamcast.node.control.wants import NodeWants
from roamcast.store.registry.port import RegistryStore
from roamcast.store.registry.values import Change, Entity

__all__ = ["BinderAdapter"]


@dataclass(slots=True)
class _LifecycleSubscription:
    """What the binder does not keep of a subscription with a lifecycle.

    `blocked` is its lifecycle while it cannot be served; the binder does not have it then. `interest` is what it looks
    for in sources now. `later_binding_body` is the body of a binding other than the first, once it was needed.
    """

    subscriber: str
    query: CheckedQuery
    body: str | None
    was_active: bool
    state: SubscriptionState
    blocked: Lifecycle | None
    cell: str
    interest: SourceRequest | None = None
    later_binding_body: str = ""

    def binding_body(self) -> str:
        """The body of a binding other than the first; encoded once."""
        if not self.later_binding_body:
            self.later_binding_body = BindingBody.of(self.query.query, self.subscriber, initial=False).to_json()
        return self.later_binding_body


class BinderAdapter:
    """All registered entities and all subscriptions with a lifecycle. Not thread-safe.

    If an update cannot be stored, discard the adapter and restore another one from the registry.
    """

    def __init__(
        self,
        queries: Queries,
        wants: NodeWants,
        held: type[HeldBindings] = HeldBindings,
        tracker: Tracker | None = None,
    ) -> None:
        """`wants`: whether the events of a source of another node come here, and what time it is there. If the
        `tracker` is on, updates begin with the tracking records of what they follow from.
        """
        tracker = tracker or Tracker()
        self.is_tracked = tracker.is_on
        self._told: list[Record] = []
        self.wants = wants
        self._held = held(wants.is_confirmed, self._may_be_silent)
        self._ends: dict[tuple[str, str], int] = {}  # of bindings to sources of other nodes, by their clocks
        self._binder = tracker.binder(queries.space, queries.places, self._told)
        self._subscriptions: dict[str, _LifecycleSubscription] = {}
        self._agents: Counter[str] = Counter()
        self._moving_regions: dict[str, set[str]] = {}  # by subscriber: subscriptions the pipeline has
        self.states: Counter[str] = Counter()
        self.binding_count = 0
        self.without_lifecycle_at_restore = 0  # subscriptions; counting them takes a while
        self._interest: Counter[SourceRequest] = Counter()
        self._demand: list[Effect] = []

    @classmethod
    def restore(
        cls,
        entities: Iterable[Entity],
        remote: Iterable[SourceRegistered],
        registry: RegistryStore,
        queries: Queries,
        at: int,
        wants: NodeWants,
        held: type[HeldBindings] = HeldBindings,
        tracker: Tracker | None = None,
    ) -> tuple[BinderAdapter, ControlUpdate]:
        """The adapter as stored in the registry, and what has changed since; nothing after a mere restart.

        `remote` are the sources of other nodes. Subscriptions that cannot be served are stopped and have no bindings,
        see `changed_places`.
        """
        adapter = cls(queries, wants, held, tracker)
        for subscription in registry.subscriptions_with_moving_region():
            if subscription.in_pipeline:
                adapter._moving_regions.setdefault(subscription.subscriber, set()).add(subscription.id)
        subscriptions, bindings = registry.subscriptions_with_lifecycle(), registry.live_bindings()
        subscribed: list[Subscribed] = []
        states = []
        for subscription in subscriptions:
            query = queries.stored(subscription)
            lifecycle = subscription.lifecycle
            if queries.why_not(subscription) is not None:
                adapter._add(subscription, query, blocked=lifecycle)
                continue
            adapter._add(subscription, query)
            subscribed.append(Subscribed(subscription.id, subscription.subscriber, query.query))
            if lifecycle is not None:
                states.append(
                    StateChanged(subscription.id, SubscriptionState(lifecycle.state), lifecycle.why, lifecycle.since)
                )
        adapter.binding_count = len(bindings)
        registered = (message for entity in entities if (message := registration(entity)) is not None)
        messages = chain(registered, remote, subscribed)  # one at a time: there may be very many
        effects = adapter._binder.restore(messages, bindings, states, at)
        sources_of = lambda id: adapter._binder.status(id).sources  # noqa: E731
        update = adapter._update(effects, at, may_hold=adapter._may_be_silent, kept=sources_of)
        update.changes += adapter._new_reasons(subscriptions)
        adapter._demand = [SourceDemanded(source, at) for source in adapter._binder.bound_sources]
        for (source_condition, cell), count in registry.count_without_lifecycle().items():
            adapter.adjust_interest(source_condition, cell, count)
            adapter.without_lifecycle_at_restore += count
        return adapter, update

    def __contains__(self, subscription: str) -> bool:
        return subscription in self._subscriptions

    @property
    def agent_count(self) -> int:
        return len(self._agents)

    def handle(self, message: Message, at: int) -> ControlUpdate:
        with _must_accept():
            return self._update(self._binder.handle(message, at), at)

    def handle_sources(self, messages: Sequence[SourceMessage], at: int, *, silent: bool = False) -> ControlUpdate:
        """Many messages about sources. `silent`: they were dropped because their nodes do not respond."""
        with _must_accept():
            effects = self._binder.handle_sources(messages, at)
        return self._update(effects, at, may_hold=self._may_be_silent if silent else lambda *_: False)

    def confirm(self, at: int) -> ControlUpdate:
        """Nodes have confirmed that they forward events of sources: end the bindings that were held until then."""
        replaced = [id for id in self._held if all(map(self.wants.is_confirmed, self._binder.status(id).sources))]
        return self._update(self._held.release_replaced(replaced, at), at)

    def node_responds(self, node: str, at: int) -> ControlUpdate:
        """All sources of a node are known: end the bindings to those that are gone or do not qualify any more."""
        effects: list[Effect] = []
        for id in self._held.cut_off_by(node):
            effects += self._held.release(id, at, node)
            if not self._held.is_cut_off(id):
                status = self._binder.status(id)
                effects.append(StateChanged(id, status.state, status.why, at))
        return self._update(effects, at)

    def adjust_interest(self, source_condition: str, cell: str, times: int) -> None:
        """Count `times` more (or fewer) subscriptions without a lifecycle for such sources in a cell."""
        self._interest[SourceRequest("match", source_condition, Cell.parse(cell))] += times

    def take_interest_changes(self) -> tuple[Counter[SourceRequest], list[Effect]]:
        """The changes of interest in sources, and the demand effects, since the last call."""
        interest, self._interest = self._interest, Counter()
        demand, self._demand = self._demand, []
        return interest, demand

    def move(self, positions: Sequence[Position], at: int) -> ControlUpdate:
        """Apply one position of each entity."""
        ids, x, y, times = zip(*((p.entity, p.x, p.y, p.time) for p in positions), strict=True)
        with _must_accept():
            effects = self._binder.handle_moves(ids, x, y, times, at)
        update = self._update([*effects, *self._ends_of_ranges(set(ids), at)], at)
        update.records += (_position_record(each) for each in positions if each.entity in self._moving_regions)
        update.records = self.wants.add_times_of_moves(update.records, at)
        return update

    def subscribe(self, subscription: Subscription, query: CheckedQuery, at: int) -> ControlUpdate:
        self._add(subscription, query)
        return self.handle(Subscribed(subscription.id, subscription.subscriber, query.query), at)

    def unsubscribe(self, id: str, at: int) -> ControlUpdate:
        blocked = self._subscriptions[id].blocked
        update = ControlUpdate() if blocked else self.handle(Unsubscribed(id), at)
        update.add(self.drop(id, at))
        return update

    def add_moving_region(self, id: str, subscriber: str) -> list[Record]:
        """The pipeline has this moving region from now on; returns the record of its position, if known."""
        self._moving_regions.setdefault(subscriber, set()).add(id)
        return self.position_records(id, subscriber)

    def remove_moving_region(self, id: str, subscriber: str) -> None:
        """The pipeline no longer has this region. Does nothing for other subscriptions."""
        regions = self._moving_regions.get(subscriber, set())
        regions.discard(id)
        if not regions:
            self._moving_regions.pop(subscriber, None)

    def position_records(self, id: str, subscriber: str) -> list[Record]:
        """What follows the record of a subscription: the subscriber's position if the region moves, or nothing."""
        if id not in self._moving_regions.get(subscriber, ()):
            return []
        position = self._binder.entity(subscriber).position
        return [] if position is None else [_position_record(position)]

    def drop(self, id: str, at: int) -> ControlUpdate:
        """Drop the subscription. The removal record also invalidates its past bindings for late events."""
        update = self._update(self._held.release(id, at), at)
        self._ends = {name: end for name, end in self._ends.items() if name[0] != id} if self._ends else {}
        subscription = self._subscriptions.pop(id)
        self.remove_moving_region(id, subscription.subscriber)
        self.states[subscription.state.value] -= 1
        self._update_interest(subscription, runs=False)
        if (expression := subscription.query.expression) is not None and subscription.blocked is None:
            self._agents[expression] -= 1
            if not self._agents[expression]:
                del self._agents[expression]
        is_bind = subscription.query.plan == "bind"
        update.records += [Record(REMOVAL, subscription.subscriber, id=id, time=at)] if is_bind else []
        return update

    def status(self, id: str) -> SubscriptionStatus:
        subscription = self._subscriptions.get(id)
        if subscription is None or subscription.blocked is None:
            status = self._binder.status(id)
            if not self._held.is_cut_off(id):
                return status
            return replace(status, state=SubscriptionState.ACTIVE, sources=self._held.sources_of(id), why=None)
        query, blocked = subscription.query, subscription.blocked
        return SubscriptionStatus(
            id, subscription.subscriber, query.text, query.plan, subscription.state, (), blocked.since, blocked.why
        )

    def entity_status(self, entity: str) -> EntityStatus:
        """What the binder knows of an entity: its position and bindings. Raises NotFoundError."""
        return self._binder.entity(entity)

    def binding_record(self, bound: Bound) -> Record:
        """The record of a live binding."""
        body = self._subscriptions[bound.subscription].binding_body()
        begin = max(
            bound.at + self.wants.clock_bounds(bound.source).least,
            self._ends.get((bound.subscription, bound.source), BEFORE_ALL) + 1,
        )
        return Record(BINDING, bound.source, id=bound.subscription, time=begin, body=body)

    def _add(self, subscription: Subscription, query: CheckedQuery, blocked: Lifecycle | None = None) -> None:
        lifecycle = subscription.lifecycle
        state = SubscriptionState.START if lifecycle is None else SubscriptionState(lifecycle.state)
        was_active = lifecycle is not None and lifecycle.was_active
        added = _LifecycleSubscription(
            subscription.subscriber, query, subscription.body, was_active, state, blocked, subscription.cell
        )
        self._subscriptions[subscription.id] = added
        self.states[state.value] += 1
        self._update_interest(added)
        if query.expression is not None and blocked is None:
            self._agents[query.expression] += 1

    def _update_interest(self, subscription: _LifecycleSubscription, *, runs: bool = True) -> None:
        """Plan match is interested in sources while it is active. Plan bind is interested also while life-control stops
        it, so that the best source of all nodes is known when it starts.
        """
        is_interested = subscription.query.plan == "bind" or subscription.state is SubscriptionState.ACTIVE
        is_interested = is_interested and runs and subscription.blocked is None
        interest = request_of(subscription.query.query, Cell.parse(subscription.cell)) if is_interested else None
        if interest != subscription.interest:
            for request, times in ((subscription.interest, -1), (interest, 1)):
                if request is not None:
                    self._interest[request] += times
            subscription.interest = interest

    def _new_reasons(self, subscriptions: Iterable[Subscription]) -> list[Change]:
        """Update the reason of subscriptions that were stopped by an unknown place and now are by life-control."""
        changes: list[Change] = []
        for subscription in subscriptions:
            lifecycle = subscription.lifecycle
            if lifecycle is None or not subscription.places or lifecycle.state != SubscriptionState.STOP.value:
                continue
            status = self.status(subscription.id)
            if status.state is SubscriptionState.STOP and status.why != lifecycle.why:
                changes.append(StateChanged(subscription.id, SubscriptionState.STOP, status.why, lifecycle.since))
        return changes

    def _may_be_silent(self, id: str, source: str) -> bool:
        """Whether a source of another node is only unknown because that does not respond. A subscriber without a
        position has no source in any case.
        """
        node = split_name(source)[1]
        if node is None or self._binder.entity(self._subscriptions[id].subscriber).position is None:
            return False
        return not self._binder.has_entity(source)

    def _ends_of_ranges(self, moved: set[str], at: int) -> list[Effect]:
        """Subscribers that move may have left the range of a source whose node is silent: these bindings end."""
        effects: list[Effect] = []
        for id in self._held:
            subscription = self._subscriptions[id]
            has_range = isinstance(subscription.query.query.location, RangLoc)
            if subscription.subscriber in moved and has_range and self._held.is_cut_off(id):
                status = self._binder.status(id)
                effects += [*self._held.release(id, at), StateChanged(id, status.state, status.why, at)]
        return effects

    def _update(
        self,
        effects: Iterable[Effect],
        at: int,
        may_hold: Callable[[str, str], bool] = lambda *_: False,
        kept: Callable[[str], Iterable[str]] = lambda _: (),
    ) -> ControlUpdate:
        update = ControlUpdate(records=self._told.copy())
        self._told.clear()
        first_active = []
        for effect in self._held.apply(effects, at, may_hold, kept):
            match effect:
                case Bound(id, source, at):
                    subscription = self._subscriptions[id]
                    record = self.binding_record(effect)
                    if not subscription.was_active:
                        first = BindingBody.of(subscription.query.query, subscription.subscriber, initial=True)
                        record = record._replace(body=first.to_json())
                        first_active.append(subscription)
                    update.changes.append(effect)
                    update.records.append(record)
                    self.binding_count += 1
                case Unbound(id, source, at):
                    update.changes.append(effect)
                    end = max(at + self.wants.clock_bounds(source).most, self._ends.get((id, source), BEFORE_ALL) + 2)
                    if split_name(source)[1] is not None:
                        self._ends[id, source] = end
                    update.records.append(Record(UNBINDING, source, id=id, time=end))
                    self.binding_count -= 1
                case StateChanged(id, state):
                    update.changes.append(effect)
                    subscription = self._subscriptions[id]
                    self.states[subscription.state.value] -= 1
                    self.states[state.value] += 1
                    subscription.state = state
                    self._update_interest(subscription)
                    if self.is_tracked:
                        update.records.append(state_record(effect, subscription.subscriber))
                case MatchStarted(id, at):
                    subscription = self._subscriptions[id]
                    update.records.append(
                        Record(SUBSCRIPTION, subscription.subscriber, id=id, time=at, body=subscription.body)
                    )
                    if subscription.query.has_moving_region:
                        update.records += self.add_moving_region(id, subscription.subscriber)
                case MatchStopped(id, at):
                    subscription = self._subscriptions[id]
                    update.records.append(self.wants.removal(subscription.subscriber, id, at, subscription.body))
                    self.remove_moving_region(id, subscription.subscriber)
                case SourceDemanded() | SourceIdle():
                    self._demand.append(effect)
        for subscription in first_active:
            subscription.was_active = True
        return update


def _position_record(position: Position) -> Record:
    return Record(POSITION, position.entity, time=position.time, x=position.x, y=position.y)


@contextmanager
def _must_accept() -> Iterator[None]:
    """Messages to the binder have been checked. If it refuses one, it no longer agrees with the registry."""
    try:
        yield
    except RoamcastError as error:
        raise RuntimeError(f"the binder disagrees with the registry: {error}") from error
