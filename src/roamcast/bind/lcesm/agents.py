"""Binding agents, one for each source expression, and the groups of sources that qualify for them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from roamcast.bind.lcesm.messages import Attributes
from roamcast.bind.nearest.kernels.layout import Rule
from roamcast.lacl import Query, holds
from roamcast.lacl.conditions import Attribute
from roamcast.lacl.syntax import Compare, Condition, In, Nearest, RangLoc, conjuncts

__all__ = ["Agent", "SourceChoice", "SourceGroup", "choice_of"]

_RULES: Final = {"anyof": Rule.ANYOF, "nearof": Rule.NEAROF, "remoteof": Rule.REMOTEOF}


@dataclass(frozen=True, slots=True)
class SourceChoice:
    """How to choose among qualifying sources: `count` of them, by a rule, within a radius in metres."""

    rule: Rule
    radius: float = math.inf
    count: int = 1


def choice_of(query: Query) -> SourceChoice:
    """The choice that a checked query of the bind plan makes."""
    match query.select.function, query.location:
        case str(function), RangLoc(radius):
            return SourceChoice(_RULES[function], radius)
        case _, Nearest(count):
            return SourceChoice(Rule.NEAREST, count=count)
        case _:
            raise ValueError("not a checked query of the bind plan")


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

    `members` is the number of subscriptions served. Their states are in the requirement table, where each has exactly
    one: so a bound subscription is active or inactive and never both (definition 5).
    """

    def __init__(self, query: Query, group: SourceGroup) -> None:
        self.expression: Final = query.expression_key
        self.choice: Final = choice_of(query)
        self.group: Final = group
        self.members = 0


def _required_attributes(condition: Condition | None) -> tuple[tuple[str, Attribute], ...]:
    """Attributes of which everything that satisfies the condition has one; empty if there are no such."""
    for part in conjuncts(condition) if condition is not None else ():
        match part:
            case Compare(variable, "=", value):
                return ((variable.name or "", value.value),)
            case In(variable, values):
                return tuple(dict.fromkeys((variable.name or "", value.value) for value in values))
            case _:
                pass
    return ()
