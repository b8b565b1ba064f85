"""The binding agent: one for each source expression. It knows which sources qualify and whom it serves."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from roamcast.bind.kernels.layout import Rule
from roamcast.bind.messages import Attributes
from roamcast.bind.states import Operation, State
from roamcast.lacl import Query, holds
from roamcast.lacl.conditions import Attribute
from roamcast.lacl.syntax import Compare, Condition, In, Nearest, RangLoc, conjuncts

__all__ = ["Agent", "Choice", "choice_of"]

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


class Agent:
    """Serves the subscriptions of one source expression, which share the sources that qualify, not the choice.

    `sources` are those whose attributes satisfy the expression, wherever they are, and `unplaced` those of them of
    which that is not known; each source has one of the attributes in `anchors`, if there are any. `members` are its
    subscriptions; the bound ones are `active` or `inactive`, never both (definition 5).
    """

    def __init__(self, query: Query, group: int) -> None:
        self.expression: Final = query.expression_key
        self.condition: Final = query.source_expression
        self.anchors: Final = _anchors(self.condition)
        self.choice: Final = choice_of(query)
        self.group: Final = group
        self.sources: set[str] = set()
        self.unplaced: set[str] = set()
        self.members: set[str] = set()
        self.active: set[str] = set()
        self.inactive: set[str] = set()

    def admits(self, attributes: Attributes) -> bool:
        """Whether a source with these attributes qualifies but for its location."""
        return self.condition is None or holds(self.condition, attributes)

    def follow(self, subscription: str, state: State, *, lost: bool, found: bool) -> Iterable[Operation]:
        """The operations that follow when a subscription's source no longer fits (`lost`) or it has one (`found`)."""
        operations = []
        if lost and state is State.ACTIVE:
            operations.append(Operation.INACTIVE)
            self.active.remove(subscription)
            self.inactive.add(subscription)
        if found and subscription not in self.active:
            operations.append(Operation.JOIN if state is State.START else Operation.ACTIVE)
            self.inactive.discard(subscription)
            self.active.add(subscription)
        return operations

    def quit(self, subscription: str) -> Operation:
        """It stays a member, of which the agent knows nothing until it starts anew."""
        self.active.discard(subscription)
        self.inactive.discard(subscription)
        return Operation.QUIT


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
