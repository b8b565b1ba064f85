"""Fixtures that several packages of tests share, the hypothesis profiles, and how tests are spread over processes."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import databases
import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TESTS = Path(__file__).parent

# Most of what tests allocate until all are collected stays. To look for garbage in it takes a tenth of their time.
gc.disable()

# Files are in memory where there is room for them, which is a tenth of this. To a process that is killed it makes no
# difference whether what it has written is on a disk, and tests would wait for thousands of syncs.
_MEMORY_DISK = Path("/dev/shm")
if "TMPDIR" not in os.environ and _MEMORY_DISK.is_dir() and shutil.disk_usage(_MEMORY_DISK).free > 2 << 30:
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY_DISK)

# No deadline: a test must not depend on the speed of the machine. `tests/support/profiles.py` scales these sizes.
_ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("suite", _ANY_SPEED, max_examples=50, stateful_step_count=30)
settings.register_profile("soak", _ANY_SPEED, max_examples=1_000, stateful_step_count=60)
settings.load_profile("suite")

# A JVM that lives for seconds starts sooner without optimising compiler and verifier. Child processes inherit this.
# `make test` writes the archive of classes (see tests/support/spark_archive.py).
_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
_ARCHIVE = TESTS.parent / ".venv" / "spark.jsa"
if _ARCHIVE.exists() and " " not in str(_ARCHIVE):
    _QUICK_JVM += f" -XX:SharedArchiveFile={_ARCHIVE} -Xlog:cds=off -Xlog:cds+dynamic=off"
for _name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(_name, _QUICK_JVM)

# Pipelines of tests seldom have a large batch. Those that have one start Spark's Python processes for it.
os.environ.setdefault("ROAMCAST_PIPELINE__KEEP_WARM", "false")

# Files whose tests share something slow to start run in one process. The longest come first, and all workers take the
# next file when they have done theirs. (The mark `xdist_group` has no effect with pytest 9.2: it sets a private name.)
_GROUPS = {
    "spark": (
        "tests/pipeline/query/test_stream.py", "tests/pipeline/query/test_stream_partitioned.py",
        "tests/pipeline/query/test_stream_storage.py", "tests/pipeline/query/test_stream_archive.py",
        "tests/pipeline/query/test_stream_histories.py",
        "tests/pipeline/letters/test_job.py", "tests/pipeline/tasks/test_memory.py", "tests/cli/test_run_pipeline.py",
        "tests/e2e/test_conference.py", "tests/e2e/test_federation.py",
        "tests/e2e/test_relief.py", "tests/e2e/test_walk.py", "tests/docs/test_readme.py",
        "tests/lab/bench/federation/test_bench.py", "tests/lab/bench/saturation/test_cluster.py",
    ),
    "frames": (
        "tests/spark/", "tests/cli/test_batch.py", "tests/docs/test_backtest.py", "tests/lab/bench/match/",
        "tests/lab/experiments/test_replications.py", "tests/lab/test_batches.py",
    ),
    "postgresql": ("tests/store/", "tests/pipeline/query/test_takeover.py"),
    # They share nothing, but mostly wait. One after the other, they leave the cores to the other processes.
    "waiting": ("tests/node/test_health.py", "tests/node/peers/", "tests/node/http/test_home_route.py"),
}  # fmt: skip
# The groups whose tests may use a fixture. Each has a Spark session of its own: one would take longer than all else.
_SHARED = {"spark": ("spark", "frames"), "postgresql": ("postgresql",)}
# What takes longest, in this order; everything else comes later.
_LONG = (
    "tests/e2e/test_hosts.py", "frames", "waiting", "tests/e2e/", "tests/lab/torture/", "tests/node/http/test_page.py",
    "tests/pipeline/state/test_partitioning.py", "tests/bind/discovery/test_backbone.py", "tests/bind/lcesm/",
)  # fmt: skip
_FIRST = ("spark", *_LONG, "e2e", "postgresql")


def _group(nodeid: str) -> str | None:
    return next((group for group, files in _GROUPS.items() if nodeid.startswith(files)), None)


def _rank(item: pytest.Item) -> int:
    """Long files come after the group that is longest, then those that start processes, and then all that is short."""
    name = _group(item.nodeid) or next((path for path in _LONG if item.nodeid.startswith(path)), None)
    name = name or ("e2e" if item.get_closest_marker("e2e") else None)
    return _FIRST.index(name) if name else len(_FIRST)


@pytest.hookimpl(tryfirst=True)  # before anything that depends on the order
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run long files first: one that starts late would leave the others idle."""
    for item in items:
        for fixture in _SHARED.keys() & set(getattr(item, "fixturenames", ())):
            if _group(item.nodeid) not in _SHARED[fixture]:
                raise pytest.UsageError(f"{item.nodeid} uses {fixture}: add its file to _GROUPS in tests/conftest.py")
    items.sort(key=_rank)


def pytest_collection_finish() -> None:
    """Look for garbage from now on, but not in what there is by now."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


class _GroupsAndFiles(LoadScopeScheduling):
    """Keeps groups together, and otherwise the tests of a file: they share the fixtures of their module."""

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid) or nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    return _GroupsAndFiles(config, log) if config.getoption("dist") == "loadscope" else None


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark session for all tests that need one, set up as the pipeline's own."""
    from roamcast.pipeline.query.session import LOCAL_CHECKPOINT, session

    # Most plans of tests run once. To compile Java code for them takes longer than it saves.
    options = {**LOCAL_CHECKPOINT, "spark.sql.codegen.wholeStage": "false"}
    spark = session("roamcast-tests", options=options)
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
