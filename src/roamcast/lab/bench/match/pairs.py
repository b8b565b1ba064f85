"""Pairs of ids that programs and queries find: comparing them, and the sink in which measured queries end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["EVENT", "SUBSCRIPTION", "consume", "count_differences", "pair_keys", "sums"]

EVENT: Final = "event_id"
SUBSCRIPTION: Final = "subscription_id"

Integers = npt.NDArray[np.int64]


def sums(*columns: str) -> list[str]:
    """The sink of every query, in SQL: it needs these columns of each row."""
    return ["count(*) AS pairs", *(f"sum({column}) AS {column}" for column in columns)]


def consume(frame: DataFrame, *columns: str) -> int:
    """Compute all rows with these columns in Spark, and return how many there are."""
    return int(frame.selectExpr(*sums(*columns)).collect()[0][0])


def pair_keys(pairs: pa.Table, subscriptions: int) -> Integers:
    """A number for each pair."""
    event, subscription = (pairs.column(name).to_numpy().astype(np.int64) for name in (EVENT, SUBSCRIPTION))
    keys: Integers = event * np.int64(subscriptions) + subscription
    return keys


def count_differences(one: Integers, other: Integers) -> int:
    """Count the pairs that only one side has, and those that one side has twice."""
    twice = sum(len(keys) - len(np.unique(keys)) for keys in (one, other))
    return len(np.setxor1d(one, other)) + twice
