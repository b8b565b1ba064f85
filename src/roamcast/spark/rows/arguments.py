"""Checks of what a program passes to `compile` and `match`, before anything is read."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from roamcast.errors import InputError
from roamcast.spark.rows.problems import quote_value

__all__ = ["check_column_list", "check_column_names", "check_frame"]


def check_frame(value: object, argument: str) -> None:
    """Raises InputError for what is not a data frame of Spark."""
    if not isinstance(value, DataFrame):
        kind = f"{type(value).__module__.partition('.')[0]}.{type(value).__name__}"
        hint = "pass a data frame of Spark; spark.createDataFrame makes one of a table of pandas or Arrow"
        raise InputError(f"a {kind} is not a data frame of Spark", where=argument, hint=hint)
    if not hasattr(value.sparkSession, "_jsparkSession"):
        hint = "use a session of its own, with a master instead of a remote"
        raise InputError("Spark Connect is not supported", where=argument, hint=hint)


def check_column_names(**names: str | None) -> None:
    """Raises InputError for an argument that must be the name of a column, or None, and is something else."""
    for argument, name in names.items():
        if name is not None and not isinstance(name, str):
            raise InputError(f"not the name of a column: {quote_value(name)}", where=argument, hint="pass a text")


def check_column_list(names: Sequence[str] | None, argument: str, *, count: int | None = None) -> None:
    """Raises InputError for what is not a list of names, or not of so many."""
    if names is None:
        return
    is_list = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    if not is_list or (count is not None and len(names) != count):
        wanted = "a list of names" if count is None else f"{count} names"
        raise InputError(f"not {wanted}: {quote_value(names)}", where=argument, hint="pass a list")
