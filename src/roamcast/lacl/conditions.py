"""Evaluates conditions, for one entity or event at a time or for columns of readings.

Logic has two values. A test of a missing variable is false, and so is a test that compares a string, a number or a
boolean with a value of another type; `not` of such a test is true. So `&a != 1` and `not &a = 1` differ: the first
requires that `a` exists and is another number.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

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
    Number,
    Operator,
    Or,
    Region,
    Variable,
    leaves,
)
from roamcast.space import Floats

__all__ = ["Attribute", "BoolArray", "holds", "holds_rows", "may_hold", "variable_names"]

Attribute: TypeAlias = str | float | bool
BoolArray: TypeAlias = npt.NDArray[np.bool_]

_COMPARISONS: Final[Mapping[Operator, Callable[[Any, Any], Any]]] = {
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


def holds_rows(condition: Condition, readings: Mapping[str, Floats], contexts: Sequence[str | None]) -> BoolArray:
    """Evaluate a condition on readings for many rows at once, with the same results as `holds`.

    `readings` has a column for each name, with NaN where a row has no such reading. A name without a column is missing
    in every row. `contexts` has, for each row, the name of the reading that plain `@` refers to.
    """
    rows = len(contexts)
    columns: dict[str | None, Floats] = {name: np.asarray(column, np.float64) for name, column in readings.items()}
    if None in variable_names(condition):
        columns[None] = _plain(columns, np.asarray(contexts, np.object_))
    return _rows(condition, columns, rows)


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
    return bool(_COMPARISONS[sign](actual, value.value))


def _type(value: Attribute) -> type:
    return type(value) if isinstance(value, str | bool) else float


def _rows(condition: Condition, columns: Mapping[str | None, Floats], rows: int) -> BoolArray:
    match condition:
        case And(operands):
            return functools.reduce(operator.and_, [_rows(o, columns, rows) for o in operands])
        case Or(operands):
            return functools.reduce(operator.or_, [_rows(o, columns, rows) for o in operands])
        case Not(operand):
            return ~_rows(operand, columns, rows)
        case Compare(variable, sign, value):
            return _compare_rows(columns.get(variable.name), sign, value, rows)
        case In(variable, values):
            column = columns.get(variable.name)
            return functools.reduce(operator.or_, [_compare_rows(column, "=", value, rows) for value in values])
        case Between(variable, low, high):
            column = columns.get(variable.name)
            return _compare_rows(column, ">=", low, rows) & _compare_rows(column, "<=", high, rows)
        case Has() | Inside():
            return np.zeros(rows, np.bool_)


def _compare_rows(column: Floats | None, sign: Operator, value: Literal, rows: int) -> BoolArray:
    if column is None or not isinstance(value, Number):
        return np.zeros(rows, np.bool_)
    truths: BoolArray = _COMPARISONS[sign](column, value.value)
    # NaN means missing, and only != is true for NaN.
    return truths & ~np.isnan(column) if sign == "!=" else truths


def _plain(columns: Mapping[str | None, Floats], contexts: npt.NDArray[np.object_]) -> Floats:
    plain = np.full(len(contexts), math.nan)
    for name, column in columns.items():
        plain = np.where(contexts == name, column, plain)
    return plain
