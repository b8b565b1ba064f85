"""What people see of bindings: states and why they are so, where entities are, what agents do."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roamcast.bind.lcesm.agents import Agent, Group
from roamcast.bind.lcesm.location_listener import Listener
from roamcast.bind.lcesm.messages import Attributes
from roamcast.bind.lcesm.registry import Entity, Kind, Registry
from roamcast.bind.lcesm.requirements import Requirement, Requirements
from roamcast.bind.lcesm.states import SubscriptionState
from roamcast.bind.nearest.finder import Finder
from roamcast.lacl import Plan, holds, plan_of, to_text
from roamcast.lacl.printing import condition_text, number_text, region_text
from roamcast.lacl.syntax import Condition, Inside, Not, Region, Within, conjuncts, leaves
from roamcast.model import Position
from roamcast.space import Space

__all__ = ["AgentStatus", "EntityStatus", "SubscriptionStatus", "Views"]


@dataclass(frozen=True, slots=True)
class SubscriptionStatus:
    """A subscription now. `why` it hears nothing is None when it is active; `since` its state and sources are so."""

    id: str
    subscriber: str
    text: str
    plan: Plan
    state: SubscriptionState
    sources: tuple[str, ...]
    since: int
    why: str | None


@dataclass(frozen=True, slots=True)
class EntityStatus:
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
        finder: Finder,
        listener: Listener,
    ) -> None:
        self._space = space
        self._registry = registry
        self._requirements = requirements
        self._finder = finder
        self._listener = listener

    def statuses(self, rows: Sequence[Requirement]) -> list[SubscriptionStatus]:
        return [
            SubscriptionStatus(
                row.id,
                self._registry.id(row.subscriber),
                to_text(row.query),
                plan_of(row.query),
                row.state,
                sources,
                row.since,
                self.why(row),
            )
            for row, sources in zip(rows, self._finder.sources_of(rows), strict=True)
        ]

    def where(self, entity: Entity) -> EntityStatus:
        if entity.kind == "source":
            subscriptions = sorted(self._finder.subscriptions_of(entity.handle))
        else:
            subscriptions = sorted(row.id for row in self._requirements.of(entity.handle))
        position = self._registry.position(entity)
        return EntityStatus(entity.id, entity.kind, entity.attributes, position, tuple(subscriptions))

    def agents(self) -> list[AgentStatus]:
        """By expression."""
        served: dict[Agent, list[Requirement]] = {}
        for row in self._requirements.all():
            if row.agent is not None:
                served.setdefault(row.agent, []).append(row)
        return [
            AgentStatus(
                agent.expression,
                len(agent.group.sources),
                tuple(sorted(row.id for row in rows)),
                tuple(sorted(row.id for row in rows if row.state is SubscriptionState.ACTIVE)),
                tuple(sorted(row.id for row in rows if row.state is SubscriptionState.INACTIVE)),
            )
            for agent, rows in sorted(served.items(), key=lambda item: item[0].expression)
        ]

    def why(self, row: Requirement, *, brief: bool = False) -> str | None:
        """Why a subscription hears nothing. In brief it costs the same however many sources there are."""
        if row.id not in self._requirements:
            return "it was removed"
        if row.state is SubscriptionState.STOP and row.query.life_control is not None:
            return self._why_stopped(row, row.query.life_control)
        if row.agent is None or row.state is SubscriptionState.ACTIVE:
            return None
        if not self._registry.placed(row.subscriber):
            return f"the position of {self._registry.id(row.subscriber)} is not known"
        return self._why_alone(row, row.agent, brief=brief)

    def _why_stopped(self, row: Requirement, life_control: Condition) -> str:
        subscriber = self._registry.at(row.subscriber)
        inside = functools.partial(self._listener.inside, row.id)
        part = next(p for p in conjuncts(life_control) if not holds(p, subscriber.attributes, inside=inside))
        located = any(isinstance(test, Inside) for test in leaves(part))
        if located and not self._registry.placed(subscriber.handle):
            return f"the position of {subscriber.id} is not known"
        match part:
            case Inside(_, region):
                return f"{subscriber.id} is not in {_region_name(region)}"
            case Not(Inside(_, region)):
                return f"{subscriber.id} is in {_region_name(region)}"
            case _:
                return f"{condition_text(part)} does not hold for {subscriber.id}"

    def _why_alone(self, row: Requirement, agent: Agent, *, brief: bool) -> str:
        condition = row.query.source_expression
        wanted = "" if condition is None else f" with {condition_text(condition)}"
        if not agent.group.sources:
            return f"no source{wanted} is registered"
        count = len(agent.group.sources) - len(agent.group.unplaced)
        if not count:
            return f"no position is known of any source{wanted}"
        reach = f"within {number_text(agent.choice.radius)} m"
        if brief:
            return f"the only source is not {reach}" if count == 1 else f"none of {count} sources is {reach}"
        nearest, distance = self._nearest(row, agent.group)
        if count == 1:
            return f"the only source, {nearest}, is {distance} away, not {reach}"
        return f"none of {count} sources is {reach}; the nearest, {nearest}, is {distance} away"

    def _nearest(self, row: Requirement, group: Group) -> tuple[str, str]:
        """The nearest qualifying source and how far it is."""
        ids = sorted(group.sources - group.unplaced)
        here, there = np.array([row.subscriber], np.int32), self._registry.known(ids)
        distance = self._space.distance(*self._registry.where(here), *self._registry.where(there))
        at = int(np.argmin(distance))
        # Rounded up: what is beyond a radius must not read as if it were within.
        return ids[at], f"{number_text(math.ceil(10 * distance[at]) / 10)} m"


def _region_name(region: Region) -> str:
    return region.place if isinstance(region, Within) else region_text(region)
