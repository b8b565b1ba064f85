"""After a restart: what was before, and what is different now."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from roamcast.bind.lcesm.effects import demand_effect, state_effects
from roamcast.bind.lcesm.messages import Bound, Effect, StateChanged, Unbound
from roamcast.bind.lcesm.requirements import Requirement, Requirements
from roamcast.bind.lcesm.states import Operation, SubscriptionState

__all__ = ["Before", "differences"]


class Before:
    """Bindings and states as they were. Who had a source was active.

    There may be millions: of what is read the messages are not kept, nor are ids that `table` and `sources` have. Rows
    get the times since when they were so. `gone` are the states of subscriptions that are no more, and `lost` what
    those were bound to.
    """

    def __init__(
        self,
        bindings: Iterable[Bound],
        states: Iterable[StateChanged],
        table: Requirements,
        sources: Iterable[str],
    ) -> None:
        self.sources: dict[Requirement, tuple[str, ...]] = {}
        self.states: dict[Requirement, SubscriptionState] = {}
        self.gone: dict[str, SubscriptionState] = {}
        self.lost: list[Bound] = []
        named = {source: (source,) for source in sources}
        for bound in bindings:
            row, had = table.find(bound.subscription), named.get(bound.source) or (bound.source,)
            if row is None:
                self.gone[bound.subscription] = SubscriptionState.ACTIVE
                self.lost.append(bound)
            elif row not in self.sources:
                self.sources[row], row.since = had, bound.at
            else:
                self.sources[row], row.since = self.sources[row] + had, max(bound.at, row.since)
        for changed in states:
            row = table.find(changed.subscription)
            if row is None:
                self.gone[changed.subscription] = changed.state
            else:
                self.states[row] = changed.state
                row.since = max(changed.at, row.since) if row in self.sources else changed.at

    @property
    def wanted(self) -> set[str]:
        return {bound.source for bound in self.lost}.union(*self.sources.values())


def differences(
    before: Before,
    rows: Iterable[Requirement],
    sources: Iterable[tuple[str, ...]],
    wanted: frozenset[str],
    why: Callable[[Requirement], str | None],
    at: int,
) -> list[Effect]:
    """The effects that lead from `before` to now: `rows` have just started, with these `sources`, which are `wanted`.

    Rows get the states that follow; who has lost its source is inactive.
    """
    lost: list[Effect] = [Unbound(bound.subscription, bound.source, at) for bound in before.lost]
    found: list[Effect] = []
    ended = (id for id, state in before.gone.items() if state is not SubscriptionState.STOP)
    states: list[Effect] = [StateChanged(id, SubscriptionState.STOP, "it was removed", at) for id in ended]
    for row, has in zip(rows, sources, strict=True):
        had = before.sources.get(row, ())
        state = before.states.get(row, SubscriptionState.ACTIVE if had else None)
        if has:
            row.apply(Operation.JOIN, found=True)
        elif row.state is SubscriptionState.START and state in (SubscriptionState.ACTIVE, SubscriptionState.INACTIVE):
            row.state = SubscriptionState.INACTIVE
        if row.state is state and (had == has or set(had) == set(has)):
            continue
        row.since = at
        lost += (Unbound(row.id, source, at) for source in had if source not in has)
        found += (Bound(row.id, source, at) for source in has if source not in had)
        if row.state is not state:
            states += state_effects(row, state, why(row), at)
    effects, was_wanted = lost + found + states, before.wanted
    effects += (demand_effect(source, source in wanted, at) for source in sorted(was_wanted ^ wanted))
    return effects
