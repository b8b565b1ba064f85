"""Tests of roamcast.match.index.grid: levels suit their boxes and stay few."""

from __future__ import annotations

import math

import numpy as np
import pytest

from roamcast.match.index.grid import MAX_LEVELS, choose_levels


def boxes(rng: np.random.Generator, count: int, side: float, spread: float = 1.0) -> np.ndarray:
    low = rng.uniform(0, spread, (count, 2))
    return np.concatenate([low, low + side], axis=1)


@pytest.mark.parametrize("side", [0.0, 1e-9, 0.001, 0.3, 40.0, 1e6, 1e200])
def test_a_box_touches_at_most_four_cells(side: float) -> None:
    """Whatever its size. Where boxes are dense, cells are not much wider than boxes."""
    box = boxes(np.random.default_rng(1), 5_000, side, spread=3 * side)
    levels = choose_levels(box)
    scale = levels.scale[levels.of][:, np.newaxis]
    cells = np.floor(box[:, 2:] * scale) - np.floor(box[:, :2] * scale) + 1
    assert (cells <= 2).all()
    assert (levels.scale > 0).any()
    assert 1 / levels.scale.max() <= max(8 * side, 2.0**-29)


def test_the_number_of_levels_is_limited() -> None:
    """An attack with boxes of all sizes cannot make every event search everywhere."""
    rng = np.random.default_rng(2)
    box = np.concatenate([boxes(rng, 2_000, 10.0**power) for power in range(-15, 280, 5)])
    levels = choose_levels(box)
    assert len(levels.scale) <= MAX_LEVELS
    assert (levels.of >= 0).all()


def test_a_few_odd_boxes_do_not_widen_the_cells_of_the_others() -> None:
    """Most boxes stay on fine levels though some are huge, unbounded or tiny."""
    rng = np.random.default_rng(3)
    usual = boxes(rng, 20_000, 0.01)
    odd = np.concatenate([boxes(rng, 3, 10.0**power) for power in range(-12, 12)])
    endless = np.array([[-math.inf, -math.inf, math.inf, math.inf]] * 50)
    levels = choose_levels(np.concatenate([usual, odd, endless]))
    widths = 1 / levels.scale[levels.of[: len(usual)]]
    assert np.median(widths) <= 0.16
    assert len(levels.scale) <= 6


def test_sparse_boxes_share_wide_cells() -> None:
    """A cell for each box would cost more than it saves."""
    levels = choose_levels(boxes(np.random.default_rng(4), 2_000, 1e-6, spread=1e3))
    cells = 1e3 * levels.scale[levels.of].mean()
    assert cells**2 < 2_000


def test_an_empty_box_has_no_level() -> None:
    """It never matches."""
    box = np.array([[math.nan, 0, 1, 1], [0, 1, 1, 0], [0, 0, 1, 1]])
    assert (choose_levels(box).of >= 0).tolist() == [False, False, True]


def test_without_boxes_there_are_no_levels() -> None:
    """An index may be empty."""
    assert len(choose_levels(np.empty((0, 4))).scale) == 0


def test_boxes_across_the_antimeridian_have_their_own_levels() -> None:
    """There, longitudes are clamped to the world."""
    rng = np.random.default_rng(5)
    plain = boxes(rng, 3_000, 0.01)
    crossing = np.stack(
        [rng.uniform(179.9, 180, 3_000), np.zeros(3_000), rng.uniform(-180, -179.9, 3_000), np.ones(3_000)]
    ).T
    levels = choose_levels(np.concatenate([plain, crossing]))
    assert not levels.wraps[levels.of[:3_000]].any()
    assert levels.wraps[levels.of[3_000:]].all()
