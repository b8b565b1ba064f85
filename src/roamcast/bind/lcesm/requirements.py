"""The requirement manager's table: each subscription with its life-control and its state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from roamcast.bind.lcesm.agents import Agent
from roamcast.bind.lcesm.states import Operation, SubscriptionState, next_state
from roamcast.errors import ConflictError, NotFoundError
from roamcast.lacl import Query
from roamcast.lacl.syntax import Inside, Region, leaves

__all__ = ["Requirement", "RequirementTable"]


@dataclass(slots=True, eq=False)
class Requirement:
    """A subscription. Its life-control is in the query; `since` is when its state or its sources last changed.

    `subscriber` is a handle. `agent` is None for the match plan: such a subscription is active while it runs. `handle`
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

    def apply(self, operation: Operation, *, found: bool = False, satisfied: bool = False) -> None:
        """Change the state, see `next_state`. Raises ConflictError if the operation is not allowed."""
        self.state = next_state(operation, self.state, found=found, satisfied=satisfied)


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


def _id_conflict(id: str) -> ConflictError:
    return ConflictError(f"id {id!r} is in use by another subscription", where="id", hint="choose another id")
