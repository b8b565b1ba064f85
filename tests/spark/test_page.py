"""The examples of docs/spark.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pages import ROOT, blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_the_examples_of_the_page(command_spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for block in blocks(ROOT / "docs" / "spark.md"):
        if block.language == "python":  # others need files
            exec(block.code, names)
    assert capsys.readouterr().out == "[(1, 12.5, 'downtown')]\n[Row(trip=1, fare=12.5, name='downtown')]\n"
