"""The binding manager: which subscription has which sources, and the one agent of each source expression."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from roamcast.bind.agents import Agent, choice_of
from roamcast.bind.find import Finder, Found
from roamcast.bind.messages import Attributes
from roamcast.bind.registry import Entity, Registry
from roamcast.lacl import Query
from roamcast.lacl.conditions import Attribute

__all__ = ["BindingManager", "Bindings"]


class Bindings:
    """The table (subscription, source), read from either side. The expression of a subscription is its agent's."""

    def __init__(self) -> None:
        self._sources: dict[str, tuple[str, ...]] = {}
        self._subscriptions: dict[str, dict[str, None]] = {}

    @property
    def wanted(self) -> Collection[str]:
        """The sources that a binding names."""
        return self._subscriptions.keys()

    def sources_of(self, subscription: str) -> tuple[str, ...]:
        """By id."""
        return self._sources.get(subscription, ())

    def subscriptions_of(self, source: str) -> Collection[str]:
        return self._subscriptions.get(source, {}).keys()

    def bind(self, subscription: str, source: str) -> None:
        self._sources[subscription] = tuple(sorted((*self.sources_of(subscription), source)))
        self._subscriptions.setdefault(source, {})[subscription] = None

    def unbind(self, subscription: str, source: str) -> None:
        left = tuple(other for other in self._sources[subscription] if other != source)
        if left:
            self._sources[subscription] = left
        else:
            del self._sources[subscription]
        del self._subscriptions[source][subscription]
        if not self._subscriptions[source]:
            del self._subscriptions[source]


class BindingManager:
    """Allots agents and tells them of sources. What changes returns whose sources changed.

    Agents and source expressions are one to one (definition 6); an agent lives while a subscription has its expression.
    """

    def __init__(self, registry: Registry, finder: Finder) -> None:
        self.table = Bindings()
        self._registry = registry
        self._finder = finder
        self._agents: dict[str, Agent] = {}
        self._anchored: dict[tuple[str, Attribute], list[Agent]] = {}
        self._free: list[Agent] = []

    @property
    def agents(self) -> Iterable[Agent]:
        return self._agents.values()

    def allot(self, subscription: str, query: Query) -> Agent:
        """The agent for a subscription; a new one only when no other has this source expression."""
        key = query.expression_key
        agent = self._agents.get(key)
        if agent is None:
            agent = self._agents[key] = Agent(query, self._finder.add_group(choice_of(query)))
            for shelf in self._shelves(agent):
                shelf.append(agent)
            self._fill(agent)
        agent.members.add(subscription)
        return agent

    def release(self, subscription: str, agent: Agent) -> None:
        """The subscription is no more; an agent without any goes."""
        agent.members.remove(subscription)
        if agent.members:
            return
        for shelf in self._shelves(agent):
            shelf.remove(agent)
        for anchor in agent.anchors:
            if not self._anchored[anchor]:
                del self._anchored[anchor]
        del self._agents[agent.expression]
        self._finder.remove_group(agent.group)

    def add_sources(self, sources: Iterable[Entity]) -> list[Found]:
        """They are new, or their positions are known now for the first time."""
        return self._join([(source, agent) for source in sources for agent in self._admitting(source.attributes)])

    def change_source(self, source: Entity, before: Attributes) -> list[Found]:
        """Its attributes are others now."""
        old, new = self._admitting(before), self._admitting(source.attributes)
        found = self._leave(source, [agent for agent in old if agent not in new])
        return found + self._join([(source, agent) for agent in new if agent not in old])

    def remove_source(self, source: Entity) -> list[Found]:
        return self._leave(source, self._admitting(source.attributes))

    def _admitting(self, attributes: Attributes) -> list[Agent]:
        """The agents for which a source with these attributes qualifies but for its location."""
        anchored = (agent for item in attributes.items() for agent in self._anchored.get(item, ()))
        return [agent for agent in (*anchored, *self._free) if agent.admits(attributes)]

    def _join(self, pairs: Iterable[tuple[Entity, Agent]]) -> list[Found]:
        """All at once: nobody is bound for a moment to one that is not the best of them."""
        members = []
        for source, agent in pairs:
            agent.sources.add(source.id)
            if self._registry.placed(source.handle):
                agent.unplaced.discard(source.id)
                members.append((source.handle, agent.group))
            else:
                agent.unplaced.add(source.id)
        return self._finder.join(members)

    def _leave(self, source: Entity, agents: Iterable[Agent]) -> list[Found]:
        members = []
        for agent in agents:
            agent.sources.remove(source.id)
            if source.id in agent.unplaced:
                agent.unplaced.remove(source.id)
            else:
                members.append((source.handle, agent.group))
        return self._finder.leave(members)

    def _fill(self, agent: Agent) -> None:
        """Find the sources of a new agent."""
        postings = [self._registry.sources_with(*anchor) for anchor in agent.anchors] or [self._registry.sources]
        sources = [self._registry.get(id) for ids in postings for id in ids]
        self._join((source, agent) for source in sources if agent.admits(source.attributes))

    def _shelves(self, agent: Agent) -> list[list[Agent]]:
        """Where an agent is looked up: under its anchors, or among those that have none."""
        return [self._anchored.setdefault(anchor, []) for anchor in agent.anchors] or [self._free]
