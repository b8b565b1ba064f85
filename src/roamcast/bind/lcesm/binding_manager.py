"""The binding manager: allots agents to subscriptions, and keeps active subscriptions bound to sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias, cast

import numpy as np

from roamcast.bind.lcesm.agents import Agent, SourceGroup, choice_of
from roamcast.bind.lcesm.entities import NO_MOVES, BinderEntity, EntityMoves, EntityTable
from roamcast.bind.lcesm.messages import Attributes
from roamcast.bind.lcesm.requirements import Requirement
from roamcast.bind.nearest.kernels.layout import Integers, Rule
from roamcast.bind.nearest.sources import NO_MEMBERSHIPS, BindingChanges, Memberships, NearestSources
from roamcast.lacl import Query, normalise
from roamcast.lacl.conditions import Attribute
from roamcast.lacl.printing import condition_text
from roamcast.lacl.syntax import Condition

__all__ = ["BindingManager", "SourceChange"]

_Membership: TypeAlias = tuple[int, int]
"""A source and a group, by handle."""


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
            self._agents[key] = Agent(query, self._group(query.source_expression, choice_of(query).count))
            self._agents[key].group.agents += 1
        return self._agents[key]

    def release(self, agent: Agent) -> None:
        """One subscription of the agent has ended. Removes an unused agent, and an unused group."""
        agent.members -= 1
        if agent.members:
            return
        del self._agents[agent.expression]
        agent.group.agents -= 1
        if not agent.group.agents:
            self._remove_group(agent.group, agent.choice.count)

    def subscribe(
        self, rows: Sequence[Requirement], previous: Mapping[Requirement, tuple[str, ...]] | None = None
    ) -> list[SourceChange]:
        """Enter new subscriptions with agents, and bind those that run and whose subscribers have positions.

        `previous` are sources from before a restart. Subscriptions with anyof() keep theirs if they still qualify.
        """
        agents = [_agent(row) for row in rows]
        subscribers = np.array([row.subscriber for row in rows], np.int32)
        runs = np.array([row.runs for row in rows], np.bool_)
        handles, changes = self._nearest.subscribe(
            subscribers,
            np.array([agent.group.handle for agent in agents], np.int32),
            np.array([agent.choice.rule for agent in agents], np.int8),
            np.array([agent.choice.radius for agent in agents], np.float64),
            active=runs & self._entities.have_position(subscribers),
            previous=self._previous_sources(rows, previous or {}),
        )
        self._requirements += [None] * (int(handles.max(initial=-1)) + 1 - len(self._requirements))
        for row, handle in zip(rows, handles.tolist(), strict=True):
            self._requirements[handle], row.handle = row, handle
        return self._source_changes(changes)

    def unsubscribe(self, rows: Sequence[Requirement]) -> list[SourceChange]:
        changes = self._source_changes(self._nearest.unsubscribe([row.handle for row in rows]))
        for row in rows:
            self._requirements[row.handle], row.handle = None, -1
        return changes

    def activate(self, rows: Sequence[Requirement]) -> list[SourceChange]:
        """Bind subscriptions whose subscribers have positions."""
        return self._source_changes(self._nearest.activate([row.handle for row in rows])) if rows else []

    def deactivate(self, rows: Sequence[Requirement]) -> list[SourceChange]:
        """Unbind subscriptions."""
        return self._source_changes(self._nearest.deactivate([row.handle for row in rows])) if rows else []

    def change(
        self, moves: EntityMoves, before: Iterable[BinderEntity], now: Iterable[BinderEntity]
    ) -> list[SourceChange]:
        """Move entities, and change sources from what they were `before` to what they are `now`.

        All at once, so that no subscription is bound for a moment to a source that is not the best in the end. A new
        source, or one with its first position, is only in `now`; a removed one only in `before`.
        """
        left = {pair for source, group in self._groups_of(before) if (pair := self._leave(source, group))}
        joined = {pair for source, group in self._groups_of(now) if (pair := self._join(source, group))}
        leaving, joining = _columns(sorted(left - joined)), _columns(sorted(joined - left))
        changes = self._nearest.move(moves.handles, moves.x, moves.y, leaving=leaving, joining=joining)
        return self._source_changes(changes)

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
    def demanded(self) -> Iterator[str]:
        """The sources with bindings."""
        return map(self._entities.id, self._nearest.demanded.tolist())

    def demand_changes(self) -> list[tuple[str, bool]]:
        """The sources that became demanded (True) or idle since the last call."""
        return [(self._entities.id(source), demanded) for source, demanded in self._nearest.demand_changes()]

    def _previous_sources(
        self, rows: Sequence[Requirement], previous: Mapping[Requirement, tuple[str, ...]]
    ) -> Integers:
        kept = [at for at, row in enumerate(rows) if row in previous and _agent(row).choice.rule is Rule.ANYOF]
        sources = np.full(len(rows), -1, np.int32)
        sources[kept] = self._entities.find([previous[rows[at]][0] for at in kept])
        return sources

    def _source_changes(self, changes: BindingChanges) -> list[SourceChange]:
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

    def _requirement(self, handle: int) -> Requirement:
        return cast(Requirement, self._requirements[handle])

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
            self._nearest.move(NO_MOVES.handles, NO_MOVES.x, NO_MOVES.y, joining=_columns(sorted(joined)))
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
        """The lists a group is in: by each of its required attributes, or that of groups without any."""
        return [self._by_attribute.setdefault(one, []) for one in group.required] or [self._without_attribute]

    def _admitting(self, attributes: Attributes) -> list[SourceGroup]:
        """The groups that admit a source with these attributes."""
        candidates = (group for item in attributes.items() for group in self._by_attribute.get(item, ()))
        return [group for group in (*candidates, *self._without_attribute) if group.admits(attributes)]

    def _groups_of(self, sources: Iterable[BinderEntity]) -> Iterator[tuple[BinderEntity, SourceGroup]]:
        return ((source, group) for source in sources for group in self._admitting(source.attributes))

    def _join(self, source: BinderEntity, group: SourceGroup) -> _Membership | None:
        """Add a source to a group. Returns the membership if the source has a position."""
        group.sources.add(source.id)
        if not self._entities.has_position(source.handle):
            group.unplaced.add(source.id)
            return None
        group.unplaced.discard(source.id)
        return source.handle, group.handle

    def _leave(self, source: BinderEntity, group: SourceGroup) -> _Membership | None:
        """Remove a source from a group. Returns the membership if the source had a position."""
        group.sources.remove(source.id)
        if source.id in group.unplaced:
            group.unplaced.remove(source.id)
            return None
        return source.handle, group.handle


def _group_key(condition: Condition | None, count: int) -> tuple[str, int]:
    """Equivalent conditions have equal keys."""
    return "" if condition is None else condition_text(normalise(condition)), count


def _columns(pairs: Sequence[_Membership]) -> Memberships:
    return ([source for source, _ in pairs], [group for _, group in pairs]) if pairs else NO_MEMBERSHIPS


def _agent(row: Requirement) -> Agent:
    """Of a requirement of the bind plan."""
    return cast(Agent, row.agent)
