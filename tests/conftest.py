"""Fixtures that more than one package of tests needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import databases
import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What a test says must not depend on how fast a machine is.
settings.register_profile("roamcast", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("roamcast")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for all tests that need one."""
    from roamcast.pipeline.query.session import session

    spark = session("roamcast-tests")
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a PostgreSQL database, of a server that runs for as long as the tests do."""
    try:
        server = databases.postgresql()
        url = server.__enter__()
    except databases.NotAvailableError as reason:
        pytest.skip(f"no PostgreSQL: {reason}")
    yield url
    server.__exit__(None, None, None)
