"""What one message brings about, noted as it happens and told as effects at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from roamcast.bind.lcesm.messages import (
    Activated,
    Bound,
    Deactivated,
    Effect,
    SourceDemanded,
    SourceIdle,
    StateChanged,
    Unbound,
)
from roamcast.bind.lcesm.requirements import Requirement
from roamcast.bind.lcesm.states import SubscriptionState
from roamcast.bind.nearest.k_nearest import Found

__all__ = ["Ledger"]


class Ledger:
    """Effects in the order bindings, states, demand: a binding is known before its source is told to start.

    Of all of them only what is different in the end: a binding that lasts for a moment of the same message is not
    told, and a subscription that goes from one source to the next stays active. Bindings come in the order in which
    they change.
    """

    def __init__(self) -> None:
        self.at = 0
        self._notes: list[Sequence[Found]] = []
        self._touched: dict[Requirement, SubscriptionState | None] = {}

    def open(self, now: int) -> None:
        """Begin anew; time does not go back."""
        self.at = max(now, self.at)
        self._notes, self._touched = [], {}

    def note(self, found: Sequence[Found]) -> None:
        """Sources were lost, and others found."""
        if found:
            self._notes.append(found)

    def touch(self, row: Requirement, *, new: bool = False) -> None:
        """Its state or its sources are about to change, or it is new."""
        self._touched.setdefault(row, None if new else row.state)
        row.since = self.at

    def effects(self, demand: Iterable[tuple[str, bool]], why: Callable[[Requirement], str | None]) -> list[Effect]:
        """`demand` are the sources of which it is different whether they are wanted, and whether they are."""
        effects: list[Effect] = [*self._bindings()]
        for row, before in self._touched.items():
            if row.state is not before:
                effects += state_effects(row, before, why(row), self.at)
        effects += (demand_effect(source, wanted, self.at) for source, wanted in demand)
        return effects

    def _bindings(self) -> Iterable[Bound | Unbound]:
        """Of each note what is lost, then what is found."""
        changes: list[Bound | Unbound] = []
        for found in self._notes:
            changes += (Unbound(change.row.id, source, self.at) for change in found for source in change.lost)
            changes += (Bound(change.row.id, source, self.at) for change in found for source in change.found)
        return changes if len(self._notes) == 1 else _net(changes)


def _net(changes: Iterable[Bound | Unbound]) -> Iterable[Bound | Unbound]:
    """What is taken back is not told."""
    left: dict[tuple[str, str], Bound | Unbound] = {}
    for change in changes:
        pair = change.subscription, change.source
        if left.pop(pair, None) is None:
            left[pair] = change
    return left.values()


def state_effects(row: Requirement, before: SubscriptionState | None, why: str | None, at: int) -> list[Effect]:
    """Of a state that was another before; None: there was none."""
    effects: list[Effect] = [StateChanged(row.id, row.state, why, at)]
    if row.agent is None and row.state is SubscriptionState.ACTIVE:
        effects.append(Activated(row.id, at))
    elif row.agent is None and before is SubscriptionState.ACTIVE:
        effects.append(Deactivated(row.id, at))
    return effects


def demand_effect(source: str, wanted: bool, at: int) -> Effect:
    return SourceDemanded(source, at) if wanted else SourceIdle(source, at)
