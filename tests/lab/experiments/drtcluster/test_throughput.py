"""Timed throughput of partitioners, without Spark: tests/lab/test_batches.py has what runs on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roamcast.lab import batches
from roamcast.lab.experiments.drtcluster import throughput
from roamcast.lab.experiments.drtcluster.throughput import Configuration, configurations, measure_throughput
from roamcast.match.port import Events
from roamcast.pipeline.tasks.match_job import match_here


class LocalEvents:
    """Stands for a DataFrame of events."""

    def __init__(self, _: object, folder: Path, events: Events) -> None:
        folder.mkdir()
        self.events = events

    def count(self) -> int:
        return len(self.events.x)

    def unpersist(self) -> None:
        pass


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Match in this process; the first worker takes half a second, the second one more."""

    def match(self: Any, prepared: Any) -> Any:
        records = batches.event_records(self._events.events, self._last_offset)
        return match_here(records.to_batches(), prepared.context)

    monkeypatch.setattr(throughput, "write_events", LocalEvents)
    monkeypatch.setattr(batches.Batches, "match", match)
    monkeypatch.setattr(batches.Batches, "worker_seconds", lambda *_: [0.5, 1.5])


def test_partitioners_and_matchers_find_the_same(without_spark: None, tmp_path: Path) -> None:
    """With work of their own; the busiest worker limits the throughput by CPU time."""
    chosen = [Configuration(name, 2, most=0.1) for name in ("DRt-Cluster", "kd-tree")]
    progress: list[tuple[int, int]] = []
    spark: Any = None
    results = measure_throughput(spark, tmp_path, [1], 3_000, lambda *done: progress.append(done), chosen)
    rows = results["throughput"]
    assert [(row["partitioner"], row["matcher"]) for row in rows] == [
        (name, matcher) for name in ("DRt-Cluster", "kd-tree") for matcher in ("index", "one_by_one")
    ]
    assert len({row["matches"] for row in rows}) == 1
    assert all(row["events_per_cpu_s"] == 1_200 / 1.5 for row in rows)
    assert rows[3]["comparisons"] > rows[2]["comparisons"] > 0
    assert progress == [(0, 2), (1, 2), (2, 2)]
    assert not list(tmp_path.iterdir())


def test_balancing_is_measured_before_and_after(without_spark: None, tmp_path: Path) -> None:
    """Nothing is balanced during the training, so that there is something to balance."""
    spark: Any = None
    chosen = [Configuration("DRt-Cluster", 4, rule="eager")]
    results = measure_throughput(spark, tmp_path, [1], 3_000, lambda *_: None, chosen)
    assert [row["matcher"] for row in results["balancing"]] == ["index", "one_by_one"]
    for row in results["balancing"]:
        assert row["moved"] > 0
        assert min(row["balance_after"], row["balance_before"]) >= 1


def test_the_experiment_has_all_partitioners_and_numbers_of_workers() -> None:
    """And both rules of balancing."""
    chosen = configurations()
    for workers in (1, 2, 4):
        names = {one.partitioner for one in chosen if one.workers == workers and not one.rule}
        assert names == {"DRt-Cluster", "kd-tree", "hashing", "curve"}
    assert {one.rule for one in chosen} == {"", "paper", "eager"}
