"""Status reports: subscriptions and why they receive nothing, entities, and agents."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from roamcast.bind.lcesm.binding_manager import Agent, BindingManager
from roamcast.bind.lcesm.entities import BinderEntity, EntityKind, EntityTable
from roamcast.bind.lcesm.location_listener import LocationListener
from roamcast.bind.lcesm.messages import Attributes, SubscriptionState
from roamcast.bind.lcesm.requirements import Requirement, RequirementTable
from roamcast.lacl import Plan, holds, plan_of, to_text
from roamcast.lacl.printing import condition_text, number_text, region_text
from roamcast.lacl.syntax import Condition, Inside, Not, Region, Within, conjuncts, leaves
from roamcast.model import Position

__all__ = ["AgentStatus", "EntityStatus", "StatusViews", "SubscriptionStatus"]


@dataclass(frozen=True, slots=True)
class SubscriptionStatus:
    """A subscription. `why` explains why it receives nothing; None when it is active.

    `since` is when its state or its sources last changed.
    """

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
    """An entity. `subscriptions` are a subscriber's own, or those bound to a source."""

    id: str
    kind: EntityKind
    attributes: Attributes
    position: Position | None
    subscriptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """A binding agent: the number of sources that qualify, and the ids of the subscriptions it serves."""

    expression: str
    sources: int
    subscriptions: tuple[str, ...]
    active: tuple[str, ...]
    inactive: tuple[str, ...]


class StatusViews:
    """Computes status reports. Changes nothing."""

    def __init__(
        self,
        entities: EntityTable,
        requirements: RequirementTable,
        bindings: BindingManager,
        listener: LocationListener,
    ) -> None:
        self._entities = entities
        self._requirements = requirements
        self._bindings = bindings
        self._listener = listener

    def statuses(self, rows: Sequence[Requirement]) -> list[SubscriptionStatus]:
        return [
            SubscriptionStatus(
                row.id,
                self._entities.id(row.subscriber),
                to_text(row.query),
                plan_of(row.query),
                row.state,
                sources,
                row.since,
                self.why(row),
            )
            for row, sources in zip(rows, self._bindings.sources_of(rows), strict=True)
        ]

    def entity(self, entity: BinderEntity) -> EntityStatus:
        if entity.kind == "source":
            subscriptions = sorted(self._bindings.subscriptions_of(entity.handle))
        else:
            subscriptions = sorted(row.id for row in self._requirements.of_subscriber(entity.handle))
        position = self._entities.position(entity)
        return EntityStatus(entity.id, entity.kind, entity.attributes, position, tuple(subscriptions))

    def agents(self) -> list[AgentStatus]:
        """By source expression."""
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

    def why(self, row: Requirement) -> str | None:
        """Why a subscription receives nothing; None if it is active.

        For its subscriber, who must not learn which sources it is not bound to, where they are, or how far away.
        """
        if row.id not in self._requirements:
            return "it was removed"
        if row.state is SubscriptionState.STOP and row.query.life_control is not None:
            return self._why_stopped(row, row.query.life_control)
        if row.agent is None or row.state is SubscriptionState.ACTIVE:
            return None
        if not self._entities.has_position(row.subscriber):
            return f"the position of {self._entities.id(row.subscriber)} is not known"
        return self._why_unbound(row, row.agent)

    def _why_stopped(self, row: Requirement, life_control: Condition) -> str:
        subscriber = self._entities.at(row.subscriber)
        inside = functools.partial(self._listener.is_inside, row.id)
        part = next(p for p in conjuncts(life_control) if not holds(p, subscriber.attributes, inside=inside))
        located = any(isinstance(test, Inside) for test in leaves(part))
        if located and not self._entities.has_position(subscriber.handle):
            return f"the position of {subscriber.id} is not known"
        match part:
            case Inside(_, region):
                return f"{subscriber.id} is not in {_region_name(region)}"
            case Not(Inside(_, region)):
                return f"{subscriber.id} is in {_region_name(region)}"
            case _:
                return f"{condition_text(part)} does not hold for {subscriber.id}"

    def _why_unbound(self, row: Requirement, agent: Agent) -> str:
        condition = row.query.source_condition
        with_condition = "" if condition is None else f" with {condition_text(condition)}"
        if not agent.group.sources:
            return f"no source{with_condition} is registered"
        count = len(agent.group.sources) - len(agent.group.unplaced)
        if not count:
            return f"no source{with_condition} has a known position"
        reach = f"within {number_text(agent.choice.radius)} m"
        return f"the only source is not {reach}" if count == 1 else f"none of {count} sources is {reach}"


def _region_name(region: Region) -> str:
    return region.place if isinstance(region, Within) else region_text(region)
