"""The examples of docs/spark.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pages import ROOT, blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def code(number: int) -> str:
    return [block.code for block in blocks(ROOT / "docs" / "spark.md") if block.language == "python"][number]


def test_the_examples_of_regions(command_spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """In a frame, by a query, and in SQL."""
    names: dict[str, Any] = {}
    for number in (0, 1, 3):
        exec(code(number), names)
    out = "[(1, 12.5, 'downtown')]\n[(1, 'dear')]\n[Row(trip=1, fare=12.5, name='downtown')]\n"
    assert capsys.readouterr().out == out


def test_the_example_of_bindings(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a subscription with a condition on readings."""
    query = "Select Where &context = noise and &location in nearest On @ > 5"
    names: dict[str, Any] = {
        "wanted": spark.createDataFrame([("quiet", "ann", query)], "name string, subscriber string, query string"),
        "source_tracks": spark.sql("SELECT 'm' AS source, 1 AS time, 0 AS x, 0 AS y, 'noise' AS context"),
        "subscriber_tracks": spark.sql("SELECT 'ann' AS subscriber, 2 AS time, 0 AS x, 1 AS y"),
        "events": spark.sql(
            "SELECT explode(array(1, 2, 3)) AS event, 'm' AS source, event AS time, 'noise' AS context, "
            "map('noise', event * 2.5D) AS readings"
        ),
    }
    exec(code(2), names)
    assert "|quiet|     m|    2|NULL|      false|" in capsys.readouterr().out
    assert [tuple(row) for row in names["matches"].collect()] == [(3, "quiet")]
