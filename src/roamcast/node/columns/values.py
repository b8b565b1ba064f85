"""Columns of plain JSON values. TypeError, ValueError or OverflowError: at least one value is not plainly good.

The checks are those of the fields in `schemas`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from roamcast.node.columns.arrays import NO_TIME, Floats, Integers, checked_sequence, read_times
from roamcast.node.schemas import micros

__all__ = ["column", "floats", "sequence_numbers", "texts", "times"]

_TEXTS: Final[frozenset[type]] = frozenset({str, type(None)})
_NUMBERS: Final[frozenset[type]] = frozenset({float, int})
_INTEGERS: Final[frozenset[type]] = frozenset({int, type(None)})
_TIMES: Final[frozenset[type]] = frozenset({str, float, int, type(None)})


def column(rows: Sequence[dict[str, Any]], name: str, default: object = None) -> list[Any]:
    return [row.get(name, default) for row in rows]


def texts(values: Sequence[Any]) -> pa.StringArray:
    """Null stays null."""
    _check_types(values, _TEXTS)
    return pa.array(values, pa.string())


def floats(values: Sequence[Any]) -> Floats:
    """Without null. NaN, which JSON does not have, means that there is no value."""
    _check_types(values, _NUMBERS)
    return np.array(values, np.float64)


def sequence_numbers(values: Sequence[Any]) -> Integers:
    """0 for null."""
    _check_types(values, _INTEGERS)
    given = np.array([value is not None for value in values], np.bool_)
    return checked_sequence(np.array([value or 0 for value in values], np.int64), given)


def times(values: Sequence[Any]) -> Integers:
    """Microseconds since 1970, NO_TIME for null."""
    if _TEXTS.issuperset(map(type, values)):
        return read_times(pa.array(values, pa.string()))
    _check_types(values, _TIMES)
    return np.array([NO_TIME if value is None else micros(value) for value in values], np.int64)


def _check_types(values: Sequence[Any], types: frozenset[type]) -> None:
    if not types.issuperset(map(type, values)):
        raise TypeError
