"""The requirement manager: starts, stops and ends subscriptions as their subscribers and sources move and change."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from roamcast.bind.bindings import BindingManager
from roamcast.bind.find import Finder, Found, Wish
from roamcast.bind.ledger import Ledger
from roamcast.bind.locate import Listener
from roamcast.bind.messages import Subscribed
from roamcast.bind.registry import Registry
from roamcast.bind.requirements import Requirement, Requirements
from roamcast.bind.states import Operation, State
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

    def subscribe(self, wanted: Sequence[Subscribed], kept: Mapping[str, str]) -> None:
        """Their subscribers are known and their ids new. `kept` has the source that one had before a restart."""
        wishes = []
        for message in wanted:
            row = self._add(message)
            subscriber = self._registry.get(row.subscriber)
            if row.agent is not None:
                awake = row.runs and self._registry.placed(subscriber.handle)
                wishes.append(Wish(row.id, subscriber.handle, row.agent.group, awake, kept.get(row.id)))
        self.follow(self._finder.subscribe(wishes))

    def unsubscribe(self, row: Requirement) -> None:
        self._ledger.touch(row)
        self._quit(row)
        if row.agent is not None:
            self.follow(self._finder.unsubscribe([row.id]))
            self._bindings.release(row.id, row.agent)
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
            self._quit(row)
        self.follow(self._finder.sleep([row.id for row in ended if row.agent is not None]))
        return [row for row in rows if not row.runs and self._should_run(row)]

    def start(self, rows: Iterable[Requirement], arrived: Iterable[Requirement] = ()) -> None:
        """Start these anew, and wake what runs of `arrived`: the position of their subscribers is known now."""
        awake = [row for row in arrived if row.runs]
        for row in rows:
            self._ledger.touch(row)
            row.start()
            if self._registry.placed(self._registry.get(row.subscriber).handle):
                awake.append(row)
        self.follow(self._finder.wake([row.id for row in awake if row.agent is not None]))

    def follow(self, found: Sequence[Found]) -> None:
        """Sources were lost and found: enter it in the tables. Of a subscription that was stopped only the bindings."""
        table = self._bindings.table
        for change in found:
            for source in change.lost:
                table.unbind(change.subscription, source)
                self._ledger.unbound(change.subscription, source)
        for change in found:
            for source in change.found:
                self._ledger.bound(change.subscription, source, wanted=source in table.wanted)
                table.bind(change.subscription, source)
        for change in found:
            row = self.table.get(change.subscription)
            if row.runs and row.agent is not None:
                self._ledger.touch(row)
                has_source, lost = bool(table.sources_of(row.id)), bool(change.lost)
                for operation in row.agent.follow(row.id, row.state, lost=lost, found=has_source):
                    row.apply(operation, found=has_source, satisfied=not lost)

    def _add(self, message: Subscribed) -> Requirement:
        handle = self._registry.get(message.subscriber).handle
        agent = self._bindings.allot(message.id, message.query) if plan_of(message.query) == "bind" else None
        row = Requirement(message.id, message.subscriber, message.query, agent, State.START, self._ledger.at)
        (x,), (y,) = self._registry.where(np.array([handle]))
        self._listener.register(row.id, handle, row.regions, x, y)
        self.table.add(row)
        self._ledger.touch(row, new=True)
        row.start()
        if not self._should_run(row):
            self._quit(row)
        return row

    def _quit(self, row: Requirement) -> None:
        if row.agent is not None:
            row.agent.quit(row.id)
        row.apply(Operation.QUIT)

    def _should_run(self, row: Requirement) -> bool:
        condition = row.query.life_control
        if condition is None:
            return True
        inside = functools.partial(self._listener.inside, row.id)
        return holds(condition, self._registry.get(row.subscriber).attributes, inside=inside)
