"""Evaluates conditions for one entity or event at a time.

Logic has two values. A test of a missing variable is false, and so is a test that compares a string, a number or a
boolean with a value of another type; `not` of such a test is true. So `&a != 1` and `not &a = 1` differ: the first
requires that `a` exists and is another number.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeAlias

from roamcast.lacl.syntax import (
    And,
    Between,
    Compare,
    Condition,
    Has,
    In,
    Inside,
    Literal,
    Not,
    Operator,
    Or,
    Region,
    Variable,
    leaves,
)

__all__ = ["COMPARISONS", "Attribute", "holds", "may_hold", "variable_names"]

Attribute: TypeAlias = str | float | bool

COMPARISONS: Final[Mapping[Operator, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def holds(
    condition: Condition,
    attributes: Mapping[str, Attribute],
    *,
    context: str | None = None,
    terms: AbstractSet[str] = frozenset(),
    inside: Callable[[Region], bool] | None = None,
) -> bool:
    """Evaluate a condition on one source, reading or subscriber.

    `attributes` has the values of the variables; NaN counts as missing. `context` is the name of the reading that plain
    `@` refers to. `terms` are the terms of the event, for `has`. `inside` decides whether a region contains the entity;
    without it, every test of a region is false.
    """
    match condition:
        case And(operands):
            return all(holds(o, attributes, context=context, terms=terms, inside=inside) for o in operands)
        case Or(operands):
            return any(holds(o, attributes, context=context, terms=terms, inside=inside) for o in operands)
        case Not(operand):
            return not holds(operand, attributes, context=context, terms=terms, inside=inside)
        case Has(_, required):
            return all(term.value in terms for term in required)
        case Inside(_, region):
            return inside is not None and inside(region)
        case Compare(variable, sign, value):
            return _compare(_value(variable, attributes, context), sign, value)
        case In(variable, values):
            actual = _value(variable, attributes, context)
            return any(_compare(actual, "=", value) for value in values)
        case Between(variable, low, high):
            actual = _value(variable, attributes, context)
            return _compare(actual, ">=", low) and _compare(actual, "<=", high)


def may_hold(condition: Condition, attributes: Mapping[str, Attribute]) -> bool:
    """Whether a condition can hold for an event of a source whose terms and position are not known yet."""
    return _possible(condition, attributes) is not False


def _possible(condition: Condition, attributes: Mapping[str, Attribute]) -> bool | None:
    """Evaluate with three values; None means that it depends on the event."""
    match condition:
        case And(operands):
            results = {_possible(operand, attributes) for operand in operands}
            return False if False in results else None if None in results else True
        case Or(operands):
            results = {_possible(operand, attributes) for operand in operands}
            return True if True in results else None if None in results else False
        case Not(operand):
            result = _possible(operand, attributes)
            return None if result is None else not result
        case Has() | Inside():
            return None
        case _:
            return holds(condition, attributes)


def variable_names(condition: Condition) -> frozenset[str | None]:
    """Return the names of the variables in a condition; None stands for plain `@`."""
    return frozenset(test.variable.name for test in leaves(condition))


def _value(variable: Variable, attributes: Mapping[str, Attribute], context: str | None) -> Attribute | None:
    name = context if variable.name is None else variable.name
    return None if name is None else attributes.get(name)


def _compare(actual: Attribute | None, sign: Operator, value: Literal) -> bool:
    if actual is None or _type(actual) is not _type(value.value):
        return False
    if isinstance(actual, float) and math.isnan(actual):
        return False
    return bool(COMPARISONS[sign](actual, value.value))


def _type(value: Attribute) -> type:
    return type(value) if isinstance(value, str | bool) else float
