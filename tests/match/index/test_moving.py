"""Tests of roamcast.match.index.moving: regions are reindexed only when their slack is used up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matching import events_of

from roamcast.errors import ConflictError, CorruptionError, InputError, NotFoundError
from roamcast.match.index.moving import CircleTest, MovingRegions
from roamcast.match.index.segments import SegmentFolder
from roamcast.model import BEFORE_ALL
from roamcast.space import GEOGRAPHIC, PLANAR, Space, contains


def test_a_small_step_does_not_change_the_index() -> None:
    """Within the slack only the position changes."""
    regions = MovingRegions(PLANAR)
    regions.add([7], [0.0], [0.0], [100.0])
    assert len(regions.move([7], [10.0], [5.0]).handle) == 0
    assert regions.move([7], [80.0], [0.0]).handle.tolist() == [7]


def test_slack_is_measured_from_the_anchor() -> None:
    """Many small steps in one direction use it up like one large step."""
    regions = MovingRegions(PLANAR)
    regions.add([7], [0.0], [0.0], [100.0])
    moved = [len(regions.move([7], [x], [0.0]).handle) for x in np.arange(1.0, 201.0)]
    assert 48 <= moved.index(1) <= 51
    assert 3 <= sum(moved) <= 4


@pytest.mark.parametrize("space", [GEOGRAPHIC, PLANAR])
def test_few_of_many_random_walkers_are_reindexed(space: Space) -> None:
    """Steps of a hundredth of the radius reindex fewer than one in fifty."""
    rng = np.random.default_rng(3)
    unit = 1.0 if space is PLANAR else 1e-5
    count, handles = 2_000, np.arange(2_000)
    x, y = rng.uniform(-100, 100, (2, count)) * unit
    regions = MovingRegions(space)
    regions.add(handles, x, y, np.full(count, 100.0))
    replaced = 0
    for _ in range(50):
        x, y = x + rng.normal(0, unit, count), y + rng.normal(0, unit, count)
        replaced += len(regions.move(handles, x, y).handle)
    assert replaced < 50 * count / 50


def test_a_fast_region_gets_more_slack() -> None:
    """A region that moves faster than its radius is not reindexed at every step."""
    regions = MovingRegions(PLANAR)
    regions.add([1], [0.0], [0.0], [10.0])
    assert sum(len(regions.move([1], [x], [0.0]).handle) for x in np.arange(50.0, 5_000.0, 50.0)) < 15


def test_the_new_box_contains_the_circle() -> None:
    """Around the current position."""
    regions = MovingRegions(PLANAR)
    regions.add([1, 2], [0.0, 0.0], [0.0, 0.0], [10.0, 10.0])
    moved = regions.move([2, 1], [500.0, 100.0], [0.0, 0.0])
    assert moved.handle.tolist() == [1, 2]
    assert contains(*moved.box.T, [110.0, 490.0], [0.0, 0.0]).all()


def test_the_last_of_several_positions_is_the_current_one(tmp_path: Path) -> None:
    """Within one batch of moves."""
    regions = MovingRegions(PLANAR)
    regions.add([5], [0.0], [0.0], [1.0])
    regions.move([5, 5], [50.0, 100.0], [0.0, 0.0])
    test = CircleTest(PLANAR, tmp_path, regions.save(tmp_path))
    events = events_of([(50.0, 0.0, []), (100.0, 1.0, [])])
    assert test(events, np.array([0, 1]), np.array([5, 5])).tolist() == [False, True]


def test_a_region_without_position_has_no_box(tmp_path: Path) -> None:
    """It contains nothing and gets its box with its first move."""
    regions = MovingRegions(GEOGRAPHIC)
    assert np.isnan(regions.add([5], [np.nan], [np.nan], [1.0]).box).all()
    test = CircleTest(GEOGRAPHIC, tmp_path, regions.save(tmp_path))
    assert test(events_of([(0, 0, [])]), np.array([0]), np.array([5])).tolist() == [False]
    assert contains(*regions.move([5], [8.0], [53.0]).box.T, 8.0, 53.0).all()


def test_the_box_contains_all_positions_of_a_batch() -> None:
    """The position before, those on the way, and the last."""
    regions = MovingRegions(PLANAR)
    regions.add([1, 2], [0.0, 0.0], [0.0, 0.0], [10.0, 10.0])
    moved = regions.move([2, 1, 2], [500.0, 1.0, 0.0], [0.0, 0.0, 0.0])
    assert moved.handle.tolist() == [2]
    assert contains(*moved.box[0], [-10.0, 510.0, 10.0], [0.0, 0.0, 0.0]).all()


def test_an_oversized_box_shrinks_with_the_next_batch() -> None:
    """Even if the region does not move; and then it stays."""
    regions = MovingRegions(PLANAR)
    regions.add([1], [0.0], [0.0], [10.0])
    assert not contains(*regions.move([1], [1e6], [0.0]).box[0], 3e6, 0.0)
    assert not regions.is_tight
    moved = regions.move([], [], [])
    assert (moved.box[0][2] - moved.box[0][0]) == pytest.approx(30.0)
    assert regions.is_tight
    assert len(regions.move([], [], []).handle) == 0


def test_a_trail_gives_the_position_at_an_offset(tmp_path: Path) -> None:
    """The last position before the event's offset; the last one for events at the end of the batch."""
    regions = MovingRegions(PLANAR)
    regions.add([5, 6], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0])
    regions.move([5, 5], [50.0, 100.0], [0.0, 0.0])
    trail = {
        "handle": np.array([5, 5, 5]), "since": np.array([BEFORE_ALL, 10, 20]), "x": np.array([0.0, 50.0, 100.0]),
        "y": np.zeros(3),
    }  # fmt: skip
    test = CircleTest(PLANAR, tmp_path, regions.save(tmp_path), SegmentFolder(tmp_path).write(trail))
    events = events_of([(0.0, 0.0, []), (50.0, 0.0, []), (100.0, 0.0, [])])
    for at, event in ((9, 0), (10, 0), (11, 1), (20, 1), (21, 2), (np.iinfo(np.int64).max, 2)):
        found = test(events, np.arange(3), np.full(3, 5), np.full(3, at))
        assert np.flatnonzero(found).tolist() == [event]
    assert test(events, np.arange(3), np.full(3, 6), np.full(3, 21)).tolist() == [True, False, False]


