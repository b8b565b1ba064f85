"""What one message brings about, noted as it happens and told as effects at the end."""

from __future__ import annotations

from collections.abc import Callable, Collection

from roamcast.bind.messages import Activated, Bound, Deactivated, Effect, StateChanged, Unbound, Unwanted, Wanted
from roamcast.bind.requirements import Requirement
from roamcast.bind.states import State

__all__ = ["Ledger"]


class Ledger:
    """Effects in the order bindings, states, demand: a binding is known before its source is told to start.

    Of all of them only what is different in the end: a binding that lasts for a moment of the same message is not
    told, and a subscription that goes from one source to the next stays active. Bindings come in the order in which
    they change.
    """

    def __init__(self) -> None:
        self.at = 0
        self._bindings: dict[tuple[str, str], Effect] = {}
        self._touched: dict[str, tuple[Requirement, State | None]] = {}
        self._demand: dict[str, bool] = {}

    def open(self, now: int) -> None:
        """Begin anew; time does not go back."""
        self.at = max(now, self.at)
        self._bindings, self._touched, self._demand = {}, {}, {}

    def bound(self, subscription: str, source: str, *, wanted: bool) -> None:
        """`wanted`: another binding names the source already."""
        self._demand.setdefault(source, wanted)
        self._note(Bound(subscription, source, self.at))

    def unbound(self, subscription: str, source: str) -> None:
        self._demand.setdefault(source, True)
        self._note(Unbound(subscription, source, self.at))

    def touch(self, row: Requirement, *, new: bool = False) -> None:
        """Its state or its sources are about to change, or it is new."""
        self._touched.setdefault(row.id, (row, None if new else row.state))
        row.since = self.at

    def effects(self, wanted: Collection[str], why: Callable[[Requirement], str | None]) -> list[Effect]:
        """`wanted` are the sources that bindings name now."""
        effects = list(self._bindings.values())
        for row, before in self._touched.values():
            if row.state is not before:
                effects += state_effects(row, before, why(row), self.at)
        for source, was_wanted in self._demand.items():
            effects += demand_effects(source, was_wanted, source in wanted, self.at)
        return effects

    def _note(self, effect: Bound | Unbound) -> None:
        """What is taken back is not told."""
        pair = effect.subscription, effect.source
        if self._bindings.pop(pair, None) is None:
            self._bindings[pair] = effect


def state_effects(row: Requirement, before: State | None, why: str | None, at: int) -> list[Effect]:
    """Of a state that was another before; None: there was none."""
    effects: list[Effect] = [StateChanged(row.id, row.state, why, at)]
    if row.agent is None and row.state is State.ACTIVE:
        effects.append(Activated(row.id, at))
    elif row.agent is None and before is State.ACTIVE:
        effects.append(Deactivated(row.id, at))
    return effects


def demand_effects(source: str, before: bool, now: bool, at: int) -> list[Effect]:
    if before == now:
        return []
    return [Wanted(source, at) if now else Unwanted(source, at)]
