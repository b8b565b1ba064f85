"""Messages to a binder, and the effects it returns: frozen values.

`EffectLog` collects the effects of one message; after a restart, `restore_effects` computes them as differences. Times
are integer microseconds since 1970. Attributes replace all earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from roamcast.lacl import Query
from roamcast.lacl.conditions import Attribute
from roamcast.model import Position

if TYPE_CHECKING:
    from roamcast.bind.lcesm.binding_manager import SourceChange
    from roamcast.bind.lcesm.requirements import Requirement, RequirementTable

__all__ = [
    "Attributes",
    "Bound",
    "Effect",
    "EffectLog",
    "EntityMoved",
    "EntityRegistered",
    "MatchStarted",
    "MatchStopped",
    "Message",
    "PositionForgotten",
    "PreviousBindings",
    "SourceChanged",
    "SourceDemanded",
    "SourceIdle",
    "SourceMessage",
    "SourceRegistered",
    "SourceRemoved",
    "StateChanged",
    "Subscribed",
    "SubscriberChanged",
    "SubscriberRegistered",
    "SubscriberRemoved",
    "SubscriptionState",
    "Unbound",
    "Unsubscribed",
    "restore_effects",
    "same_attributes",
]

Attributes: TypeAlias = Mapping[str, Attribute]


def same_attributes(first: Attributes, second: Attributes) -> bool:
    """Whether attributes are equal, where True and 1 are different."""
    return dict(first) == dict(second) and all(
        isinstance(value, bool) == isinstance(second[name], bool) for name, value in first.items()
    )


@dataclass(frozen=True, slots=True)
class SourceRegistered:
    """Repeating it with the same attributes is harmless; its position then counts as a move."""

    id: str
    attributes: Attributes
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class SourceChanged:
    id: str
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class SourceRemoved:
    id: str


@dataclass(frozen=True, slots=True)
class PositionForgotten:
    """The position of a source is erased. The next position counts, whatever its time."""

    id: str


@dataclass(frozen=True, slots=True)
class SubscriberRegistered:
    """Repeating it with the same attributes is harmless; its position then counts as a move."""

    id: str
    attributes: Attributes
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class SubscriberChanged:
    id: str
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class SubscriberRemoved:
    """Removes the subscriber's subscriptions, too."""

    id: str


@dataclass(frozen=True, slots=True)
class EntityMoved:
    """An entity was at (x, y) at `time`. Ignored if a later position is known."""

    entity: str
    x: float
    y: float
    time: int


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The query has been checked. Repeating it with the same subscriber and query is harmless."""

    id: str
    subscriber: str
    query: Query


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    id: str


class SubscriptionState(StrEnum):
    START = "start"  # it runs, and its agent has not found a source yet
    ACTIVE = "active"  # it has a source, or runs and is of plan match
    INACTIVE = "inactive"  # it has lost its source, and its agent looks for another
    STOP = "stop"  # it does not run


EntityRegistered: TypeAlias = SourceRegistered | SubscriberRegistered
SourceMessage: TypeAlias = SourceRegistered | SourceChanged | SourceRemoved | PositionForgotten | EntityMoved
Message: TypeAlias = (
    SourceMessage | SubscriberRegistered | SubscriberChanged | SubscriberRemoved | Subscribed | Unsubscribed
)


@dataclass(frozen=True, slots=True)
class Bound:
    """The subscription receives the source's events from `at` on."""

    subscription: str
    source: str
    at: int


@dataclass(frozen=True, slots=True)
class Unbound:
    subscription: str
    source: str
    at: int


@dataclass(frozen=True, slots=True)
class StateChanged:
    """`why` explains to people why the subscription receives nothing; None when it is active."""

    subscription: str
    state: SubscriptionState
    why: str | None
    at: int


@dataclass(frozen=True, slots=True)
class MatchStarted:
    """A subscription of plan match starts to run."""

    subscription: str
    at: int


@dataclass(frozen=True, slots=True)
class MatchStopped:
    """A subscription of plan match stops running."""

    subscription: str
    at: int


@dataclass(frozen=True, slots=True)
class SourceDemanded:
    """The source is demanded by a binding of this node, and was not before.

    `discovery/demand.py` adds plan match and peers.
    """

    source: str
    at: int


@dataclass(frozen=True, slots=True)
class SourceIdle:
    """The source has no binding of this node any more."""

    source: str
    at: int


Effect: TypeAlias = Bound | Unbound | StateChanged | MatchStarted | MatchStopped | SourceDemanded | SourceIdle


