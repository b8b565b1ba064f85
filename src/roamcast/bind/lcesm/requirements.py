"""The requirement manager: starts, stops and ends subscriptions as subscribers and sources move and change.

Its table has each subscription with its life-control and its state.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from roamcast.bind.lcesm.binding_manager import Agent, BindingManager, SourceChange
from roamcast.bind.lcesm.entities import EntityTable
from roamcast.bind.lcesm.location_listener import LocationEvent, LocationListener
from roamcast.bind.lcesm.messages import EffectLog, Subscribed, SubscriptionState
from roamcast.errors import ConflictError, NotFoundError
from roamcast.lacl import Query, holds, plan_of
from roamcast.lacl.syntax import Inside, Region, leaves

__all__ = ["Operation", "Requirement", "RequirementManager", "RequirementTable", "next_operations", "next_state"]


class Operation(StrEnum):
    """An operation between a subscription and its binding agent."""

    JOIN = "join"
    INACTIVE = "inactive"
    ACTIVE = "active"
    QUIT = "quit"


_NEXT: Final[Mapping[tuple[Operation, SubscriptionState], SubscriptionState]] = {
    (Operation.JOIN, SubscriptionState.START): SubscriptionState.ACTIVE,
    (Operation.INACTIVE, SubscriptionState.ACTIVE): SubscriptionState.INACTIVE,
    (Operation.ACTIVE, SubscriptionState.INACTIVE): SubscriptionState.ACTIVE,
    **{(Operation.QUIT, state): SubscriptionState.STOP for state in SubscriptionState},
}


def next_state(
    operation: Operation, state: SubscriptionState, *, has_source: bool, satisfied: bool
) -> SubscriptionState:
    """The state after an operation. Raises ConflictError if it is not allowed.

    `has_source`: the agent has found a qualifying source, as join and active require. `satisfied`: the location
    constraint holds for the current source; inactive requires that it does not.
    """
    allowed = not satisfied if operation is Operation.INACTIVE else has_source or operation is Operation.QUIT
    if not allowed or (operation, state) not in _NEXT:
        conditions = f"has_source={has_source}, satisfied={satisfied}"
        raise ConflictError(f"{operation} is not allowed in state {state} ({conditions})", where="binding")
    return _NEXT[operation, state]


def next_operations(state: SubscriptionState, *, lost: bool, has_source: bool) -> tuple[Operation, ...]:
    """The operations of an agent when a subscription's source no longer qualifies (`lost`), or when it has one."""
    if state is SubscriptionState.ACTIVE and lost:
        return (Operation.INACTIVE, Operation.ACTIVE) if has_source else (Operation.INACTIVE,)
    if state is SubscriptionState.ACTIVE or not has_source:
        return ()
    return (Operation.JOIN,) if state is SubscriptionState.START else (Operation.ACTIVE,)


@dataclass(slots=True, eq=False)
class Requirement:
    """A subscription. Its life-control is in the query; `since` is when its state or its sources last changed.

    `subscriber` is a handle. `agent` is None for plan match: such a subscription is active while it runs. `handle`
    is its handle in `NearestSources`, or -1. `earlier` is the previous requirement of the same subscriber.
    """

    id: str
    subscriber: int
    query: Query
    agent: Agent | None
    state: SubscriptionState
    since: int
    handle: int = -1
    earlier: Requirement | None = None

    @property
    def runs(self) -> bool:
        return self.state is not SubscriptionState.STOP

    @property
    def regions(self) -> tuple[Region, ...]:
        """The regions of its life-control, each once."""
        if self.query.life_control is None:
            return ()
        tests = leaves(self.query.life_control)
        return tuple(dict.fromkeys(test.region for test in tests if isinstance(test, Inside)))

    def start(self) -> None:
        """Start to run. With an agent it waits for a source; without one it is active at once."""
        self.state = SubscriptionState.START if self.agent is not None else SubscriptionState.ACTIVE

    def restore(self, previous: SubscriptionState | None, *, has_source: bool) -> None:
        """Take the state that follows from the one before a restart. It has just started."""
        if has_source:
            self.apply(Operation.JOIN, has_source=True)
        elif self.state is SubscriptionState.START and previous in (
            SubscriptionState.ACTIVE,
            SubscriptionState.INACTIVE,
        ):
            self.state = SubscriptionState.INACTIVE

    def apply(self, operation: Operation, *, has_source: bool = False, satisfied: bool = False) -> None:
        """Change the state, see `next_state`. Raises ConflictError if the operation is not allowed."""
        self.state = next_state(operation, self.state, has_source=has_source, satisfied=satisfied)


class RequirementTable:
    """Requirements by subscription id and by subscriber."""

    def __init__(self) -> None:
        self._rows: dict[str, Requirement] = {}
        self._latest: dict[int, Requirement] = {}  # by subscriber

    def __contains__(self, id: str) -> bool:
        return id in self._rows

    def find(self, id: str) -> Requirement | None:
        return self._rows.get(id)

    def get(self, id: str) -> Requirement:
        """Raises NotFoundError."""
        try:
            return self._rows[id]
        except KeyError:
            hint = "it may have been removed"
            raise NotFoundError(f"unknown subscription {id!r}", where="subscription", hint=hint) from None

    def all(self) -> Iterable[Requirement]:
        return self._rows.values()

    def of_subscriber(self, subscriber: int) -> list[Requirement]:
        """The latest first."""
        rows = []
        row = self._latest.get(subscriber)
        while row is not None:
            rows.append(row)
            row = row.earlier
        return rows

    def has(self, id: str, subscriber: int, query: Query) -> bool:
        """Whether exactly this subscription exists. Raises ConflictError if the id belongs to another one."""
        row = self._rows.get(id)
        if row is not None and (row.subscriber, row.query) != (subscriber, query):
            raise _id_conflict(id)
        return row is not None

    def add(self, row: Requirement) -> None:
        """Raises ConflictError if the id is in use."""
        if self._rows.setdefault(row.id, row) is not row:
            raise _id_conflict(row.id)
        row.earlier = self._latest.get(row.subscriber)
        self._latest[row.subscriber] = row

    def remove(self, row: Requirement) -> None:
        """Takes time proportional to the number of later subscriptions of the subscriber."""
        del self._rows[row.id]
        later, one = None, self._latest.get(row.subscriber)
        while one is not None and one is not row:
            later, one = one, one.earlier
        if later is not None:
            later.earlier = row.earlier
        elif row.earlier is not None:
            self._latest[row.subscriber] = row.earlier
        else:
            del self._latest[row.subscriber]


