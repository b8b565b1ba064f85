"""The pipeline on a Spark standalone cluster: one master, two workers, each with a cache of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson
import pytest
from batches import PureStream, placed
from clusters import StandaloneCluster, standalone
from worlds import event, journal, letters, removal, subscription

from roamcast.journal.records import Record
from roamcast.lab.bench.processes import pipeline, until

pytestmark = pytest.mark.e2e

WORKERS = ("worker-0", "worker-1")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    with standalone(tmp_path / "cluster", WORKERS, hidden=tmp_path / "data") as cluster:
        yield cluster


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


@pytest.fixture
def expected(tmp_path: Path) -> list[tuple[str, int, str, str]]:
    """The letters of the replicated plan in one process. Letters do not depend on where batches begin and end."""
    result = PureStream(tmp_path / "whole").run(placed([record for records in RECORDS for record in records]))
    rows = result.letters.by_office["local"].to_pylist()
    bodies = [orjson.loads(row["body"]) for row in rows]
    return sorted(
        (row["receiver"], row["number"], body["subscription"], body["event"]["id"])
        for row, body in zip(rows, bodies, strict=True)
    )


@pytest.mark.timeout(600)
def test_a_cluster_produces_the_letters_of_one_machine(
    cluster: StandaloneCluster, expected: list[tuple[str, int, str, str]], tmp_path: Path
) -> None:
    """Workers fetch state into their caches; the one of two that has work is killed while events arrive."""
    data = tmp_path / "data"
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
