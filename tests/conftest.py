"""Fixtures that several packages of tests share, the hypothesis profiles, and how tests are spread over processes."""

from __future__ import annotations

import os
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

# A JVM that lives for seconds starts sooner without optimising compiler and verifier. Child processes inherit this.
_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
for _name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(_name, _QUICK_JVM)

# The longest units come first, and both workers take the next one when they have done theirs.
_FIRST = ("spark", "e2e", "postgresql")


def _rank(item: pytest.Item, group: str | None) -> int:
    """Files that start processes come after the group that is longest, and before all that is short."""
    name = "e2e" if not group and item.get_closest_marker("e2e") else group
    return _FIRST.index(name) if name else len(_FIRST)


def _group(item: pytest.Item) -> str | None:
    """The group of tests that must share a process, because they share something that is slow to start."""
    if "spark" in getattr(item, "fixturenames", ()):
        return "spark"
    if item.path.is_relative_to(TESTS / "store") or "postgresql" in getattr(item, "fixturenames", ()):
        return "postgresql"
    return None


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run long units first: one that starts late would leave the other worker idle."""
    groups = {item: _group(item) for item in items}
    for item, group in groups.items():
        if group:
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: _rank(item, groups[item]))


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
