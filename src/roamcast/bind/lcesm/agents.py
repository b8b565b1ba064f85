"""The binding agent, one for each source expression, and the sources that qualify for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from roamcast.bind.lcesm.messages import Attributes
from roamcast.bind.lcesm.states import Operation, SubscriptionState
from roamcast.bind.nearest.kernels.layout import Rule
from roamcast.lacl import Query, holds
from roamcast.lacl.conditions import Attribute
from roamcast.lacl.syntax import Compare, Condition, In, Nearest, RangLoc, conjuncts

__all__ = ["Agent", "Choice", "Group", "choice_of"]

_RULES: Final = {"anyof": Rule.ANYOF, "nearof": Rule.NEAROF, "remoteof": Rule.REMOTEOF}


@dataclass(frozen=True, slots=True)
class Choice:
    """How sources are chosen among those that qualify: `count` of them, by a rule, within a radius in metres."""

    rule: Rule
    radius: float = math.inf
    count: int = 1


def choice_of(query: Query) -> Choice:
    """What a checked query of the bind plan says about that."""
    match query.select.function, query.location:
        case str(function), RangLoc(radius):
            return Choice(_RULES[function], radius)
        case _, Nearest(count):
            return Choice(Rule.NEAREST, count=count)
        case _:
            raise ValueError("not a checked query of the bind plan")


class Group:
    """The sources that satisfy a condition on their attributes, wherever they are: shared by agents that have it.

    `sources` are their ids, and `unplaced` those of them of which it is not known where they are. Each has one of the
    attributes in `anchors`, if there are any. `handle` is the group's number in the watch, `agents` how many share it.
    """

    def __init__(self, condition: Condition | None, handle: int) -> None:
        self.condition: Final = condition
        self.anchors: Final = _anchors(condition)
        self.handle: Final = handle
        self.sources: set[str] = set()
        self.unplaced: set[str] = set()
        self.agents = 0

    def admits(self, attributes: Attributes) -> bool:
        """Whether a source with these attributes qualifies but for its location."""
        return self.condition is None or holds(self.condition, attributes)


class Agent:
    """Serves the subscriptions of one source expression, which share the sources that qualify, not the choice.

    `members` is how many it serves. Which, and in what state, is in the table of requirements: there a subscription
    has one state, so that a bound one is active or inactive and never both (definition 5).
    """

    def __init__(self, query: Query, group: Group) -> None:
        self.expression: Final = query.expression_key
        self.choice: Final = choice_of(query)
        self.group: Final = group
        self.members = 0

    def follow(self, state: SubscriptionState, *, lost: bool, found: bool) -> tuple[Operation, ...]:
        """The operations that follow when a subscription's source no longer fits (`lost`) or it has one (`found`)."""
        if state is SubscriptionState.ACTIVE and lost:
            return (Operation.INACTIVE, Operation.ACTIVE) if found else (Operation.INACTIVE,)
        if state is SubscriptionState.ACTIVE or not found:
            return ()
        return (Operation.JOIN,) if state is SubscriptionState.START else (Operation.ACTIVE,)


def _anchors(condition: Condition | None) -> tuple[tuple[str, Attribute], ...]:
    """Attributes of which whatever satisfies a condition has one; none when the condition does not tell."""
    for part in conjuncts(condition) if condition is not None else ():
        match part:
            case Compare(variable, "=", value):
                return ((variable.name or "", value.value),)
            case In(variable, values):
                return tuple(dict.fromkeys((variable.name or "", value.value) for value in values))
            case _:
                pass
    return ()
