"""Fixtures that several packages of tests share, the hypothesis profiles, and how tests are spread over processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import databases
import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadGroupScheduling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS = Path(__file__).parent

# No deadline: a test must not depend on the speed of the machine. `tests/support/profiles.py` scales these sizes.
_ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("suite", _ANY_SPEED, max_examples=50, stateful_step_count=30)
settings.register_profile("soak", _ANY_SPEED, max_examples=1_000, stateful_step_count=60)
settings.load_profile("suite")

# Tests that wait for other processes run beside tests that compute: the first two groups start on different workers.
_FIRST = ("processes", "spark", "postgresql")


def _group(item: pytest.Item) -> str | None:
    """The group of tests that must share a process, because they share something that is slow to start."""
    if "spark" in getattr(item, "fixturenames", ()):
        return "spark"
    if item.get_closest_marker("e2e"):
        return "processes"
    if item.path.is_relative_to(TESTS / "store") or "postgresql" in getattr(item, "fixturenames", ()):
        return "postgresql"
    return None


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the groups first: a long group that starts late would leave the other worker idle."""
    groups = {item: _group(item) for item in items}
    for item, group in groups.items():
        if group:
            item.add_marker(pytest.mark.xdist_group(group))
    ranks = {group: rank for rank, group in enumerate(_FIRST)}
    items.sort(key=lambda item: ranks.get(groups[item] or "", len(ranks)))


class _GroupsAndFiles(LoadGroupScheduling):
    """Keeps groups together, and otherwise the tests of a file: they share the fixtures of their module."""

    def _split_scope(self, nodeid: str) -> str:
        return super()._split_scope(nodeid).partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadGroupScheduling | None:
    return _GroupsAndFiles(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for all tests that need one, set up as the pipeline's own."""
    from roamcast.pipeline.query.session import LOCAL_CHECKPOINT, session

    spark = session("roamcast-tests", options=LOCAL_CHECKPOINT)
    yield spark
    spark.stop()


@pytest.fixture
def command_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """The shared session, for commands that run in the test process: they use it and do not stop it."""
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    return spark


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a PostgreSQL database, of a server that runs as long as the tests do."""
    try:
        server = databases.postgresql()
        url = server.__enter__()
    except databases.NotAvailableError as reason:
        pytest.skip(f"no PostgreSQL: {reason}")
    yield url
    server.__exit__(None, None, None)
