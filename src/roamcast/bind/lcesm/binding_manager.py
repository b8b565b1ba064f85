"""The binding manager: allots agents to subscriptions, and keeps running subscriptions bound to sources."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import numpy as np

from roamcast.bind.lcesm.entities import NO_MOVES, BinderEntity, EntityTable
from roamcast.bind.lcesm.messages import Attributes
from roamcast.bind.nearest.arrays import NO_MEMBERSHIPS, Membership, Memberships
from roamcast.bind.nearest.kernels.layout import Int32s, Rule
from roamcast.bind.nearest.sources import BindingChanges, NearestSources
from roamcast.lacl import Query, holds, normalise
from roamcast.lacl.conditions import Attribute
from roamcast.lacl.printing import condition_text
from roamcast.lacl.syntax import Compare, Condition, In, Nearest, RangLoc, conjuncts

if TYPE_CHECKING:
    from roamcast.bind.lcesm.requirements import Requirement

__all__ = ["Agent", "BindingManager", "SourceChange", "SourceChoice", "SourceGroup", "choice_of"]

_RULES: Final = {"anyof": Rule.ANYOF, "nearof": Rule.NEAROF, "remoteof": Rule.REMOTEOF}


@dataclass(frozen=True, slots=True)
class SourceChoice:
    """How to choose among qualifying sources: `count` of them, by a rule, within a radius in metres."""

    rule: Rule
    radius: float = math.inf
    count: int = 1


def choice_of(query: Query) -> SourceChoice:
    """The choice that a checked query of plan bind makes."""
    match query.select.function, query.location:
        case str(function), RangLoc(radius):
            return SourceChoice(_RULES[function], radius)
        case _, Nearest(count):
            return SourceChoice(Rule.NEAREST, count=count)
        case _:
            raise ValueError("not a checked query of plan bind")


class SourceGroup:
    """The sources whose attributes satisfy a condition, wherever they are. Agents with equal conditions share it.

    `sources` has their ids, and `unplaced` the ids of those without a known position. If `required` is not empty, every
    source of the group has one of these attributes. `handle` is the group's handle in `NearestSources`, `agents` the
    number of agents that share it.
    """

    def __init__(self, condition: Condition | None, handle: int) -> None:
        self.condition: Final = condition
        self.required: Final = _required_attributes(condition)
        self.handle: Final = handle
        self.sources: set[str] = set()
        self.unplaced: set[str] = set()
        self.agents = 0

    def admits(self, attributes: Attributes) -> bool:
        """Whether a source with these attributes qualifies, apart from its location."""
        return self.condition is None or holds(self.condition, attributes)


class Agent:
    """Serves the subscriptions with one source expression. They share the qualifying sources, not the choice.

    `subscriptions` is the number it serves. Their states are in the requirement table, where each has exactly one: so a
    bound subscription is active or inactive and never both (definition 5).
    """

    def __init__(self, query: Query, group: SourceGroup) -> None:
        self.expression: Final = query.expression_key
        self.choice: Final = choice_of(query)
        self.group: Final = group
        self.subscriptions = 0


class SourceChange(NamedTuple):
    """A source that a subscription lost, and one it gained. `has_source` tells whether it has any source now."""

    requirement: Requirement
    lost: str | None
    gained: str | None
    has_source: bool


class BindingManager:
    """Agents by source expression, groups of sources that agents share, and the current bindings.

    Agents and source expressions are one to one (definition 6). An agent exists while a subscription has its
    expression. The paper's table (expression, subscription, source) is stored in three parts: a requirement has its
    agent, the agent its expression, and `NearestSources` the bindings. Agents that differ only in how they choose share
    a group.

    Methods that return source changes list them in the order of choice: `nearest(k)`, then the others, `anyof()` last,
    because it counts all other bindings.
    """

    def __init__(self, entities: EntityTable, nearest: NearestSources) -> None:
        self._entities = entities
        self._nearest = nearest
        self._agents: dict[str, Agent] = {}
        self._groups: dict[tuple[str, int], SourceGroup] = {}
        self._by_attribute: dict[tuple[str, Attribute], list[SourceGroup]] = {}
        self._without_attribute: list[SourceGroup] = []
        self._requirements: list[Requirement | None] = []  # by handle in `nearest`

    def allot(self, query: Query) -> Agent:
        """The agent for a subscription. It is created if there is none for this source expression."""
        key = query.expression_key
        if key not in self._agents:
            self._agents[key] = Agent(query, self._group(query.source_condition, choice_of(query).count))
            self._agents[key].group.agents += 1
        return self._agents[key]

    def release(self, agent: Agent) -> None:
        """One subscription of the agent has ended. Removes an unused agent, and an unused group."""
        agent.subscriptions -= 1
        if agent.subscriptions:
            return
        del self._agents[agent.expression]
        agent.group.agents -= 1
        if not agent.group.agents:
            self._remove_group(agent.group, agent.choice.count)

    def bind_new(
        self, rows: Sequence[Requirement], previous: Mapping[Requirement, tuple[str, ...]] | None = None
    ) -> list[SourceChange]:
        """Enter new subscriptions with agents, and bind those that run and whose subscribers have positions.

        `previous` are sources from before a restart. Subscriptions with anyof() keep theirs if they still qualify.
        """
        agents = [_agent(row) for row in rows]
        subscribers = np.array([row.subscriber for row in rows], np.int32)
        runs = np.array([row.runs for row in rows], np.bool_)
        handles, changes = self._nearest.add_subscriptions(
            subscribers,
            np.array([agent.group.handle for agent in agents], np.int32),
            np.array([agent.choice.rule for agent in agents], np.int8),
            np.array([agent.choice.radius for agent in agents], np.float64),
            suspended=~(runs & self._entities.have_position(subscribers)),
            previous=self._previous_sources(rows, previous or {}),
        )
        self._requirements += [None] * (int(handles.max(initial=-1)) + 1 - len(self._requirements))
        for row, handle in zip(rows, handles.tolist(), strict=True):
            self._requirements[handle], row.handle = row, handle
        return self.source_changes(changes)

    def remove(self, rows: Sequence[Requirement]) -> list[SourceChange]:
        """Remove subscriptions that have ended."""
        changes = self.source_changes(self._nearest.remove_subscriptions([row.handle for row in rows]))
        for row in rows:
            self._requirements[row.handle], row.handle = None, -1
        return changes

    def resume(self, rows: Sequence[Requirement]) -> list[SourceChange]:
        """Bind subscriptions whose subscribers have positions."""
        return self.source_changes(self._nearest.resume([row.handle for row in rows])) if rows else []

    def suspend(self, rows: Sequence[Requirement]) -> list[SourceChange]:
        """Unbind subscriptions until they are resumed."""
        return self.source_changes(self._nearest.suspend([row.handle for row in rows])) if rows else []

    def regroup(
        self, old_sources: Iterable[BinderEntity], new_sources: Iterable[BinderEntity]
    ) -> tuple[Memberships, Memberships]:
        """Put sources that change into the groups they qualify for. Returns who leaves and who joins which group.

        A new source, or one with its first position, is only in `new_sources`; a removed one only in `old_sources`.
        """
        left = {pair for source, group in self._groups_of(old_sources) if (pair := self._leave(source, group))}
        joined = {pair for source, group in self._groups_of(new_sources) if (pair := self._join(source, group))}
        return _columns(left - joined), _columns(joined - left)

    def source_changes(self, changes: BindingChanges) -> list[SourceChange]:
        """The changes with requirements and ids instead of handles."""
        columns = changes.subscription.tolist(), changes.old.tolist(), changes.new.tolist()
        name = self._entities.id
        return [
            SourceChange(
                self._requirement(handle),
                name(old) if old >= 0 else None,
                name(new) if new >= 0 else None,
                new >= 0 or bool(self._nearest.sources_of_several(handle)),
            )
            for handle, old, new in zip(*columns, strict=True)
        ]

    def sources_of(self, rows: Sequence[Requirement]) -> Iterator[tuple[str, ...]]:
        """The sources of each subscription, by id."""
        handles = np.fromiter((row.handle for row in rows), np.int32, len(rows))
        sources = np.full(len(rows), -1, np.int32)
        sources[handles >= 0] = self._nearest.source_of(handles[handles >= 0])
        for row, source in zip(rows, sources.tolist(), strict=True):
            several = [source] if source >= 0 else self._nearest.sources_of_several(row.handle)
            yield tuple(map(self._entities.id, several))

    def subscriptions_of(self, source: int) -> list[str]:
        """The subscriptions that are bound to a source."""
        return [self._requirement(handle).id for handle in self._nearest.bound_to(source)]

    @property
    def bound_sources(self) -> Iterator[str]:
        return map(self._entities.id, self._nearest.bound_sources.tolist())

    def demand_changes(self) -> list[tuple[str, bool]]:
        """Sources that got their first binding (True) or lost their last since the last call."""
        return [(self._entities.id(source), is_bound) for source, is_bound in self._nearest.demand_changes()]

    def _previous_sources(self, rows: Sequence[Requirement], previous: Mapping[Requirement, tuple[str, ...]]) -> Int32s:
        kept = [at for at, row in enumerate(rows) if row in previous and _agent(row).choice.rule is Rule.ANYOF]
        sources = np.full(len(rows), -1, np.int32)
        sources[kept] = self._entities.find([previous[rows[at]][0] for at in kept])
        return sources

    def _requirement(self, handle: int) -> Requirement:
        return cast("Requirement", self._requirements[handle])

    def _group(self, condition: Condition | None, count: int) -> SourceGroup:
        """The group of a condition, for subscriptions to `count` sources. A new one is filled with its sources."""
        key = _group_key(condition, count)
        if key not in self._groups:
            group = self._groups[key] = SourceGroup(condition, self._nearest.add_group(count))
            for groups in self._lists_of(group):
                groups.append(group)
            entities = self._entities
            candidates = [entities.sources_with(*one) for one in group.required] or [entities.sources]
            sources = [entities.at(handle) for handles in candidates for handle in handles]
            admitted = (source for source in sources if group.admits(source.attributes))
            joined = {pair for source in admitted if (pair := self._join(source, group))}
            self._nearest.move(NO_MOVES.handles, NO_MOVES.x, NO_MOVES.y, joining=_columns(joined))
        return self._groups[key]

    def _remove_group(self, group: SourceGroup, count: int) -> None:
        for groups in self._lists_of(group):
            groups.remove(group)
        for attribute in group.required:
            if not self._by_attribute[attribute]:
                del self._by_attribute[attribute]
        del self._groups[_group_key(group.condition, count)]
        self._nearest.remove_group(group.handle)

    def _lists_of(self, group: SourceGroup) -> list[list[SourceGroup]]:
        """The lists a group is in: one for each of its required attributes, or the list of groups without required
        attributes.
        """
        return [self._by_attribute.setdefault(one, []) for one in group.required] or [self._without_attribute]

    def _admitting(self, attributes: Attributes) -> list[SourceGroup]:
        """The groups that admit a source with these attributes."""
        candidates = (group for item in attributes.items() for group in self._by_attribute.get(item, ()))
        return [group for group in (*candidates, *self._without_attribute) if group.admits(attributes)]

    def _groups_of(self, sources: Iterable[BinderEntity]) -> Iterator[tuple[BinderEntity, SourceGroup]]:
        return ((source, group) for source in sources for group in self._admitting(source.attributes))

    def _join(self, source: BinderEntity, group: SourceGroup) -> Membership | None:
        """Add a source to a group. Returns the membership if the source has a position."""
        group.sources.add(source.id)
        if not self._entities.has_position(source.handle):
            group.unplaced.add(source.id)
            return None
        group.unplaced.discard(source.id)
        return source.handle, group.handle

    def _leave(self, source: BinderEntity, group: SourceGroup) -> Membership | None:
        """Remove a source from a group. Returns the membership if the source had a position."""
        group.sources.remove(source.id)
        if source.id in group.unplaced:
            group.unplaced.remove(source.id)
            return None
        return source.handle, group.handle


def _group_key(condition: Condition | None, count: int) -> tuple[str, int]:
    """Equivalent conditions have equal keys."""
    return "" if condition is None else condition_text(normalise(condition)), count


def _columns(pairs: Iterable[Membership]) -> Memberships:
    columns = tuple(zip(*sorted(pairs), strict=True))
    return (columns[0], columns[1]) if columns else NO_MEMBERSHIPS


def _agent(row: Requirement) -> Agent:
    """Of a requirement of plan bind."""
    return cast(Agent, row.agent)


def _required_attributes(condition: Condition | None) -> tuple[tuple[str, Attribute], ...]:
    """Attributes such that every source that satisfies the condition has at least one of them.

    Empty if there are none.
    """
    for part in conjuncts(condition) if condition is not None else ():
        match part:
            case Compare(variable, "=", value):
                return ((variable.name or "", value.value),)
            case In(variable, values):
                return tuple(dict.fromkeys((variable.name or "", value.value) for value in values))
            case _:
                pass
    return ()
