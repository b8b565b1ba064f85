"""Problems of rows: how they are recorded and reported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from roamcast.errors import InputError

__all__ = [
    "PROBLEM",
    "OnBadRows",
    "Problems",
    "check_choice",
    "describe_row",
    "good_rows",
    "problem_column",
    "quote_value",
]

OnBadRows: TypeAlias = Literal["fail", "skip", "collect"]

Problems: TypeAlias = dict[int, str]
"""The first problem of each bad row, by its number. Add to it with `setdefault`."""

PROBLEM: Final = "problem"
"""The column with the problem of a bad row."""

_SHOWN: Final = 200  # characters of a row in a message


class BadRowError(InputError):
    """A row is bad, and the job fails because of it."""


def good_rows(problems: Problems, count: int) -> npt.NDArray[np.bool_]:
    """Which of `count` rows have no problem."""
    good = np.ones(count, np.bool_)
    good[list(problems)] = False
    return good


def problem_column(problems: Problems, rows: Iterable[int]) -> pa.Array:
    return pa.array([problems.get(row) for row in rows], pa.string())


def quote_value(value: object) -> str:
    """A value for a message, shortened to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def describe_row(names: Sequence[str], columns: Iterable[pa.Array | pa.ChunkedArray], row: int) -> str:
    """The values of a row for a message, shortened."""
    return describe_values({name: column[row].as_py() for name, column in zip(names, columns, strict=True)})


def describe_values(values: Mapping[str, Any]) -> str:
    """Named values for a message, shortened."""
    text = ", ".join(f"{name}={quote_value(value)}" for name, value in values.items())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raises InputError for a value that is not one of the choices."""
    if value not in choices:
        raise InputError(f"{name} must be {' or '.join(map(repr, choices))}, not {value!r}", hint="check the argument")