class RequirementManager:
    """Handles changes of sources (`apply`) and location events (`review`), and reports to the effect log.

    A subscription runs exactly while its life-control holds. It is bound while it runs and the position of its
    subscriber is known.
    """

    def __init__(
        self, entities: EntityTable, listener: LocationListener, bindings: BindingManager, log: EffectLog
    ) -> None:
        self.table = RequirementTable()
        self._entities = entities
        self._listener = listener
        self._bindings = bindings
        self._log = log

    def subscribe(self, message: Subscribed) -> None:
        """Add a subscription with a known subscriber and a new id."""
        (row,) = self.enter([message])
        self._log.touch(row, new=True)
        if row.agent is not None:
            self.apply(self._bindings.bind_new([row]))

    def enter(self, messages: Sequence[Subscribed]) -> list[Requirement]:
        """Add subscriptions to the table in their initial states. The caller binds them afterwards.

        Raises NotFoundError for an unknown subscriber, ConflictError for an id in use.
        """
        subscribers = self._entities.known([message.subscriber for message in messages], "subscriber")
        coordinates = (column.tolist() for column in self._entities.coordinates(subscribers))
        agents: dict[int, Agent | None] = {}  # by the identity of a query: finding its agent is the costly part
        rows = []
        for message, subscriber, x, y in zip(messages, subscribers.tolist(), *coordinates, strict=True):
            query = message.query
            if id(query) not in agents:
                agents[id(query)] = self._bindings.allot(query) if plan_of(query) == "bind" else None
            agent = agents[id(query)]
            row = Requirement(message.id, subscriber, query, agent, SubscriptionState.START, self._log.now)
            self.table.add(row)
            row.start()
            if agent is not None:
                agent.subscriptions += 1
            if query.life_control is not None:
                self._listener.register(row.id, subscriber, row.regions, x, y)
                if not self._should_run(row):
                    row.apply(Operation.QUIT)
            rows.append(row)
        return rows

    def restore(self, previous: Mapping[Requirement, tuple[str, ...]]) -> None:
        """Bind all entered subscriptions. Those with anyof() keep their previous source if it still qualifies."""
        self._bindings.bind_new([row for row in self.table.all() if row.agent is not None], previous)
        self._bindings.demand_changes()

    def unsubscribe(self, row: Requirement) -> None:
        self._log.touch(row)
        row.apply(Operation.QUIT)
        if row.agent is not None:
            self.apply(self._bindings.remove([row]))
            self._bindings.release(row.agent)
        self._listener.cancel(row.id)
        self.table.remove(row)

    def concerned(self, events: Iterable[LocationEvent]) -> list[Requirement]:
        """The requirements of location events, each once."""
        return [self.table.get(id) for id in dict.fromkeys(event.subscription for event in events)]

    def review(self, rows: Iterable[Requirement]) -> list[Requirement]:
        """Stop those of these subscriptions whose life-control no longer holds.

        Returns those to start. Pass them to `start` after all moves, so that they start with the right source.
        """
        rows = list(rows)
        to_stop = [row for row in rows if row.runs and not self._should_run(row)]
        for row in to_stop:
            self._log.touch(row)
            row.apply(Operation.QUIT)
        self.apply(self._bindings.suspend([row for row in to_stop if row.agent is not None]))
        return [row for row in rows if not row.runs and self._should_run(row)]

    def start(self, rows: Iterable[Requirement], rows_to_bind: Iterable[Requirement] = ()) -> None:
        """Start `rows`. Bind the running ones of `rows_to_bind`, whose subscribers have just got a first position."""
        to_bind = [row for row in rows_to_bind if row.runs]
        for row in rows:
            self._log.touch(row)
            row.start()
            if self._entities.has_position(row.subscriber):
                to_bind.append(row)
        self.apply(self._bindings.resume([row for row in to_bind if row.agent is not None]))

    def apply(self, changes: Sequence[SourceChange]) -> None:
        """Log source changes, and change the states of running subscriptions."""
        self._log.add(changes)
        for change in changes:
            row, lost = change.requirement, change.lost is not None
            if row.runs:
                self._log.touch(row)
                for operation in next_operations(row.state, lost=lost, has_source=change.has_source):
                    row.apply(operation, has_source=change.has_source, satisfied=not lost)

    def _should_run(self, row: Requirement) -> bool:
        condition = row.query.life_control
        if condition is None:
            return True
        inside = functools.partial(self._listener.is_inside, row.id)
        return holds(condition, self._entities.attributes(row.subscriber), inside=inside)


def _id_conflict(id: str) -> ConflictError:
    return ConflictError(f"id {id!r} is in use by another subscription", where="id", hint="choose another id")
