"""Tests of roamcast.match.partitioners.balance, with results computed by hand."""

from __future__ import annotations

import numpy as np

from roamcast.match.partitioners.balance import CategoryMove, choose_moves
from roamcast.match.partitioners.correlation import CategoryPairs


def pairs_of(matrix: list[list[int]]) -> CategoryPairs:
    """Return the pairs of a matrix of correlation."""
    points = np.array(matrix)
    one, other = np.nonzero(points)
    return CategoryPairs(one, other, points[one, other])


def test_the_category_with_the_greatest_divi_para_moves_first() -> None:
    """To the worker it correlates with, until the load is not too high."""
    pairs = pairs_of([[0, 9, 0, 0], [9, 0, 0, 0], [0, 0, 0, 5], [0, 0, 5, 0]])
    load, size = np.array([40.0, 30.0, 20.0, 10.0]), np.array([4, 3, 2, 1])
    assert choose_moves(load, size, np.array([0, 0, 0, 1]), 2, pairs, 1.7) == [CategoryMove(2, 1)]


def test_a_move_that_only_shifts_the_overload_is_not_made() -> None:
    """A giant category stays: its target would be as loaded as its source."""
    load, size = np.array([90.0, 10.0]), np.array([9, 1])
    assert choose_moves(load, size, np.array([0, 1]), 2, pairs_of([[0, 0], [0, 0]]), 1.0) == []
