"""Distances in kernels: metres are those of the space, and chords bound them from both sides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.bind.nearest.kernels.layout import ENTITY
from roamcast.bind.nearest.kernels.metric import beyond, chart, in_doubt, metres, shrink, step, stretch, within
from roamcast.space import GEOGRAPHIC, PLANAR, Space

longitudes, latitudes = st.floats(-180, 180), st.floats(-90, 90)
coordinates = st.floats(-1e150, 1e150)
geographic = st.tuples(st.just(GEOGRAPHIC), *[st.tuples(longitudes, latitudes)] * 3)
planar = st.tuples(st.just(PLANAR), *[st.tuples(coordinates, coordinates)] * 3)
Point = tuple[float, float]
Case = tuple[Space, Point, Point, Point]


def row(point: Point) -> np.void:
    entities = np.zeros(1, ENTITY)
    entities[0]["x"], entities[0]["y"] = point
    return entities[0]


def chord(space: Space, a: Point, b: Point) -> float:
    is_geographic = space is GEOGRAPHIC
    return float(np.linalg.norm(np.subtract(chart(is_geographic, *a), chart(is_geographic, *b))))


@given(planar)
def test_planar_metres_are_exactly_those_of_the_space(case: Case) -> None:
    """To the last bit: kernels decide by them."""
    _, a, b, _ = case
    assert metres(False, row(a), row(b)) == PLANAR.distance(*a, *b)


@given(geographic)
def test_geographic_metres_differ_from_the_space_only_within_doubt(case: Case) -> None:
    """The least distance by which a decision in a kernel must be clear."""
    _, a, b, _ = case
    ours, exact = metres(True, row(a), row(b)), float(GEOGRAPHIC.distance(*a, *b))
    assert in_doubt(True, ours, exact)


@given(geographic | planar)
def test_chords_bound_metres(case: Case) -> None:
    """What is surely within a distance is, and what is surely beyond it is."""
    space, a, b, c = case
    kind = space is GEOGRAPHIC
    limit, length = float(space.distance(*a, *c)), float(space.distance(*a, *b))
    if chord(space, a, b) <= within(kind, limit):
        assert length <= limit
    if chord(space, a, b) > beyond(kind, limit):
        assert length > limit


@given(geographic | planar)
def test_much_longer_chords_are_longer_in_metres(case: Case) -> None:
    """How much is `stretch`, and the other way round `shrink`."""
    space, a, b, c = case
    kind = space is GEOGRAPHIC
    if chord(space, a, b) > stretch(kind, chord(space, a, c)):
        assert space.distance(*a, *b) > space.distance(*a, *c)
    if chord(space, a, b) < shrink(kind, chord(space, a, c)):
        assert space.distance(*a, *b) < space.distance(*a, *c)


@given(geographic | planar)
def test_a_step_is_never_underestimated(case: Case) -> None:
    """Also across the date line and over a pole."""
    space, a, b, _ = case
    kind = space is GEOGRAPHIC
    assert step(kind, b[0] - a[0], b[1] - a[1]) >= chord(space, a, b) * (1 - 1e-12) - (1e-6 if kind else 0)


@pytest.mark.parametrize("pole", [90.0, -90.0])
def test_all_longitudes_meet_at_a_pole(pole: float) -> None:
    """The chart has no seam there."""
    assert chord(GEOGRAPHIC, (0.0, pole), (120.0, pole)) < 1e-6
