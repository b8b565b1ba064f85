"""The pipeline on a Spark standalone cluster: one master, two workers, each with a cache of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from batches import PureStream, placed
from spark_submit import EXPECTED, submit
from worlds import event, journal, letters, removal, subscription, town

from roamcast.journal.records import Record
from roamcast.lab.bench.processes import pipeline, until
from roamcast.lab.bench.standalone import StandaloneCluster, standalone
from roamcast.pipeline.state.manifests import StateFolder

pytestmark = pytest.mark.e2e

WORKERS = ("worker-0", "worker-1")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    folder = tmp_path_factory.mktemp("spark")
    with standalone(folder / "cluster", WORKERS, hidden=folder / "data") as cluster:
        yield cluster


@pytest.fixture
def cluster(started: StandaloneCluster) -> StandaloneCluster:
    """All workers run, with empty caches."""
    started.start_workers(WORKERS)
    started.clear_caches()
    return started


@pytest.fixture
def data(cluster: StandaloneCluster, tmp_path: Path) -> Path:
    """A data folder that workers do not see."""
    folder = cluster.hidden / tmp_path.name
    folder.mkdir()
    return folder


def subscriptions() -> list[Record]:
    boxes = [(n % 9 - 1, n % 5 - 1, n % 9 + 1.5, n % 5 + 1) for n in range(40)]
    return [subscription(f"s{n}", f"r{n % 4}", box, ("fire", f"t{n % 3}")[: 1 + n % 2]) for n, box in enumerate(boxes)]


def events(first: int, count: int) -> list[Record]:
    return [event("cam", n, n % 9, n % 5, ("fire", f"t{n % 4}")) for n in range(first, first + count)]


RECORDS: Sequence[Sequence[Record]] = (
    [*subscriptions(), *events(1, 100)],
    [*events(101, 100), removal("s3", "r3"), *events(201, 50)],
    events(251, 150),
)


@pytest.fixture(autouse=True)
def _every_batch_by_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver matches small batches itself otherwise."""
    monkeypatch.setenv("ROAMCAST_PIPELINE__DRIVER_EVENTS", "0")


@pytest.fixture
def expected(tmp_path: Path) -> list[tuple[str, int, str, str]]:
    return letters_of(tmp_path / "whole", RECORDS)


def letters_of(folder: Path, appends: Sequence[Sequence[Record]]) -> list[tuple[str, int, str, str]]:
    """The letters of the replicated plan in one process. Letters do not depend on where batches begin and end."""
    result = PureStream(folder).run(placed([record for records in appends for record in records]))
    rows = result.letters["local"].to_pylist()
    bodies = [orjson.loads(row["body"]) for row in rows]
    return sorted(
        (row["receiver"], row["number"], body["subscription"], body["event"]["id"])
        for row, body in zip(rows, bodies, strict=True)
    )


@pytest.mark.timeout(1_200)
def test_a_cluster_produces_the_letters_of_one_machine(
    cluster: StandaloneCluster, expected: list[tuple[str, int, str, str]], data: Path
) -> None:
    """Workers fetch state into their caches; the one of two that has work is killed while events arrive."""
    journal(data, RECORDS[0])
    arguments = ("--master", cluster.master, "--plan", "partitioned", "--workers", "3", "--records", "150")
    with pipeline(data, *arguments):
        until(lambda: bool(letters(data)), 240, "the first letters")
        assert len(letters(data)) < len(expected)
        busy, other = sorted(WORKERS, key=cluster.has_fetched, reverse=True)
        assert cluster.has_fetched(busy)
        journal(data, *RECORDS[1:])
        cluster.kill(busy)
        until(lambda: len(letters(data)) >= len(expected), 240, "all letters")
    assert sorted(letters(data)) == expected
    assert cluster.has_fetched(other)


