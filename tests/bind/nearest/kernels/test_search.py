"""Distances in kernels: metres equal those of the space, and chords bound them from both sides."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.bind.nearest.kernels import search
from roamcast.space import GEOGRAPHIC, PLANAR, Space

longitudes, latitudes = st.floats(-180, 180), st.floats(-90, 90)
coordinates = st.floats(-1e150, 1e150)
geographic = st.tuples(st.just(GEOGRAPHIC), *[st.tuples(longitudes, latitudes)] * 3)
planar = st.tuples(st.just(PLANAR), *[st.tuples(coordinates, coordinates)] * 3)
Point = tuple[float, float]
Case = tuple[Space, Point, Point, Point]


def compiled(function: Any) -> Any:
    """A compiled function that can be called from here; in `search` they are compiled only as parts of kernels."""
    return numba.njit(error_model="numpy")(function.py_func)


chord_beyond = compiled(search.chord_beyond)
chord_within = compiled(search.chord_within)
is_uncertain = compiled(search.is_uncertain)
longer_chord = compiled(search.longer_chord)
metres = compiled(search.metres)
shorter_chord = compiled(search.shorter_chord)
step_chord = compiled(search.step_chord)
to_chart = compiled(search.to_chart)


def chord(space: Space, a: Point, b: Point) -> float:
    is_geographic = space is GEOGRAPHIC
    return float(np.linalg.norm(np.subtract(to_chart(is_geographic, *a), to_chart(is_geographic, *b))))


@given(planar)
def test_planar_metres_are_exactly_those_of_the_space(case: Case) -> None:
    """To the last bit: kernels choose by them."""
    _, a, b, _ = case
    assert metres(False, *a, *b) == PLANAR.distance(*a, *b)


@given(geographic)
def test_geographic_metres_are_within_the_uncertainty(case: Case) -> None:
    """Kernels leave closer decisions to the space."""
    _, a, b, _ = case
    ours, exact = metres(True, *a, *b), float(GEOGRAPHIC.distance(*a, *b))
    assert is_uncertain(True, ours, exact)


@given(geographic | planar)
def test_chords_bound_metres(case: Case) -> None:
    """From below and from above."""
    space, a, b, c = case
    kind = space is GEOGRAPHIC
    limit, length = float(space.distance(*a, *c)), float(space.distance(*a, *b))
    if chord(space, a, b) <= chord_within(kind, limit):
        assert length <= limit
    if chord(space, a, b) > chord_beyond(kind, limit):
        assert length > limit


@given(geographic | planar)
def test_much_longer_chords_are_longer_in_metres(case: Case) -> None:
    """By the bounds of `longer_chord` and `shorter_chord`."""
    space, a, b, c = case
    kind = space is GEOGRAPHIC
    if chord(space, a, b) > longer_chord(kind, chord(space, a, c)):
        assert space.distance(*a, *b) > space.distance(*a, *c)
    if chord(space, a, b) < shorter_chord(kind, chord(space, a, c)):
        assert space.distance(*a, *b) < space.distance(*a, *c)


@given(geographic | planar)
def test_a_step_is_never_underestimated(case: Case) -> None:
    """Also across the antimeridian and over a pole."""
    space, a, b, _ = case
    kind = space is GEOGRAPHIC
    assert step_chord(kind, b[0] - a[0], b[1] - a[1]) >= chord(space, a, b) * (1 - 1e-12) - (1e-6 if kind else 0)


@pytest.mark.parametrize("pole", [90.0, -90.0])
def test_all_longitudes_meet_at_a_pole(pole: float) -> None:
    """The chart has no seam at the poles."""
    assert chord(GEOGRAPHIC, (0.0, pole), (120.0, pole)) < 1e-6
