"""The LCESM experiment and its extensions."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import brief
from typer.testing import CliRunner

from roamcast.bind.nearest.rebinding import choose_source
from roamcast.bind.nearest.sources import Rule
from roamcast.cli import app
from roamcast.lab.experiments.lcesm.nodes import discover
from roamcast.lab.experiments.lcesm.reproduce import LcesmExtent, reproduce
from roamcast.lab.experiments.lcesm.room import CHANGE, SPACING, SensorGrid, WalkingListeners
from roamcast.lab.experiments.lcesm.run import LpsSystem, RunLength, run
from roamcast.lab.experiments.statistics import estimate

SMALL = LcesmExtent(
    seeds=2, seconds=2, beyond_seeds=1, beyond_seconds=1, listeners=(10, 50), sensors=(20,), speeds=(0.0, 2.0),
    nodes=(2,),
)  # fmt: skip


def test_the_room_is_as_square_as_the_number_of_sensors_allows() -> None:
    """Twenty sensors are in four rows of five."""
    rng = np.random.default_rng(0)
    rooms = [SensorGrid(count, rng) for count in (20, 100, 1_000, 10_000)]
    assert [(room.rows, room.columns) for room in rooms] == [(4, 5), (10, 10), (25, 40), (100, 100)]


@given(seed=st.integers(0, 2**32), count=st.sampled_from([2, 6, 20]))
@brief()
def test_the_nearest_sensor_of_a_listener_changes_every_two_seconds(seed: int, count: int) -> None:
    """Exactly thirty changes in a minute."""
    rng = np.random.default_rng(seed)
    room = SensorGrid(count, rng)
    walkers = WalkingListeners(5, room, rng)
    nearest = []
    for step in range(60 * 20 + 1):
        x, y = walkers.at(step / 20)
        nearest.append(np.floor(y / SPACING) * room.columns + np.floor(x / SPACING))
    changes = np.diff(np.array(nearest), axis=0) != 0
    assert changes.sum(axis=0).tolist() == [60 / CHANGE] * 5
    assert all((np.diff(np.flatnonzero(column)) >= 39).all() for column in changes.T)


def test_moving_sensors_stay_in_the_room() -> None:
    """Walls reflect them, also after a long time."""
    room = SensorGrid(20, np.random.default_rng(1), speed=3)
    for time in (0.0, 1.0, 17.5, 3_600.0):
        x, y = room.at(time)
        assert ((x >= 0) & (x <= 5 * SPACING) & (y >= 0) & (y <= 4 * SPACING)).all()


@given(seed=st.integers(0, 2**32))
@brief()
def test_lps_delivers_the_readings_of_the_nearest_sensor(seed: int) -> None:
    """As an exhaustive search; with one match for each reading."""
    rng = np.random.default_rng(seed)
    sensors, listeners = rng.uniform(0, 20, (2, 12)), rng.uniform(0, 20, (2, 30))
    reading = np.flatnonzero(rng.random(12) < 0.5)
    lps = LpsSystem()
    received = lps.publish(reading, (sensors[0], sensors[1]), (listeners[0], listeners[1]))
    nearest = [
        choose_source(
            Rule.NEAREST, np.inf, np.hypot(*(sensors - point[:, None])), np.arange(12), np.zeros(12, np.int64)
        )
        for point in listeners.T
    ]
    assert received.tolist() == [sensor if sensor in reading else -1 for sensor in nearest]
    assert lps.matches == len(reading)


def test_the_results_of_the_paper_are_reproduced() -> None:
    """LPS makes 100 matches per second; LCESM demands few sensors and makes few matches."""
    runs = [run(seed, RunLength()) for seed in range(2)]
    for one in runs:
        assert one.lps_matches.tolist() == [100 * second for second in range(1, 61)]
        assert one.matches[-1] == 10 + 10 * 60 / CHANGE < 0.07 * one.lps_matches[-1]
    assert 5.5 <= np.mean([one.demanded.mean() for one in runs]) <= 8.1


@pytest.mark.parametrize("speed", [0.0, 3.0])
def test_both_systems_deliver_the_same_letters(speed: float) -> None:
    """From the same sensors to the same listeners, with static and moving sensors."""
    one = run(5, RunLength(8), listeners=30, speed=speed)
    assert one.different == 0
    assert one.letters > 1_000


def test_a_sensor_without_listeners_sends_nothing() -> None:
    """One listener demands one sensor."""
    one = run(0, RunLength(10), listeners=1)
    assert one.demanded.tolist() == [1.0] * 10
    assert one.readings == one.letters


def test_moving_sensors_need_more_matches() -> None:
    """Bindings change with moves of either side."""
    still, fast = (run(0, RunLength(10), speed=speed) for speed in (0.0, 4.0))
    assert fast.matches[-1] > still.matches[-1]


@pytest.mark.parametrize("speed", [0.0, 1.0])
def test_discovery_binds_listeners_to_the_nearest_sensor_of_all_nodes(speed: float) -> None:
    """In every second, with static and moving sensors."""
    *_, wrong = discover(4, 0, 2, speed)
    assert wrong == 0


def test_a_new_request_takes_one_round_trip_to_each_other_node() -> None:
    """For any number of listeners with the same expression; each sensor is announced to each other node once."""
    first, later, _ = discover(6, 0, 1)
    assert first["find", "requests"] == first["find", "responses"] == 6 * 5
    assert first["find", "announcements"] == 100 * 5
    assert later["find", "requests"] == later["moved", "requests"] == 0


def test_moves_are_announced_to_each_other_node_in_one_response() -> None:
    """Once per second, for any number of moved sensors."""
    _, later, _ = discover(4, 0, 1, speed=1.0)
    assert later["moved", "responses"] == 4 * 3
    assert later["moved", "announcements"] == 100 * 3


def test_the_interval_is_that_of_student() -> None:
    """1, 2, 3 has a standard deviation of 1, and t(0.975, 2) is 4.3027."""
    mean, half = estimate([1.0, 2.0, 3.0])
    assert (float(mean), float(half)) == (2.0, pytest.approx(4.3027 / 3**0.5, rel=1e-4))


def test_all_figures_are_written(tmp_path: Path) -> None:
    """A CSV and a picture for each part; the files are returned."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    figures = reproduce(tmp_path / "new", lambda _: None, SMALL)
    names = {path.name for path in (tmp_path / "new").iterdir()}
    assert names == {Path(file).name for file in figures["files"]} == {
        "lcesm-figure8.csv", "lcesm-figure8.png", "lcesm-figure9.csv", "lcesm-figure9.png", "lcesm-growth.csv",
        "lcesm-growth-sensors.png", "lcesm-growth-matches.png", "lcesm-moving.csv", "lcesm-moving.png",
        "lcesm-discovery.csv", "lcesm-discovery.png",
    }  # fmt: skip
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (tmp_path / "new").glob("*.png"))
    assert [row["nodes"] for row in figures["discovery"]] == [2, 2]
    assert sum(row["different"] for row in figures["growth"] + figures["moving"]) == 0
    with (tmp_path / "new" / "lcesm-growth.csv").open() as rows:
        assert [float(row["listeners"]) for row in csv.DictReader(rows)] == [10, 50]


def test_the_command_reports_the_figures_of_the_paper(tmp_path: Path) -> None:
    """As JSON and as text."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    file = tmp_path / "new" / "lcesm.json"
    command = ["reproduce", "lcesm", "--paper", "--seeds", "2", "--out", str(tmp_path / "new")]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    figures = json.loads(file.read_bytes())
    assert (result.exit_code, figures["seeds"]) == (0, 2)
    assert figures["lps"] == {"sensors": 20, "matches_per_s": 100.0, "matches": 6_000.0}
    assert figures["lcesm"]["matches"] == 310.0
    assert "100 matches/s, 6000 in total" in result.output
    with (tmp_path / "new" / "lcesm-figure9.csv").open() as rows:
        *_, last = csv.DictReader(rows)
    assert (float(last["lps_matches"]), float(last["lcesm_matches"])) == (6_000, 310)
