"""Tests of roamcast.match.routing.features: number of levels and cells."""

from __future__ import annotations

import numpy as np
from matching import events_of, subscriptions_of

from roamcast.match.index.rows import index_rows
from roamcast.match.routing.features import WORLD, hash_events, row_features
from roamcast.match.routing.placement import Placement


def test_boxes_of_all_sizes_are_on_few_levels() -> None:
    """Events are looked up on each level: huge boxes of all sizes cannot make routing slow."""
    half = np.exp2(np.arange(-50.0, 1_000.0))
    box = np.stack([-half, -half, half, half], axis=1)
    features, _, levels = row_features(box, np.ones(len(half), np.uint64))
    assert len(levels) <= 24
    assert levels.max() == WORLD
    assert np.bincount(features.of, minlength=len(half)).min() >= 1
    assert np.bincount(features.of).max() <= 9


def test_candidates_in_the_box_with_both_terms_are_likely() -> None:
    """Also across the antimeridian."""
    wanted = index_rows(
        np.arange(2), subscriptions_of([(0, 0, 0.5, 0.5, ["rain", "wind"]), (179.5, 0, -179.5, 0.5, ["rain", "wind"])])
    )
    placement = Placement()
    placement.add(wanted, placement.choose_terms(wanted), np.ones(2, np.uint64))
    points = [(0.2, 0.2), (0.8, 0.2), (0.2, 0.8), (179.8, 0.2), (-179.8, 0.2), (-179.0, 0.2)]
    both = hash_events(events_of([(x, y, ["rain", "wind"]) for x, y in points]))
    found = placement.candidates(both)
    likely = placement.are_likely(both, found)
    pairs = list(zip(found.event[likely].tolist(), found.row[likely].tolist(), strict=True))
    assert pairs == [(0, 0), (3, 1), (4, 1)]
    assert len(found.event) > len(pairs)
    for term in ("rain", "wind"):
        one = hash_events(events_of([(0.2, 0.2, [term])]))
        assert not placement.are_likely(one, placement.candidates(one)).any()
