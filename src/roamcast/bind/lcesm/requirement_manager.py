"""The requirement manager: starts, stops and ends subscriptions as their subscribers and sources move and change."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from roamcast.bind.lcesm.agents import Agent
from roamcast.bind.lcesm.binding_manager import BindingManager
from roamcast.bind.lcesm.effects import Ledger
from roamcast.bind.lcesm.location_listener import Listener
from roamcast.bind.lcesm.messages import Subscribed
from roamcast.bind.lcesm.registry import Registry
from roamcast.bind.lcesm.requirements import Requirement, Requirements
from roamcast.bind.lcesm.states import Operation, SubscriptionState
from roamcast.bind.nearest.finder import Finder, Found
from roamcast.lacl import holds, plan_of

__all__ = ["RequirementManager"]


class RequirementManager:
    """Reacts to source events (`follow`) and location events (`review`). What happens is noted in the ledger.

    A subscription runs exactly while its life-control holds; it is awake, in the finder, while it runs and the
    position of its subscriber is known.
    """

    def __init__(
        self, registry: Registry, listener: Listener, finder: Finder, bindings: BindingManager, ledger: Ledger
    ) -> None:
        self.table = Requirements()
        self._registry = registry
        self._listener = listener
        self._finder = finder
        self._bindings = bindings
        self._ledger = ledger

    def subscribe(self, message: Subscribed) -> None:
        """Its subscriber is known and its id new."""
        (row,) = self.enter([message])
        self._ledger.touch(row, new=True)
        if row.agent is not None:
            self.follow(self._finder.subscribe(row))

    def enter(self, messages: Sequence[Subscribed]) -> list[Requirement]:
        """Enter subscriptions in the table, in the states in which they begin. The finder has yet to be told.

        Raises NotFoundError for a subscriber that is unknown, ConflictError for an id that is taken.
        """
        subscribers = self._registry.known([message.subscriber for message in messages], "subscriber")
        where = (column.tolist() for column in self._registry.where(subscribers))
        agents: dict[int, Agent | None] = {}  # by the id of a query: to find its agent takes longer than all the rest
        rows = []
        for message, subscriber, x, y in zip(messages, subscribers.tolist(), *where, strict=True):
            query = message.query
            if id(query) not in agents:
                agents[id(query)] = self._bindings.allot(query) if plan_of(query) == "bind" else None
            agent = agents[id(query)]
            row = Requirement(message.id, subscriber, query, agent, SubscriptionState.START, self._ledger.at)
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

    def unsubscribe(self, row: Requirement) -> None:
        self._ledger.touch(row)
        row.apply(Operation.QUIT)
        if row.agent is not None:
            self.follow(self._finder.unsubscribe([row]))
            self._bindings.release(row.agent)
        self._listener.cancel(row.id)
        self.table.remove(row)

    def review(self, rows: Iterable[Requirement]) -> list[Requirement]:
        """Something has happened to their subscribers: stop those whose life-control ceased to hold.

        Returns those that are to start; `start` them when all has moved, so that they begin with the right source.
        """
        rows = list(rows)
        ended = [row for row in rows if row.runs and not self._should_run(row)]
        for row in ended:
            self._ledger.touch(row)
            row.apply(Operation.QUIT)
        self.follow(self._finder.sleep([row for row in ended if row.agent is not None]))
        return [row for row in rows if not row.runs and self._should_run(row)]

    def start(self, rows: Iterable[Requirement], arrived: Iterable[Requirement] = ()) -> None:
        """Start these anew, and wake what runs of `arrived`: the position of their subscribers is known now."""
        awake = [row for row in arrived if row.runs]
        for row in rows:
            self._ledger.touch(row)
            row.start()
            if self._registry.placed(row.subscriber):
                awake.append(row)
        self.follow(self._finder.wake([row for row in awake if row.agent is not None]))

    def follow(self, found: Sequence[Found]) -> None:
        """Sources were lost and found: note it, and change states. Of a subscription that was stopped only note it."""
        self._ledger.note(found)
        for change in found:
            if change.row.runs:
                self._ledger.touch(change.row)
                self._follow(change)

    def _follow(self, change: Found) -> None:
        row, lost = change.row, bool(change.lost)
        if row.agent is not None:
            for operation in row.agent.follow(row.state, lost=lost, found=change.has_source):
                row.apply(operation, found=change.has_source, satisfied=not lost)

    def _should_run(self, row: Requirement) -> bool:
        condition = row.query.life_control
        if condition is None:
            return True
        inside = functools.partial(self._listener.inside, row.id)
        return holds(condition, self._registry.attributes(row.subscriber), inside=inside)
