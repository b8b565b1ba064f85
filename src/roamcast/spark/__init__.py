"""The public API for Spark: matching of data frames (docs/spark.md) and backtests (docs/backtest.md)."""

from roamcast.spark.backtest import backtest
from roamcast.spark.bindings import Bindings, bindings
from roamcast.spark.compiled import CompiledSubscriptions, compile
from roamcast.spark.geoparquet import read_geoparquet, write_geoparquet
from roamcast.spark.matching import match
from roamcast.spark.sql import register

__all__ = [
    "Bindings", "CompiledSubscriptions", "backtest", "bindings", "compile", "match", "read_geoparquet", "register",
    "write_geoparquet",
]  # fmt: skip
