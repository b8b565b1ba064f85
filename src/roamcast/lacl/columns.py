"""Evaluates conditions on columns of readings."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from roamcast.lacl.conditions import COMPARISONS, variable_names
from roamcast.lacl.syntax import And, Between, Compare, Condition, Has, In, Inside, Literal, Not, Number, Operator, Or
from roamcast.space import Floats

__all__ = ["BoolArray", "holds_rows"]

BoolArray: TypeAlias = npt.NDArray[np.bool_]


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
    truths: BoolArray = COMPARISONS[sign](column, value.value)
    # NaN means missing, and only != is true for NaN.
    return truths & ~np.isnan(column) if sign == "!=" else truths


def _plain(columns: Mapping[str | None, Floats], contexts: npt.NDArray[np.object_]) -> Floats:
    plain = np.full(len(contexts), math.nan)
    for name, column in columns.items():
        plain = np.where(contexts == name, column, plain)
    return plain
