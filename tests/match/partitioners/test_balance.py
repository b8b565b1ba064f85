"""Tests of roamcast.match.partitioners.balance, with results computed by hand."""

from __future__ import annotations

import math

import numpy as np

from roamcast.match.partitioners.balance import CategoryMove, choose_moves, score_merges

EVERY = np.ones((3, 3), np.bool_) & ~np.eye(3, dtype=np.bool_)


def test_merge_judge_para_is_the_quotient_of_own_and_other_correlation() -> None:
    """Infinite without correlation to other workers; not considered without any, or alone on a worker."""
    matrix = np.array([[0, 6, 2], [6, 0, 0], [2, 0, 0]], np.float64)
    judged = score_merges(matrix, np.array([0, 0, 1]), np.ones(3, np.bool_), EVERY)
    assert (judged.cs[0], judged.cd[0], judged.quotient[0]) == (6, 2, 3)
    assert judged.quotient[1] == math.inf
    assert math.isnan(judged.quotient[2])  # it is alone on its worker


def test_the_category_with_the_greatest_divi_para_moves_first() -> None:
    """To the worker it correlates with, until the load is not too high."""
    matrix = np.array([[0, 9, 0, 0], [9, 0, 0, 0], [0, 0, 0, 5], [0, 0, 5, 0]], np.float64)
    load, size = np.array([40.0, 30.0, 20.0, 10.0]), np.array([4, 3, 2, 1])
    assert choose_moves(load, size, np.array([0, 0, 0, 1]), 2, matrix, 1.7) == [CategoryMove(2, 1)]


def test_a_move_that_only_shifts_the_overload_is_not_made() -> None:
    """A giant category stays: its target would be as loaded as its source."""
    load, size = np.array([90.0, 10.0]), np.array([9, 1])
    assert choose_moves(load, size, np.array([0, 1]), 2, np.zeros((2, 2)), 1.0) == []
