"""Tests of roamcast.match.index.earlier_positions: which positions count at a time, and what boxes contain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matching import events_of

from roamcast.errors import CorruptionError
from roamcast.match.index import earlier_positions
from roamcast.match.index.earlier_positions import EarlierPositions
from roamcast.match.index.moving import CircleTest, MovingRegions
from roamcast.model import NO_END
from roamcast.space import PLANAR, contains

NAMES = ("handle", "offset", "begin", "end", "x", "y")
Row = tuple[int, int, int, int, float, float]


def moves(*rows: Row) -> dict[str, Any]:
    """Rows of `NAMES`."""
    columns = zip(*rows, strict=True) if rows else [()] * len(NAMES)
    kinds = (np.int64,) * 4 + (np.float64,) * 2
    arrays = {n: np.array(c, k) for n, c, k in zip(NAMES, columns, kinds, strict=True)}
    return {**arrays, "drained": np.zeros(len(rows), np.bool_)}


def earlier(*rows: Row) -> EarlierPositions:
    return EarlierPositions.none().add(moves(*rows))


def offsets(positions: EarlierPositions) -> list[int]:
    return [int(offset) for offset in positions.arrays["offset"]]


WALK = earlier((7, 3, 10, 20, 0.0, 0.0), (7, 5, 15, 40, 100.0, 0.0), (9, 4, 12, 12, 0.0, 50.0))


@pytest.mark.parametrize(
    ("handle", "time", "is_last", "found"),
    [
        (7, -99, False, [3]), (7, 9, False, [3]), (7, 10, False, [3, 5]), (7, 14, False, [3, 5]),
        (7, 15, True, [3, 5]), (7, 19, True, [3, 5]), (7, 20, True, [5]), (7, 39, True, [5]), (7, 40, True, []),
        (9, 11, False, [4]), (9, 12, True, []), (8, 5, True, []),
    ],
)  # fmt: skip
def test_positions_count_at_their_times(handle: int, time: int, is_last: bool, found: Sequence[int]) -> None:
    """The first one from the beginning of time on, the last one without end."""
    at = WALK.at(np.array([8, handle]), np.array([time, time]))
    assert at.is_last.tolist() == [True, is_last]
    assert set(at.key) <= {1}
    assert [int(WALK.arrays["offset"][row]) for row in at.row] == list(found)


def test_moves_are_added_behind_those_of_the_region() -> None:
    added = WALK.add(moves((7, 1, 50, 50, 1.0, 1.0), (9, 9, 50, 50, 1.0, 1.0)))
    assert offsets(added) == [3, 5, 1, 4, 9]
    assert WALK.add(moves()) is WALK


def test_a_region_has_a_limited_number_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones: these are the positions that were there when a peer did not respond any more."""
    monkeypatch.setattr(earlier_positions, "MOST", 2)
    added = WALK.add(moves((7, 8, 50, 50, 1.0, 1.0), (9, 9, 50, 50, 1.0, 1.0), (9, 10, 50, 50, 1.0, 1.0)))
    assert offsets(added) == [3, 5, 4, 9]
    assert WALK.add(moves((7, 8, 50, 50, 1.0, 1.0))) is WALK


def test_drained_moves_are_marked_first() -> None:
    """They are forgotten with the next batch."""
    assert WALK.drain(np.array([2, 2, 2])) is WALK
    marked = WALK.drain(np.array([3, 3, 4]))
    assert (marked.arrays["drained"].tolist(), marked.has_drained, WALK.has_drained) == (
        [True, False, True],
        True,
        False,
    )
    assert offsets(marked.select(~marked.arrays["drained"])) == [5]


def test_a_file_is_written_once_and_only_if_there_are_any(tmp_path: Path) -> None:
    assert EarlierPositions.none().save(tmp_path) is None
    assert len(EarlierPositions.open(tmp_path, None)) == 0
    name = WALK.copy().save(tmp_path)
    assert name is not None
    opened = EarlierPositions.open(tmp_path, name)
    assert offsets(opened) == [3, 5, 4]
    (tmp_path / f"{name}.segment").unlink()
    assert opened.save(tmp_path) == name
    assert not list(tmp_path.iterdir())
    assert opened.copy().save(tmp_path) == name
    with pytest.raises(CorruptionError):
        EarlierPositions.open(tmp_path, "0" * 64)


def test_an_event_is_in_a_circle_at_its_time(tmp_path: Path) -> None:
    """Around any position that counts then; without a time around the last one."""
    regions = MovingRegions(PLANAR)
    regions.add([7, 9], [200.0, 200.0], [0.0, 0.0], [1.0, 1.0])
    test = CircleTest(PLANAR, tmp_path, regions.save(tmp_path), earlier=WALK.copy().save(tmp_path))
    events, everything = events_of([(0.0, 0.0, []), (100.0, 1.0, []), (200.0, 0.0, [])]), np.arange(3)

    def found(time: int | None) -> list[int]:
        times = None if time is None else np.full(3, time)
        return np.flatnonzero(test(events, everything, np.full(3, 7), np.full(3, NO_END), times)).tolist()

    assert {time: found(time) for time in (None, 9, 10, 15, 20, 40, NO_END)} == {
        None: [2], 9: [0], 10: [0, 1], 15: [0, 1, 2], 20: [1, 2], 40: [2], NO_END: [2],
    }  # fmt: skip


def test_boxes_contain_earlier_positions_while_they_count() -> None:
    """Also where a region leaves its box again; and then they shrink, though it does not move."""
    regions = MovingRegions(PLANAR)
    regions.add([7], [0.0], [0.0], [10.0])
    first = earlier((7, 3, 10, 20, 0.0, 0.0))
    assert contains(*regions.move([7], [5_000.0], [0.0], earlier=first).box[0], [-10.0, 5_010.0], 0.0).all()
    for _ in range(3):
        assert not len(regions.move([], [], [], earlier=first).handle)
    assert not len(regions.move([7], [5_001.0], [0.0], earlier=first).handle)
    second = first.add(moves((7, 5, 30, 30, 5_001.0, 0.0)))
    far = regions.move([7], [0.0], [90_000.0], earlier=second)
    assert contains(*far.box[0], [0.0, 5_001.0, 0.0], [0.0, 0.0, 90_000.0]).all()
    assert not regions.is_tight
    (box,) = regions.move([], [], [], earlier=EarlierPositions.none()).box
    assert (box[3] - box[1]) == pytest.approx(30.0)
    assert regions.is_tight


def test_all_boxes_can_be_made_again() -> None:
    """For a new index."""
    regions = MovingRegions(PLANAR)
    regions.add([7, 9], [200.0, 300.0], [0.0, 0.0], [1.0, 1.0])
    boxes = regions.anchor(WALK)
    assert boxes.handle.tolist() == [7, 9]
    assert contains(*boxes.box[0], [200.0, 0.0, 100.0], [0.0, 0.0, 0.0]).all()
    assert contains(*boxes.box[1], [300.0, 0.0], [0.0, 50.0]).all()
