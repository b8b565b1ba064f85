"""The requirement manager: starts, stops and ends subscriptions as subscribers and sources move and change."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence

from roamcast.bind.lcesm.agents import Agent
from roamcast.bind.lcesm.binding_manager import BindingManager, SourceChange
from roamcast.bind.lcesm.effects import EffectLog
from roamcast.bind.lcesm.entities import EntityTable
from roamcast.bind.lcesm.location_listener import LocationEvent, LocationListener
from roamcast.bind.lcesm.messages import Subscribed
from roamcast.bind.lcesm.requirements import Requirement, RequirementTable
from roamcast.bind.lcesm.states import Operation, SubscriptionState, next_operations
from roamcast.lacl import holds, plan_of

__all__ = ["RequirementManager"]


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
            self.apply(self._bindings.subscribe([row]))

    def enter(self, messages: Sequence[Subscribed]) -> list[Requirement]:
        """Add subscriptions to the table in their initial states. The caller has them bound.

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
                agent.members += 1
            if query.life_control is not None:
                self._listener.register(row.id, subscriber, row.regions, x, y)
                if not self._should_run(row):
                    row.apply(Operation.QUIT)
            rows.append(row)
        return rows

    def restore(self, previous: Mapping[Requirement, tuple[str, ...]]) -> None:
        """Bind all entered subscriptions. Those with anyof() keep their previous source if it still qualifies."""
        self._bindings.subscribe([row for row in self.table.all() if row.agent is not None], previous)
        self._bindings.demand_changes()

    def unsubscribe(self, row: Requirement) -> None:
        self._log.touch(row)
        row.apply(Operation.QUIT)
        if row.agent is not None:
            self.apply(self._bindings.unsubscribe([row]))
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
        ended = [row for row in rows if row.runs and not self._should_run(row)]
        for row in ended:
            self._log.touch(row)
            row.apply(Operation.QUIT)
        self.apply(self._bindings.deactivate([row for row in ended if row.agent is not None]))
        return [row for row in rows if not row.runs and self._should_run(row)]

    def start(self, rows: Iterable[Requirement], placed: Iterable[Requirement] = ()) -> None:
        """Start subscriptions, and bind the running ones of `placed`, whose subscribers got their first positions."""
        to_bind = [row for row in placed if row.runs]
        for row in rows:
            self._log.touch(row)
            row.start()
            if self._entities.has_position(row.subscriber):
                to_bind.append(row)
        self.apply(self._bindings.activate([row for row in to_bind if row.agent is not None]))

    def apply(self, changes: Sequence[SourceChange]) -> None:
        """Log source changes, and change the states of running subscriptions."""
        self._log.add(changes)
        for change in changes:
            row, lost = change.requirement, change.lost is not None
            if row.runs:
                self._log.touch(row)
                for operation in next_operations(row.state, lost=lost, found=change.has_source):
                    row.apply(operation, found=change.has_source, satisfied=not lost)

    def _should_run(self, row: Requirement) -> bool:
        condition = row.query.life_control
        if condition is None:
            return True
        inside = functools.partial(self._listener.is_inside, row.id)
        return holds(condition, self._entities.attributes(row.subscriber), inside=inside)
