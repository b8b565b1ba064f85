"""Fixtures that more than one package of tests needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import databases
import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# No deadline: a test must not depend on the speed of the machine. `tests/support/profiles.py` scales these sizes.
_ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("suite", _ANY_SPEED, max_examples=50, stateful_step_count=30)
settings.register_profile("soak", _ANY_SPEED, max_examples=1_000, stateful_step_count=60)
settings.load_profile("suite")


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
