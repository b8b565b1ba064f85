"""After a restart: what was before, and what is different now."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from roamcast.bind.bindings import Bindings
from roamcast.bind.ledger import demand_effects, state_effects
from roamcast.bind.messages import Bound, Effect, StateChanged, Unbound
from roamcast.bind.requirements import Requirement, Requirements
from roamcast.bind.states import State

__all__ = ["Before", "differences"]


class Before:
    """Bindings and states as they were, with the times since when. Who had a source was active."""

    def __init__(self, bindings: Iterable[Bound], states: Iterable[StateChanged]) -> None:
        self.bindings: dict[str, dict[str, int]] = {}
        for bound in bindings:
            self.bindings.setdefault(bound.subscription, {})[bound.source] = bound.at
        self.states = dict.fromkeys(self.bindings, State.ACTIVE)
        self._since = {id: max(sources.values()) for id, sources in self.bindings.items()}
        for changed in states:
            self.states[changed.subscription] = changed.state
            self._since[changed.subscription] = max(changed.at, self._since.get(changed.subscription, changed.at))

    @property
    def wanted(self) -> frozenset[str]:
        return frozenset(source for sources in self.bindings.values() for source in sources)

    def single(self) -> Iterator[tuple[str, str]]:
        """The subscriptions that had one source."""
        for id, sources in self.bindings.items():
            if len(sources) == 1:
                yield id, next(iter(sources))

    def since(self, row: Requirement, sources: Iterable[str]) -> int:
        """When its state and sources last changed."""
        same = self.states.get(row.id) is row.state and set(self.bindings.get(row.id, ())) == set(sources)
        return self._since[row.id] if same else row.since


def differences(
    before: Before,
    requirements: Requirements,
    bindings: Bindings,
    why: Callable[[Requirement], str | None],
    at: int,
) -> list[Effect]:
    """The effects that lead from `before` to what is now. Rows get their times, and who lost a source is inactive."""
    effects = _binding_effects(before, requirements, bindings, at)
    for row in requirements.all():
        state = before.states.get(row.id)
        if row.state is State.START and row.agent is not None and state in (State.ACTIVE, State.INACTIVE):
            row.state = State.INACTIVE
            row.agent.inactive.add(row.id)
        row.since = before.since(row, bindings.sources_of(row.id))
        if row.state is not state:
            effects += state_effects(row, state, why(row), at)
    for id, state in before.states.items():
        if id not in requirements and state is not State.STOP:
            effects.append(StateChanged(id, State.STOP, "it was removed", at))
    for source in sorted(before.wanted.union(bindings.wanted)):
        effects += demand_effects(source, source in before.wanted, source in bindings.wanted, at)
    return effects


def _binding_effects(before: Before, requirements: Requirements, bindings: Bindings, at: int) -> list[Effect]:
    lost: list[Effect] = []
    found: list[Effect] = []
    for id in dict.fromkeys([*before.bindings, *(row.id for row in requirements.all())]):
        had, has = before.bindings.get(id, {}), bindings.sources_of(id)
        lost += (Unbound(id, source, at) for source in had if source not in has)
        found += (Bound(id, source, at) for source in has if source not in had)
    return lost + found
