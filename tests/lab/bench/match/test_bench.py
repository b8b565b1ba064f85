"""Tests of roamcast.lab.bench.match.bench: all plans find the same matches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from roamcast.lab.bench.match import partitioners, timing
from roamcast.lab.bench.match.bench import measure_match, measure_partitioned
from roamcast.lab.bench.match.data import MatchData
from roamcast.lab.bench.match.equality import measure_equality
from roamcast.lab.bench.match.partitioners import measure_partitioners
from roamcast.lab.bench.match.plans import sql_rows
from roamcast.lab.models.matcher import ReferenceMatcher
from roamcast.match.port import Events
from roamcast.pipeline.state.partitioning import PartitionerName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the time of one run instead of the best of several."""
    monkeypatch.setattr(timing, "TIMES", 1)


@pytest.mark.spark
def test_all_plans_agree_with_the_reference(spark: SparkSession, tmp_path: Path) -> None:
    """With a small data set, and after adding, removing and moving."""
    said: list[str] = []
    figures = measure_match(spark, tmp_path, [3_000], said.append, events=4_000, changed=500, moving=300, batches=2)
    limit, replicated, frame, sql = figures["rows"]
    assert [row["plan"] for row in figures["rows"]] == ["limit", "replicated", "frame", "spark-sql"]
    data = MatchData(4_000)
    batch = data.events(0, 4_000)
    events = Events(batch["x"].to_numpy(), batch["y"].to_numpy(), batch["terms"])
    expected = len(ReferenceMatcher(data.subscriptions(3_000)).match(events).event)
    assert replicated["matches"] == frame["matches"] == sql["matches"] == expected > 0
    assert (replicated["wrong"], figures["changes"]["wrong"]) == (0, 0)
    assert limit["events_per_s"] > 0
    assert figures["bytes_per_subscription"] > 0
    assert figures["moving"]["moving_regions"] == 300
    assert any("reindexed" in line for line in said)
    assert sum(figures["profile"].values()) == pytest.approx(1, abs=0.01)
    assert figures["profile"]["searching cells and postings"] > 0


def test_generated_data_is_as_described() -> None:
    """Six terms for an event, two to four of an event's terms for a subscription, boxes around events."""
    data = MatchData(2_000)
    lists = data.events(0, 2_000)["terms"].to_pylist()
    assert all(len(set(terms)) == 6 for terms in lists)
    subscriptions = data.subscriptions(500)
    assert {len(set(terms)) for terms in subscriptions.terms.to_pylist()} == {2, 3, 4}
    width = subscriptions.max_x - subscriptions.min_x
    assert (width >= 0.01).all()
    assert (width <= 0.2 + 1e-9).all()


def test_the_join_plan_has_a_row_for_each_cell_with_the_rarest_term() -> None:
    """One row for each cell that a box touches, with the rarest of its terms apart from the others."""
    data = MatchData(2_000)
    subscriptions = data.subscriptions(300)
    table = sql_rows(subscriptions)
    frequency: dict[str, int] = {}
    for terms in subscriptions.terms.to_pylist():
        for term in terms:
            frequency[term] = frequency.get(term, 0) + 1
    rows = {(row["min_x"], row["min_y"]): row for row in table.to_pylist()}
    assert len(rows) == 300
    for number, terms in enumerate(subscriptions.terms.to_pylist()):
        row = rows[(subscriptions.min_x[number], subscriptions.min_y[number])]
        others = [row[f"term_{n}"] for n in range(3) if row[f"term_{n}"] is not None]
        assert sorted([row["rarest"], *others]) == sorted(terms)
        assert frequency[row["rarest"]] == min(frequency[term] for term in terms)
    cells = np.floor(subscriptions.max_x / 0.2) - np.floor(subscriptions.min_x / 0.2) + 1
    cells *= np.floor(subscriptions.max_y / 0.2) - np.floor(subscriptions.min_y / 0.2) + 1
    assert table.num_rows == cells.sum()


@pytest.mark.spark
def test_shards_find_all_matches_with_less_memory_each(spark: SparkSession, tmp_path: Path) -> None:
    """With two workers and with four."""
    rows = measure_partitioned(spark, tmp_path, [200_000], [2, 4], lambda _: None, events=4_000)["rows"]
    assert [(row["plan"], row["workers"], row["wrong"]) for row in rows] == [
        ("replicated", 1, 0),
        ("partitioned", 2, 0),
        ("partitioned", 4, 0),
    ]
    for what in ("bytes_per_worker", "resident_per_worker"):
        assert rows[0][what] > rows[1][what] > rows[2][what]


@pytest.mark.spark
def test_partitioners_are_compared_in_the_plan_of_the_pipeline(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both find the matches of the replicated plan; ratios are those to the curve."""
    monkeypatch.setattr(partitioners, "_ADDITIONS", 1)
    monkeypatch.setattr(partitioners, "resident_bytes", lambda *_: 0)
    names: list[PartitionerName] = ["curve", "kdtree"]
    rows = measure_partitioners(
        spark, tmp_path, MatchData(2_000), 1_000, names, lambda _: None, events=2_000, workers=2, added=50
    )
    assert [(row["partitioner"], row["wrong"]) for row in rows] == [(name, 0) for name in names]
    for row in rows:
        assert min(row[what] for what in ("events_per_s", "messages_per_event", "mapped_mb", "add_s", "route_us")) > 0
        assert row["balance"] >= 1
    assert (rows[0]["add_s_over_curve"], rows[0]["route_us_over_curve"]) == (1, 1)


@pytest.mark.spark
def test_plans_and_partitioners_equal_the_reference(spark: SparkSession, tmp_path: Path) -> None:
    """Each with 1, 2 and 4 workers; there are matches."""
    found = measure_equality(spark, tmp_path, 3_000, 2_000, lambda _: None)
    assert len({(row["what"], row["workers"]) for row in found["rows"]}) == 1 + 5 * 3
    assert [row["wrong"] for row in found["rows"]] == [0] * 16
    assert all(row["matches"] > 1_000 for row in found["rows"])
