"""Tests of roamcast.lab.bench.match.comparison: what each part compares with ours finds the same pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from roamcast.errors import RoamcastError
from roamcast.lab.bench.match import timing
from roamcast.lab.bench.match.comparison import with_ratios, write_inputs
from roamcast.lab.bench.match.data import MatchData
from roamcast.lab.bench.match.frames import measure_frames
from roamcast.lab.bench.match.pairs import count_differences, pair_keys
from roamcast.lab.bench.match.polygons import measure_polygons, write_polygons
from roamcast.lab.bench.match.process import run_program
from roamcast.lab.models.matcher import ReferenceMatcher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the time of one run instead of the best of several."""
    monkeypatch.setattr(timing, "TIMES", 1)


@pytest.mark.spark
def test_frames_agree_with_the_reference(spark: SparkSession, tmp_path: Path) -> None:
    """Ours and the join of plain SQL find as many pairs as the reference, and the same ones."""
    data = MatchData(3_000)
    write_inputs(data, 2_000, tmp_path)
    ours, sql, identity = measure_frames(spark, tmp_path, 3_000, 2_000, lambda _: None)
    expected = ReferenceMatcher(data.subscriptions(2_000)).match(data.first_events(3_000))
    assert ours["matches"] == len(expected.event) > 0
    assert sql["wrong"] == 0
    assert identity["events_per_s"] > 0


@pytest.mark.spark
def test_polygons_are_the_same_in_shapely_and_sedona(spark: SparkSession, tmp_path: Path) -> None:
    data = MatchData(3_000)
    write_inputs(data, 1_000, tmp_path)
    write_polygons(data, 2_000, tmp_path / "polygons")
    rows = measure_polygons(spark, tmp_path, 3_000, 2_000, lambda _: None)
    assert [row["wrong"] for row in rows] == [0, 0, 0]
    assert len({row["matches"] for row in rows}) == 1
    assert rows[0]["matches"] > 1_000


def test_differences_are_pairs_of_one_side_and_pairs_found_twice() -> None:
    pairs = pa.table({"event_id": [0, 1, 1], "subscription_id": [4, 0, 0]})
    keys = pair_keys(pairs, 5)
    assert keys.tolist() == [4, 5, 5]
    assert count_differences(keys, np.array([4, 6])) == 3


def test_ratios_say_how_many_times_as_fast_ours_is() -> None:
    """Of rates and of seconds."""
    by_rate = with_ratios("frames", [{"plan": "a", "events_per_s": 30}, {"plan": "b", "events_per_s": 10}])
    by_time = with_ratios("process", [{"plan": "a", "seconds": 10.0}, {"plan": "b", "seconds": 30.0}])
    assert [row["times_as_fast"] for row in (*by_rate, *by_time)] == [1.0, 3.0, 1.0, 3.0]


def test_a_program_that_fails_is_an_error_with_its_last_line() -> None:
    with pytest.raises(RoamcastError, match="no such thing"):
        run_program(["-c", "raise SystemExit('first\\nno such thing')"])
