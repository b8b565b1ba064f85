"""Counts of what tasks did, added up by Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pyspark.accumulators import Accumulator, AccumulatorParam

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Tally", "TallyAccumulator", "new_tally"]


class Tally(NamedTuple):
    """Events, those of them that are bad rows, and matches.

    Spark counts each task of a job's last stage once, also if it is repeated. So counts are exact for frames that are
    written without a shuffle.
    """

    events: int = 0
    bad: int = 0
    matches: int = 0


class _Sums(AccumulatorParam[Tally]):
    def zero(self, value: Tally) -> Tally:
        return Tally()

    def addInPlace(self, value1: Tally, value2: Tally) -> Tally:  # noqa: N802 - Spark's name
        return Tally(*(one + other for one, other in zip(value1, value2, strict=True)))


if TYPE_CHECKING:
    TallyAccumulator: TypeAlias = Accumulator[Tally]
else:
    TallyAccumulator = Accumulator


def new_tally(spark: SparkSession) -> TallyAccumulator:
    return spark.sparkContext.accumulator(Tally(), _Sums())
