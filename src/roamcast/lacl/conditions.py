"""Whether a condition holds, for one thing at a time or for whole columns of readings.

Logic has two values. A test of something that is missing is false, and so is a test that compares a text, a
number or a truth value with one of another kind; `not` of such a test is true. Hence `&a != 1` and `not &a = 1`
differ: the first says that there is an `a`, and that it is another number.
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

__all__ = ["Attribute", "Truths", "holds", "holds_rows", "may_hold", "names_of"]

Attribute: TypeAlias = str | float | bool
Truths: TypeAlias = npt.NDArray[np.bool_]

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

    `attributes` are what the variables name; a NaN counts as missing. `context` is the name of the reading that
    plain `@` means. `terms` answer `has`. `inside` answers `in` a region; without it no region holds anything.
    """
    match condition:
        case And(operands):
            return all(holds(o, attributes, context=context, terms=terms, inside=inside) for o in operands)
        case Or(operands):
            return any(holds(o, attributes, context=context, terms=terms, inside=inside) for o in operands)
        case Not(operand):
            return not holds(operand, attributes, context=context, terms=terms, inside=inside)
        case Has(_, wanted):
            return all(term.value in terms for term in wanted)
        case Inside(_, region):
            return inside is not None and inside(region)
        case Compare(variable, sign, value):
            return _compare(_value(variable, attributes, context), sign, value)
        case In(variable, values):
            given = _value(variable, attributes, context)
            return any(_compare(given, "=", value) for value in values)
        case Between(variable, low, high):
            given = _value(variable, attributes, context)
            return _compare(given, ">=", low) and _compare(given, "<=", high)


def may_hold(condition: Condition, attributes: Mapping[str, Attribute]) -> bool:
    """Whether a condition on a source could hold for an event of it: terms and places are not known before."""
    return _possible(condition, attributes) is not False


def _possible(condition: Condition, attributes: Mapping[str, Attribute]) -> bool | None:
    """None: that depends on the event."""
    match condition:
        case And(operands):
            found = {_possible(operand, attributes) for operand in operands}
            return False if False in found else None if None in found else True
        case Or(operands):
            found = {_possible(operand, attributes) for operand in operands}
            return True if True in found else None if None in found else False
        case Not(operand):
            within = _possible(operand, attributes)
            return None if within is None else not within
        case Has() | Inside():
            return None
        case _:
            return holds(condition, attributes)


def holds_rows(condition: Condition, readings: Mapping[str, Floats], contexts: Sequence[str | None]) -> Truths:
    """Evaluate a condition on readings for many rows at once: what `holds` says of each.

    `readings` has a column per name, NaN where a row lacks it; a name without a column is missing everywhere.
    `contexts` has, for each row, the name of the reading that plain `@` means.
    """
    rows = len(contexts)
    columns: dict[str | None, Floats] = {name: np.asarray(column, np.float64) for name, column in readings.items()}
    if None in names_of(condition):
        columns[None] = _plain(columns, np.asarray(contexts, np.object_))
    return _rows(condition, columns, rows)


def names_of(condition: Condition) -> frozenset[str | None]:
    """The names of the variables that a condition tests; None stands for plain `@`."""
    return frozenset(test.variable.name for test in leaves(condition))


def _value(variable: Variable, attributes: Mapping[str, Attribute], context: str | None) -> Attribute | None:
    name = context if variable.name is None else variable.name
    return None if name is None else attributes.get(name)


def _compare(given: Attribute | None, sign: Operator, value: Literal) -> bool:
    if given is None or _kind(given) is not _kind(value.value):
        return False
    if isinstance(given, float) and math.isnan(given):
        return False
    return bool(_COMPARISONS[sign](given, value.value))


def _kind(value: Attribute) -> type:
    return type(value) if isinstance(value, str | bool) else float


def _rows(condition: Condition, columns: Mapping[str | None, Floats], rows: int) -> Truths:
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


def _compare_rows(column: Floats | None, sign: Operator, value: Literal, rows: int) -> Truths:
    if column is None or not isinstance(value, Number):
        return np.zeros(rows, np.bool_)
    truths: Truths = _COMPARISONS[sign](column, value.value)
    # NaN is missing; of all comparisons only this one holds for it.
    return truths & ~np.isnan(column) if sign == "!=" else truths


def _plain(columns: Mapping[str | None, Floats], contexts: npt.NDArray[np.object_]) -> Floats:
    plain = np.full(len(contexts), math.nan)
    for name, column in columns.items():
        plain = np.where(contexts == name, column, plain)
    return plain