@pytest.mark.timeout(1_200)
def test_categories_are_merged_and_moved_while_processes_die(
    cluster: StandaloneCluster, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every batch merges categories and most move some. A worker is killed in one of them, the driver in another."""
    settings = {"DRTCLUSTER__C_MAX_NUM_TH": "4", "DRTCLUSTER__OVERLOAD": "1", "PIPELINE__LAMBDA_EVENTS": "20"}
    for name, value in settings.items():
        monkeypatch.setenv(f"ROAMCAST_{name}", value)
    appends = [town(seed, 60, 60 * seed) for seed in range(9)]
    expected = letters_of(tmp_path / "whole", appends)
    journal(data, *appends[:1])
    arguments = ("--master", cluster.master, "--plan", "partitioned", "--workers", "3", "--records", "60")
    with pipeline(data, *arguments, "--partitioner", "drtcluster") as driver:
        until(lambda: bool(letters(data)), 240, "the first letters")
        journal(data, *appends[1:5])
        wait_for_batch(data, 1)
        cluster.kill(max(WORKERS, key=cluster.has_fetched))
        wait_for_batch(data, 4)
        journal(data, *appends[5:])
        wait_for_batch(data, 5)
        driver.kill()
        driver.start()
        until(lambda: len(letters(data)) >= len(expected), 240, "all letters")
    assert sorted(letters(data)) == expected
    manifest = StateFolder(data / "pipeline" / "state").newest()
    assert manifest is not None
    assert manifest.index.sharded is not None
    values = manifest.index.sharded.partitioning.values
    assert min(values["merges"], values["moved"], values["balanced"]) > 0


@pytest.mark.timeout(1_200)
def test_tasks_that_run_twice_make_each_letter_once(
    cluster: StandaloneCluster,
    expected: list[tuple[str, int, str, str]],
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Workers pause in turn, so Spark starts their tasks again elsewhere; then both attempts end."""
    settings, log = tmp_path / "settings", tmp_path / "log"
    for folder in (settings, log):
        folder.mkdir()
    options = {
        "speculation": "true", "speculation.interval": "20ms", "speculation.quantile": "0.1",
        "speculation.multiplier": "1.1", "eventLog.enabled": "true", "eventLog.dir": log.as_uri(),
        "eventLog.rolling.enabled": "false", "eventLog.compress": "false",
    }  # fmt: skip
    lines = [f"spark.{name} {value}\n" for name, value in options.items()]
    (settings / "spark-defaults.conf").write_text("".join(lines))
    monkeypatch.setenv("SPARK_CONF_DIR", str(settings))
    journal(data, *RECORDS)
    arguments = ("--master", cluster.master, "--plan", "partitioned", "--workers", "3", "--records", "40")
    with pipeline(data, *arguments):
        until(lambda: bool(letters(data)), 240, "the first letters")
        for worker in WORKERS * 3:
            cluster.signal(worker, signal.SIGSTOP)
            time.sleep(2.0)
            cluster.signal(worker, signal.SIGCONT)
            time.sleep(1.0)
        until(lambda: len(letters(data)) >= len(expected), 240, "all letters")
        assert sorted(letters(data)) == expected
    assert any('"Speculative":true' in path.read_text() for path in log.iterdir())


@pytest.mark.timeout(600)
def test_data_frames_are_matched_without_a_shared_disk(cluster: StandaloneCluster, tmp_path: Path) -> None:
    """The index is in a folder that workers cannot see. The call is the one for a single machine."""
    found = submit(cluster.hidden, cluster.master, Path(sys.executable), {"PYTHONPATH": os.pathsep.join(sys.path)})
    del found["package"]
    assert found == EXPECTED


@pytest.mark.timeout(600)
def test_roamcast_match_explains_what_a_cluster_did(cluster: StandaloneCluster, tmp_path: Path) -> None:
    """The index is sent to each worker that has tasks; figures are those of the run."""
    for number in range(4):
        columns = {"x": [float(x % 9) for x in range(100)], "y": [1.0] * 100, "event_id": [*range(100)]}
        (tmp_path / "events").mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), tmp_path / "events" / f"{number}.parquet")
    (tmp_path / "boxes.csv").write_text("subscription_id,min_x,min_y,max_x,max_y\na,0,0,2,2\nb,5,0,5,9\n")
    command = [sys.executable, "-m", "roamcast", "match", "--events", "events", "--subscriptions", "boxes.csv"]
    options = ["--out", "out", "--terms", "", "--subscription-terms", "", "--explain", "--json", "--master"]
    process = subprocess.run(
        [*command, *options, cluster.master],
        cwd=tmp_path, env={**os.environ, "TMPDIR": str(cluster.hidden)}, capture_output=True, check=False, text=True,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    figures = json.loads(process.stdout)
    explained = figures["explain"]
    assert figures["matches"] == explained["per_task"]["matches"]["total"] == 4 * (12 + 11 + 11 + 11)
    assert (explained["subscriptions"], explained["per_task"]["events"]["total"]) == (2, 400)
    assert explained["executors"] in (1, 2)
    assert explained["shipped_bytes"] == explained["executors"] * explained["index_bytes"] > 0
    assert "; Spark sends it to " in explained["plan"][0]


def wait_for_batch(data: Path, batch: int) -> None:
    """Wait until a batch is committed. If there are more records, the next one begins at once."""
    until(lambda: (data / "pipeline" / "state" / f"{batch}.json").exists(), 240, f"batch {batch}")
