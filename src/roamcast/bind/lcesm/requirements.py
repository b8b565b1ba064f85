"""The requirement manager's table: each subscription with its life-control and its state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from roamcast.bind.lcesm.agents import Agent
from roamcast.bind.lcesm.states import Operation, SubscriptionState, after
from roamcast.errors import ConflictError, NotFoundError
from roamcast.lacl import Query
from roamcast.lacl.syntax import Inside, Region, leaves

__all__ = ["Requirement", "Requirements"]


@dataclass(slots=True, eq=False)
class Requirement:
    """A row. Its life-control is in the query; `since` is when its state or its sources last changed.

    `subscriber` is a handle. `agent` is None for the match plan: such a subscription is active while it runs. `watcher`
    is its number in the watch; -1 when it is not there. `earlier` is the row that its subscriber had before.
    """

    id: str
    subscriber: int
    query: Query
    agent: Agent | None
    state: SubscriptionState
    since: int
    watcher: int = -1
    earlier: Requirement | None = None

    @property
    def runs(self) -> bool:
        return self.state is not SubscriptionState.STOP

    @property
    def regions(self) -> tuple[Region, ...]:
        """Those against which its life-control tests the subscriber's location, each once."""
        if self.query.life_control is None:
            return ()
        tests = leaves(self.query.life_control)
        return tuple(dict.fromkeys(test.region for test in tests if isinstance(test, Inside)))

    def start(self) -> None:
        """It runs (anew): with an agent it waits for a source, without one it is active at once."""
        self.state = SubscriptionState.START if self.agent is not None else SubscriptionState.ACTIVE

    def apply(self, operation: Operation, *, found: bool = False, satisfied: bool = False) -> None:
        """Raises ConflictError where the table of states does not allow it."""
        self.state = after(operation, self.state, found=found, satisfied=satisfied)


class Requirements:
    """The rows, by subscription and by subscriber."""

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
            raise NotFoundError(f"no subscription {id!r}", where="subscription", hint=hint) from None

    def all(self) -> Iterable[Requirement]:
        return self._rows.values()

    def of(self, subscriber: int) -> list[Requirement]:
        """The latest first."""
        rows = []
        row = self._latest.get(subscriber)
        while row is not None:
            rows.append(row)
            row = row.earlier
        return rows

    def has(self, id: str, subscriber: int, query: Query) -> bool:
        """Whether just this subscription is there. Raises ConflictError when another one has its id."""
        row = self._rows.get(id)
        if row is not None and (row.subscriber, row.query) != (subscriber, query):
            raise _taken(id)
        return row is not None

    def add(self, row: Requirement) -> None:
        """Raises ConflictError for an id that is taken."""
        if self._rows.setdefault(row.id, row) is not row:
            raise _taken(row.id)
        row.earlier = self._latest.get(row.subscriber)
        self._latest[row.subscriber] = row

    def remove(self, row: Requirement) -> None:
        """Quick for the latest of a subscriber."""
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


def _taken(id: str) -> ConflictError:
    return ConflictError(f"the id {id!r} is taken by another subscription", where="id", hint="take another id")