def test_a_saved_version_does_not_change(tmp_path: Path) -> None:
    """Readers see the positions of their version. Equal versions are one file."""
    regions = MovingRegions(PLANAR)
    regions.add([5], [0.0], [0.0], [1.0])
    first = regions.save(tmp_path)
    before = CircleTest(PLANAR, tmp_path, first)
    regions.move([5], [0.25], [0.0])
    assert regions.save(tmp_path) != first
    assert before(events_of([(-1.0, 0.0, [])]), np.array([0]), np.array([5])).tolist() == [True]
    regions.move([5], [0.0], [0.0])
    assert regions.save(tmp_path) == first


def test_a_subscription_that_is_no_moving_region_contains_nothing(tmp_path: Path) -> None:
    test = CircleTest(PLANAR, tmp_path, MovingRegions(PLANAR).save(tmp_path))
    assert test(events_of([(0, 0, [])]), np.array([0]), np.array([1])).tolist() == [False]


def test_invalid_changes_are_refused_and_change_nothing(tmp_path: Path) -> None:
    """Unknown handles, taken handles, invalid radii."""
    regions = MovingRegions(PLANAR)
    regions.add([1], [0.0], [0.0], [1.0])
    before = regions.save(tmp_path)
    with pytest.raises(NotFoundError):
        regions.move([1, 2], [9.0, 9.0], [9.0, 9.0])
    with pytest.raises(NotFoundError):
        regions.remove([2])
    with pytest.raises(ConflictError):
        regions.add([1], [0.0], [0.0], [1.0])
    with pytest.raises(ConflictError):
        regions.add([3, 3], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0])
    with pytest.raises(InputError):
        regions.add([3], [0.0], [0.0], [np.nan])
    assert regions.save(tmp_path) == before


def test_a_missing_version_raises(tmp_path: Path) -> None:
    with pytest.raises(CorruptionError, match="missing"):
        MovingRegions.open(PLANAR, tmp_path, "0" * 64)
