"""The binding manager: the one agent of each source expression, and the groups of sources that agents share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from roamcast.bind.lcesm.agents import Agent, Group, choice_of
from roamcast.bind.lcesm.messages import Attributes
from roamcast.bind.lcesm.registry import STILL, Entity, Moves, Registry
from roamcast.bind.nearest.finder import Finder, Found, Pair
from roamcast.lacl import Query, normalise
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

    def change(self, moves: Moves, before: Iterable[Entity], now: Iterable[Entity]) -> list[Found]:
        """The registry has taken the moves, and sources are as they are `now`, no longer as they were `before`. All at
        once, so that nobody is bound for a moment to one that is not the best in the end.

        Who is new, or whose position is known for the first time, is in `now` alone; who goes is in `before` alone.
        """
        left = {pair for source, group in self._groups_of(before) if (pair := self._leave(source, group))}
        come = {pair for source, group in self._groups_of(now) if (pair := self._join(source, group))}
        return self._finder.change(moves, sorted(left - come), sorted(come - left))

    def _group(self, condition: Condition | None, count: int) -> Group:
        """The group of a condition, for subscriptions to so many sources; a new one finds its sources."""
        key = _key(condition, count)
        if key not in self._groups:
            group = self._groups[key] = Group(condition, self._finder.add_group(count))
            for shelf in self._shelves(group):
                shelf.append(group)
            postings = [self._registry.sources_with(*anchor) for anchor in group.anchors] or [self._registry.sources]
            sources = [self._registry.at(handle) for handles in postings for handle in handles]
            fitting = (source for source in sources if group.admits(source.attributes))
            come = {pair for source in fitting if (pair := self._join(source, group))}
            self._finder.change(STILL, (), sorted(come))
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

    def _groups_of(self, sources: Iterable[Entity]) -> Iterator[tuple[Entity, Group]]:
        return ((source, group) for source in sources for group in self._admitting(source.attributes))

    def _join(self, source: Entity, group: Group) -> Pair | None:
        """What the finder is to be told, if it is known where the source is."""
        group.sources.add(source.id)
        if not self._registry.placed(source.handle):
            group.unplaced.add(source.id)
            return None
        group.unplaced.discard(source.id)
        return source.handle, group.handle

    def _leave(self, source: Entity, group: Group) -> Pair | None:
        """What the finder is to be told, if it was known where the source is."""
        group.sources.remove(source.id)
        if source.id in group.unplaced:
            group.unplaced.remove(source.id)
            return None
        return source.handle, group.handle

    def _shelves(self, group: Group) -> list[list[Group]]:
        """Where a group is looked up: under its anchors, or among those that have none."""
        return [self._anchored.setdefault(anchor, []) for anchor in group.anchors] or [self._free]


def _key(condition: Condition | None, count: int) -> tuple[str, int]:
    """Equal keys, same group: the condition in normal form."""
    return "" if condition is None else condition_text(normalise(condition)), count
