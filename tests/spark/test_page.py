"""The example of docs/spark.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pages import ROOT, blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_the_example_of_the_page(command_spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = (block.code for block in blocks(ROOT / "docs" / "spark.md") if block.language == "python")
    exec(code, {})
    assert capsys.readouterr().out == "[(1, 12.5, 'downtown')]\n"