class EffectLog:
    """Collects the effects of one message: bindings in the order of change, then states, then demand.

    So a binding is known before its source is demanded. Only net changes are reported: a binding that exists only
    while the message is handled is left out, and a subscription that goes from one source to the next stays active.
    """

    def __init__(self) -> None:
        self.now = 0
        self._source_changes: list[Sequence[SourceChange]] = []
        self._touched: dict[Requirement, SubscriptionState | None] = {}  # with the state before; None: it is new

    def begin(self, now: int) -> None:
        """Start a new message. Time never goes back."""
        self.now = max(now, self.now)
        self._source_changes, self._touched = [], {}

    def add(self, changes: Sequence[SourceChange]) -> None:
        """Collect the source changes of one step."""
        if changes:
            self._source_changes.append(changes)

    def touch(self, row: Requirement, *, new: bool = False) -> None:
        """Note that the state or the sources of a requirement are about to change, or that it is new."""
        self._touched.setdefault(row, None if new else row.state)
        row.since = self.now

    def effects(self, demand: Iterable[tuple[str, bool]], why: Callable[[Requirement], str | None]) -> list[Effect]:
        """All effects. `demand` has the sources that got their first binding (True) or lost their last."""
        effects: list[Effect] = [*self._bindings()]
        for row, previous in self._touched.items():
            if row.state is not previous:
                effects += _state_effects(row, previous, why(row), self.now)
        effects += (_demand_effect(source, is_bound, self.now) for source, is_bound in demand)
        return effects

    def _bindings(self) -> Iterable[Bound | Unbound]:
        """Of each step the lost sources, then the gained ones."""
        effects: list[Bound | Unbound] = []
        for changes in self._source_changes:
            effects += (Unbound(one.requirement.id, one.lost, self.now) for one in changes if one.lost is not None)
            effects += (Bound(one.requirement.id, one.gained, self.now) for one in changes if one.gained is not None)
        return effects if len(self._source_changes) == 1 else _net(effects)


def _net(effects: Iterable[Bound | Unbound]) -> Iterable[Bound | Unbound]:
    """Leave out effects that cancel each other."""
    remaining: dict[tuple[str, str], Bound | Unbound] = {}
    for effect in effects:
        pair = effect.subscription, effect.source
        if remaining.pop(pair, None) is None:
            remaining[pair] = effect
    return remaining.values()


class PreviousBindings:
    """Bindings and states from before a restart. Subscriptions with a source were active.

    There may be millions: they are read once and not kept, and neither are ids that `table` and `sources` already have.
    Requirements get the times of their states. `removed` has the states of subscriptions that no longer exist, and
    `removed_bindings` their bindings.
    """

    def __init__(
        self,
        bindings: Iterable[Bound],
        states: Iterable[StateChanged],
        table: RequirementTable,
        sources: Iterable[str],
    ) -> None:
        self.sources: dict[Requirement, tuple[str, ...]] = {}
        self.states: dict[Requirement, SubscriptionState] = {}
        self.removed: dict[str, SubscriptionState] = {}
        self.removed_bindings: list[Bound] = []
        shared = {source: (source,) for source in sources}
        for bound in bindings:
            row, source = table.find(bound.subscription), shared.get(bound.source) or (bound.source,)
            if row is None:
                self.removed[bound.subscription] = SubscriptionState.ACTIVE
                self.removed_bindings.append(bound)
            elif row not in self.sources:
                self.sources[row], row.since = source, bound.at
            else:
                self.sources[row], row.since = self.sources[row] + source, max(bound.at, row.since)
        for changed in states:
            row = table.find(changed.subscription)
            if row is None:
                self.removed[changed.subscription] = changed.state
            else:
                self.states[row] = changed.state
                row.since = max(changed.at, row.since) if row in self.sources else changed.at

    @property
    def bound_sources(self) -> set[str]:
        return {bound.source for bound in self.removed_bindings}.union(*self.sources.values())


def restore_effects(
    previous: PreviousBindings,
    rows: Iterable[Requirement],
    sources: Iterable[tuple[str, ...]],
    bound_sources: frozenset[str],
    why: Callable[[Requirement], str | None],
    now: int,
) -> list[Effect]:
    """The effects that lead from the previous bindings to the current ones.

    `rows` have just started, with these `sources`. They get the states that follow: those that lost their sources
    become inactive.
    """
    unbound: list[Effect] = [Unbound(bound.subscription, bound.source, now) for bound in previous.removed_bindings]
    bound: list[Effect] = []
    ended = (id for id, state in previous.removed.items() if state is not SubscriptionState.STOP)
    states: list[Effect] = [StateChanged(id, SubscriptionState.STOP, "it was removed", now) for id in ended]
    for row, current in zip(rows, sources, strict=True):
        before = previous.sources.get(row, ())
        state = previous.states.get(row, SubscriptionState.ACTIVE if before else None)
        row.restore(state, has_source=bool(current))
        if row.state is state and (before == current or set(before) == set(current)):
            continue
        row.since = now
        unbound += (Unbound(row.id, source, now) for source in before if source not in current)
        bound += (Bound(row.id, source, now) for source in current if source not in before)
        if row.state is not state:
            states += _state_effects(row, state, why(row), now)
    effects = unbound + bound + states
    changed = sorted(previous.bound_sources ^ bound_sources)
    effects += (_demand_effect(source, source in bound_sources, now) for source in changed)
    return effects


def _state_effects(row: Requirement, previous: SubscriptionState | None, why: str | None, now: int) -> list[Effect]:
    """The effects of a change of state; `previous` is None for a new subscription."""
    effects: list[Effect] = [StateChanged(row.id, row.state, why, now)]
    if row.agent is None and row.state is SubscriptionState.ACTIVE:
        effects.append(MatchStarted(row.id, now))
    elif row.agent is None and previous is SubscriptionState.ACTIVE:
        effects.append(MatchStopped(row.id, now))
    return effects


def _demand_effect(source: str, is_bound: bool, now: int) -> Effect:
    return SourceDemanded(source, now) if is_bound else SourceIdle(source, now)
