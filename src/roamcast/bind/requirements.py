"""The requirement manager's table: each subscription with its life-control and its state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from roamcast.bind.agents import Agent
from roamcast.bind.states import Operation, State, after
from roamcast.errors import ConflictError, NotFoundError
from roamcast.lacl import Query
from roamcast.lacl.syntax import Inside, Region, leaves

__all__ = ["Requirement", "Requirements"]


@dataclass(slots=True)
class Requirement:
    """A row. Its life-control is in the query; `since` is when its state or its sources last changed.

    `agent` is None for the match plan: such a subscription is active while it runs.
    """

    id: str
    subscriber: str
    query: Query
    agent: Agent | None
    state: State
    since: int

    @property
    def runs(self) -> bool:
        return self.state is not State.STOP

    @property
    def regions(self) -> tuple[Region, ...]:
        """Those against which its life-control tests the subscriber's location, each once."""
        if self.query.life_control is None:
            return ()
        tests = leaves(self.query.life_control)
        return tuple(dict.fromkeys(test.region for test in tests if isinstance(test, Inside)))

    def start(self) -> None:
        """It runs (anew): with an agent it waits for a source, without one it is active at once."""
        self.state = State.START if self.agent is not None else State.ACTIVE

    def apply(self, operation: Operation, *, found: bool = False, satisfied: bool = False) -> None:
        """Raises ConflictError where the table of states does not allow it."""
        self.state = after(operation, self.state, found=found, satisfied=satisfied)


class Requirements:
    """The rows, by subscription and by subscriber."""

    def __init__(self) -> None:
        self._rows: dict[str, Requirement] = {}
        self._by_subscriber: dict[str, list[str]] = {}

    def __contains__(self, id: str) -> bool:
        return id in self._rows

    def get(self, id: str) -> Requirement:
        """Raises NotFoundError."""
        try:
            return self._rows[id]
        except KeyError:
            hint = "it may have been removed"
            raise NotFoundError(f"no subscription {id!r}", where="subscription", hint=hint) from None

    def all(self) -> Iterable[Requirement]:
        return self._rows.values()

    def of(self, subscriber: str) -> list[Requirement]:
        """In the order in which they came."""
        return [self._rows[id] for id in self._by_subscriber.get(subscriber, ())]

    def has(self, id: str, subscriber: str, query: Query) -> bool:
        """Whether just this subscription is there. Raises ConflictError when another one has its id."""
        row = self._rows.get(id)
        if row is not None and (row.subscriber, row.query) != (subscriber, query):
            raise ConflictError(f"the id {id!r} is taken by another subscription", where="id", hint="take another id")
        return row is not None

    def add(self, row: Requirement) -> None:
        self._rows[row.id] = row
        self._by_subscriber.setdefault(row.subscriber, []).append(row.id)

    def remove(self, row: Requirement) -> None:
        del self._rows[row.id]
        ids = self._by_subscriber[row.subscriber]
        ids.remove(row.id)
        if not ids:
            del self._by_subscriber[row.subscriber]
