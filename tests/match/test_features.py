"""Features of boxes: on how many levels, and in how many cells."""

from __future__ import annotations

import numpy as np

from roamcast.match.features import WORLD, features_of_rows


def test_boxes_of_all_sizes_are_on_few_levels() -> None:
    """An event is asked for on each of them: nobody can make that many by wishing for huge boxes."""
    half = np.exp2(np.arange(-50.0, 1_000.0))
    box = np.stack([-half, -half, half, half], axis=1)
    features, levels = features_of_rows(box, np.ones(len(half), np.uint64))
    assert len(levels) <= 24
    assert levels.max() == WORLD
    assert np.bincount(features.of, minlength=len(half)).min() >= 1
    assert np.bincount(features.of).max() <= 9
