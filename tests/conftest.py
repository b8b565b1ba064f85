"""Fixtures that more than one package of tests needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for all tests that need one."""
    from roamcast.pipeline.session import session

    spark = session("roamcast-tests")
    yield spark
    spark.stop()
