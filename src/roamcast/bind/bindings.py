"""The binding manager: the one agent of each source expression, and the groups of sources that agents share."""

from __future__ import annotations

from collections.abc import Iterable

from roamcast.bind.agents import Agent, Group, choice_of
from roamcast.bind.find import Finder, Found
from roamcast.bind.messages import Attributes
from roamcast.bind.registry import Entity, Registry
from roamcast.lacl import Query, normalised
from roamcast.lacl.conditions import Attribute
from roamcast.lacl.printing import condition_text
from roamcast.lacl.syntax import Condition

__all__ = ["BindingManager"]


class BindingManager:
    """Allots agents and tells their groups of sources. What changes returns whose sources changed.

    Agents and source expressions are one to one (definition 6); an agent lives while a subscription has its expression.
    Its table (expression, subscription, source) is read from three sides: a subscription names its agent, which has the
    expression, and the finder has its sources. Agents that differ only in how they choose share a group.
    """

    def __init__(self, registry: Registry, finder: Finder) -> None:
        self._registry = registry
        self._finder = finder
        self._agents: dict[str, Agent] = {}
        self._groups: dict[tuple[str, int], Group] = {}
        self._anchored: dict[tuple[str, Attribute], list[Group]] = {}
        self._free: list[Group] = []

    def allot(self, query: Query) -> Agent:
        """The agent for a subscription; a new one only when no other has this source expression."""
        key = query.expression_key
        if key not in self._agents:
            self._agents[key] = Agent(query, self._group(query.source_expression, choice_of(query).count))
            self._agents[key].group.agents += 1
        return self._agents[key]

    def release(self, agent: Agent) -> None:
        """One of its subscriptions is no more; an agent without any goes, and a group without any agent."""
        agent.members -= 1
        if agent.members:
            return
        del self._agents[agent.expression]
        agent.group.agents -= 1
        if not agent.group.agents:
            self._forget(agent.group, agent.choice.count)

    def add_sources(self, sources: Iterable[Entity]) -> list[Found]:
        """They are new, or their positions are known now for the first time."""
        return self._join([(source, group) for source in sources for group in self._admitting(source.attributes)])

    def change_source(self, source: Entity, before: Attributes) -> list[Found]:
        """Its attributes are others now."""
        old, new = self._admitting(before), self._admitting(source.attributes)
        found = self._leave(source, [group for group in old if group not in new])
        return found + self._join([(source, group) for group in new if group not in old])

    def remove_source(self, source: Entity) -> list[Found]:
        return self._leave(source, self._admitting(source.attributes))

    def _group(self, condition: Condition | None, count: int) -> Group:
        """The group of a condition, for subscriptions to so many sources; a new one finds its sources."""
        key = _key(condition, count)
        if key not in self._groups:
            group = self._groups[key] = Group(condition, self._finder.add_group(count))
            for shelf in self._shelves(group):
                shelf.append(group)
            postings = [self._registry.sources_with(*anchor) for anchor in group.anchors] or [self._registry.sources]
            sources = [self._registry.at(handle) for handles in postings for handle in handles]
            self._join((source, group) for source in sources if group.admits(source.attributes))
        return self._groups[key]

    def _forget(self, group: Group, count: int) -> None:
        for shelf in self._shelves(group):
            shelf.remove(group)
        for anchor in group.anchors:
            if not self._anchored[anchor]:
                del self._anchored[anchor]
        del self._groups[_key(group.condition, count)]
        self._finder.remove_group(group.handle)

    def _admitting(self, attributes: Attributes) -> list[Group]:
        """The groups for which a source with these attributes qualifies."""
        anchored = (group for item in attributes.items() for group in self._anchored.get(item, ()))
        return [group for group in (*anchored, *self._free) if group.admits(attributes)]

    def _join(self, pairs: Iterable[tuple[Entity, Group]]) -> list[Found]:
        """All at once: nobody is bound for a moment to one that is not the best of them."""
        members = []
        for source, group in pairs:
            group.sources.add(source.id)
            if self._registry.placed(source.handle):
                group.unplaced.discard(source.id)
                members.append((source.handle, group.handle))
            else:
                group.unplaced.add(source.id)
        return self._finder.join(members)

    def _leave(self, source: Entity, groups: Iterable[Group]) -> list[Found]:
        members = []
        for group in groups:
            group.sources.remove(source.id)
            if source.id in group.unplaced:
                group.unplaced.remove(source.id)
            else:
                members.append((source.handle, group.handle))
        return self._finder.leave(members)

    def _shelves(self, group: Group) -> list[list[Group]]:
        """Where a group is looked up: under its anchors, or among those that have none."""
        return [self._anchored.setdefault(anchor, []) for anchor in group.anchors] or [self._free]


def _key(condition: Condition | None, count: int) -> tuple[str, int]:
    """Equal keys, same group: the condition in normal form."""
    return "" if condition is None else condition_text(normalised(condition)), count
