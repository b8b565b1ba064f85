"""Matching of data frames, the public API for Spark: see docs/spark.md."""

from roamcast.spark.compiled import CompiledSubscriptions, compile
from roamcast.spark.matching import match

__all__ = ["CompiledSubscriptions", "compile", "match"]
