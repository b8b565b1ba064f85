"""Tests of roamcast.match.index.grid: levels suit their boxes and stay few."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from matching import SubscriptionRow, events_of, subscriptions_of

from roamcast.match.index.build import build
from roamcast.match.index.grid import CROWD, MAX_LEVELS, Levels, choose_levels
from roamcast.match.index.index import Index, OpenSegment
from roamcast.match.index.rows import index_rows
from roamcast.match.index.segments import MappedArrays


def boxes(rng: np.random.Generator, count: int, side: float, spread: float = 1.0) -> np.ndarray:
    low = rng.uniform(0, spread, (count, 2))
    return np.concatenate([low, low + side], axis=1)


def levels_of(box: np.ndarray) -> Levels:
    """Choose levels for boxes with distinct terms."""
    return choose_levels(box, np.arange(1, len(box) + 1, dtype=np.int32))


def levels_without_terms(box: np.ndarray) -> Levels:
    return choose_levels(box, np.zeros(len(box), np.int32))


def scanned_per_event(rows: list[SubscriptionRow], points: np.ndarray) -> float:
    """Return how many postings events at these points, with the term "t0", are compared with."""
    arrays = build(index_rows(np.arange(len(rows)), subscriptions_of(rows)))
    index = Index([OpenSegment(MappedArrays.in_memory(arrays._asdict()), None)])
    events = events_of([(x, y, ["t0"]) for x, y in points.tolist()])
    return sum(chunk.scanned for chunk in index.candidates(events)) / len(points)


@pytest.mark.parametrize("side", [0.0, 1e-9, 0.001, 0.3, 40.0, 1e6, 1e200])
@pytest.mark.parametrize("choose", [levels_of, levels_without_terms])
def test_a_box_touches_at_most_four_cells(side: float, choose: Callable[[np.ndarray], Levels]) -> None:
    """Whatever its size. Where boxes are dense, cells are not much wider than boxes."""
    box = boxes(np.random.default_rng(1), 5_000, side, spread=3 * side)
    levels = choose(box)
    scale = levels.scale[levels.of][:, np.newaxis]
    cells = np.floor(box[:, 2:] * scale) - np.floor(box[:, :2] * scale) + 1
    assert (cells <= 2).all()
    assert (levels.scale > 0).any()
    assert 1 / levels.scale.max() <= max(8 * side, 2.0**-29)


@pytest.mark.parametrize("choose", [levels_of, levels_without_terms])
def test_the_number_of_levels_is_limited(choose: Callable[[np.ndarray], Levels]) -> None:
    """An attack with boxes of all sizes cannot make every event search everywhere."""
    rng = np.random.default_rng(2)
    box = np.concatenate([boxes(rng, 2_000, 10.0**power) for power in range(-15, 280, 5)])
    levels = choose(box)
    assert len(levels.scale) <= MAX_LEVELS
    assert (levels.of >= 0).all()


def test_a_few_odd_boxes_do_not_widen_the_cells_of_the_others() -> None:
    """Most boxes stay on fine levels though some are huge, unbounded or tiny."""
    rng = np.random.default_rng(3)
    usual = boxes(rng, 20_000, 0.01)
    odd = np.concatenate([boxes(rng, 3, 10.0**power) for power in range(-12, 12)])
    endless = np.array([[-math.inf, -math.inf, math.inf, math.inf]] * 50)
    levels = levels_of(np.concatenate([usual, odd, endless]))
    widths = 1 / levels.scale[levels.of[: len(usual)]]
    assert np.median(widths) <= 0.16
    assert len(levels.scale) <= 6


def test_sparse_boxes_share_wide_cells() -> None:
    """A cell for each box would cost more than it saves."""
    levels = levels_of(boxes(np.random.default_rng(4), 2_000, 1e-6, spread=1e3))
    cells = 1e3 * levels.scale[levels.of].mean()
    assert cells**2 < 2_000


@pytest.mark.parametrize("spread", [10.0, 20.0, 40.0, 90.0, 300.0])
@pytest.mark.parametrize(("side", "width"), [(0.0, 0.0), (0.2, 1.0), (0.45, 1.0)])
@pytest.mark.parametrize("terms", [[], ["t0"]])
def test_boxes_that_no_term_filters_stay_in_cells_of_their_size(
    side: float, width: float, spread: float, terms: list[str]
) -> None:
    """Events are compared with few more than those in such a cell, however sparse they are."""
    rng = np.random.default_rng(6)
    rows = [(*each, terms) for each in boxes(rng, 20_000, side, spread).tolist()]
    in_a_cell = len(rows) * ((width + side) / spread) ** 2
    assert scanned_per_event(rows, rng.uniform(0, spread, (250, 2))) < in_a_cell + 2 * CROWD


def test_few_boxes_without_terms_stay_in_cells_of_their_size_beside_many_with_terms() -> None:
    """Few boxes with terms move to a wider level, here to the world."""
    rng = np.random.default_rng(7)
    many, few = boxes(rng, 40_000, 0.2, 10), boxes(rng, 150, 3, 100)
    box, term = np.concatenate([many, few]), np.arange(1, 40_151, dtype=np.int32)
    levels = choose_levels(box, term)
    assert (levels.scale[levels.of[-150:]] == 0).all()
    rows = [(*each, [f"t{n}"] if n <= len(many) else []) for n, each in zip(term.tolist(), box.tolist(), strict=True)]
    assert scanned_per_event(rows, rng.uniform(0, 100, (250, 2))) < 2 * CROWD


def test_sparse_boxes_without_terms_share_cells() -> None:
    """So that memory is bounded."""
    box = boxes(np.random.default_rng(8), 2_000, 1e-6, spread=1e3)
    levels = levels_without_terms(box)
    cells = np.column_stack([levels.of, np.floor(box[:, :2] * levels.scale[levels.of][:, np.newaxis])])
    assert len(np.unique(cells, axis=0)) < 1_000


def test_an_empty_box_has_no_level() -> None:
    """It never matches."""
    box = np.array([[math.nan, 0, 1, 1], [0, 1, 1, 0], [0, 0, 1, 1]])
    assert (levels_of(box).of >= 0).tolist() == [False, False, True]


def test_without_boxes_there_are_no_levels() -> None:
    """An index may be empty."""
    assert len(levels_of(np.empty((0, 4))).scale) == 0


def test_boxes_across_the_antimeridian_have_their_own_levels() -> None:
    """There, longitudes are clamped to the world."""
    rng = np.random.default_rng(5)
    plain = boxes(rng, 3_000, 0.01)
    crossing = np.stack(
        [rng.uniform(179.9, 180, 3_000), np.zeros(3_000), rng.uniform(-180, -179.9, 3_000), np.ones(3_000)]
    ).T
    levels = levels_of(np.concatenate([plain, crossing]))
    assert not levels.wraps[levels.of[:3_000]].any()
    assert levels.wraps[levels.of[3_000:]].all()
