"""What people see of bindings: states and why they are so, where entities are, what agents do."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np

from roamcast.bind.agents import Agent
from roamcast.bind.bindings import BindingManager
from roamcast.bind.locate import Listener
from roamcast.bind.messages import Attributes
from roamcast.bind.registry import Entity, Kind, Registry
from roamcast.bind.requirements import Requirement, Requirements
from roamcast.bind.states import State
from roamcast.lacl import Plan, holds, plan_of, to_text
from roamcast.lacl.printing import condition_text, number_text, region_text
from roamcast.lacl.syntax import Condition, Inside, Not, Region, Within, conjuncts, leaves
from roamcast.model import Position
from roamcast.space import Space

__all__ = ["AgentStatus", "Status", "Views", "Whereabouts"]


@dataclass(frozen=True, slots=True)
class Status:
    """A subscription now. `why` it hears nothing is None when it is active; `since` its state and sources are so."""

    id: str
    subscriber: str
    text: str
    plan: Plan
    state: State
    sources: tuple[str, ...]
    since: int
    why: str | None


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """An entity now. `subscriptions` are a subscriber's own, or those that are bound to a source."""

    id: str
    kind: Kind
    attributes: Attributes
    position: Position | None
    subscriptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """A binding agent now: how many sources qualify for its expression, and whom it serves, by id."""

    expression: str
    sources: int
    members: tuple[str, ...]
    active: tuple[str, ...]
    inactive: tuple[str, ...]


class Views:
    """Reads all, changes nothing."""

    def __init__(
        self,
        space: Space,
        registry: Registry,
        requirements: Requirements,
        bindings: BindingManager,
        listener: Listener,
    ) -> None:
        self._space = space
        self._registry = registry
        self._requirements = requirements
        self._bindings = bindings
        self._listener = listener

    def status(self, row: Requirement) -> Status:
        return Status(
            row.id,
            row.subscriber,
            to_text(row.query),
            plan_of(row.query),
            row.state,
            self._bindings.table.sources_of(row.id),
            row.since,
            self.why(row),
        )

    def where(self, entity: Entity) -> Whereabouts:
        if entity.kind == "source":
            subscriptions = sorted(self._bindings.table.subscriptions_of(entity.id))
        else:
            subscriptions = sorted(row.id for row in self._requirements.of(entity.id))
        position = self._registry.position(entity)
        return Whereabouts(entity.id, entity.kind, entity.attributes, position, tuple(subscriptions))

    def agents(self) -> list[AgentStatus]:
        """By expression."""
        views = []
        for agent in sorted(self._bindings.agents, key=lambda agent: agent.expression):
            members, active, inactive = map(sorted, (agent.members, agent.active, agent.inactive))
            counts = len(agent.sources), tuple(members), tuple(active), tuple(inactive)
            views.append(AgentStatus(agent.expression, *counts))
        return views

    def why(self, row: Requirement, *, brief: bool = False) -> str | None:
        """Why a subscription hears nothing. In brief it costs the same however many sources there are."""
        if row.id not in self._requirements:
            return "it was removed"
        if row.state is State.STOP and row.query.life_control is not None:
            return self._why_stopped(row, row.query.life_control)
        if row.agent is None or row.state is State.ACTIVE:
            return None
        if self._registry.position(self._registry.get(row.subscriber)) is None:
            return f"the position of {row.subscriber} is not known"
        return self._why_alone(row, row.agent, brief=brief)

    def _why_stopped(self, row: Requirement, life_control: Condition) -> str:
        subscriber = self._registry.get(row.subscriber)
        inside = functools.partial(self._listener.inside, row.id)
        part = next(p for p in conjuncts(life_control) if not holds(p, subscriber.attributes, inside=inside))
        located = any(isinstance(test, Inside) for test in leaves(part))
        if located and self._registry.position(subscriber) is None:
            return f"the position of {subscriber.id} is not known"
        match part:
            case Inside(_, region):
                return f"{subscriber.id} is not in {_region_name(region)}"
            case Not(Inside(_, region)):
                return f"{subscriber.id} is in {_region_name(region)}"
            case _:
                return f"{condition_text(part)} does not hold for {subscriber.id}"

    def _why_alone(self, row: Requirement, agent: Agent, *, brief: bool) -> str:
        wanted = "" if agent.condition is None else f" with {condition_text(agent.condition)}"
        if not agent.sources:
            return f"no source{wanted} is registered"
        count = len(agent.sources) - len(agent.unplaced)
        if not count:
            return f"no position is known of any source{wanted}"
        reach = f"within {number_text(agent.choice.radius)} m"
        if brief:
            return f"the only source is not {reach}" if count == 1 else f"none of {count} sources is {reach}"
        nearest, distance = self._nearest(row, agent)
        if count == 1:
            return f"the only source, {nearest}, is {distance} away, not {reach}"
        return f"none of {count} sources is {reach}; the nearest, {nearest}, is {distance} away"

    def _nearest(self, row: Requirement, agent: Agent) -> tuple[str, str]:
        """The nearest qualifying source and how far it is."""
        ids = sorted(agent.sources - agent.unplaced)
        here = np.array([self._registry.get(row.subscriber).handle])
        there = np.array([self._registry.get(id).handle for id in ids])
        distance = self._space.distance(*self._registry.where(here), *self._registry.where(there))
        at = int(np.argmin(distance))
        # Rounded up: what is beyond a radius must not read as if it were within.
        return ids[at], f"{number_text(math.ceil(10 * distance[at]) / 10)} m"


def _region_name(region: Region) -> str:
    return region.place if isinstance(region, Within) else region_text(region)
