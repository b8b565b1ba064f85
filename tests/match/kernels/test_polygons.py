"""Tests of roamcast.match.kernels.polygons: the same as shapely, and exact where shapely is not."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from profiles import extensive
from shapes import (
    Shapes,
    across_antimeridian,
    at_poles,
    blobs,
    is_inside,
    nested,
    points_near,
    scaled,
    slivers,
    unions,
    with_collinear,
    with_repeats,
)

from roamcast.match.index.polygons import Polygons


def disagreements(shapes: Shapes, row: Any, x: Any, y: Any) -> int:
    """Compare with shapely; where it differs, exactly. Returns how often it differs."""
    inside = Polygons.of(shapes).contains(row, x, y)
    shapely.prepare(shapes)
    differing = np.flatnonzero(inside != shapely.intersects_xy(shapes[row], x, y))
    for at in differing:
        assert inside[at] == is_inside(shapes[row[at]], x[at], y[at])
    return len(differing)


def valid(shapes: Shapes) -> Shapes:
    kept: Shapes = shapes[shapely.is_valid(shapes)]
    return kept


def test_a_hundred_thousand_pairs_are_as_in_shapely() -> None:
    """Random polygons, holes, nested parts, slivers, shared vertices, collinear points, the antimeridian, the poles.

    Points are on borders, on vertices, one float beside, level with them, and anywhere.
    """
    rng = np.random.default_rng(20)
    families = [
        blobs(rng, 300, 20), blobs(rng, 60, 500), blobs(rng, 300, 3), blobs(rng, 20, 3000), unions(rng, 300),
        nested(rng, 100), slivers(rng, 300), with_repeats(unions(rng, 40), 5), with_repeats(nested(rng, 40), 9),
        across_antimeridian(rng, 200), at_poles(rng, 200), with_collinear(unions(rng, 100)),
    ]  # fmt: skip
    pairs = inside = 0
    for family in families:
        assert len(family) > 10
        shapes = valid(family)
        assert len(shapes) > len(family) // 2
        row, x, y = points_near(rng, shapes, 12_000)
        assert disagreements(shapes, row, x, y) < 100  # shapely is not exact near 0: products underflow
        pairs, inside = pairs + len(row), inside + np.count_nonzero(Polygons.of(shapes).contains(row, x, y))
    assert pairs > 100_000
    assert pairs / 3 < inside < pairs * 0.9


@pytest.mark.parametrize("factor", [2.0**1000, 2.0**498, 1e140, 1e-150, 2.0**-600, 1e-300, 2.0**-1040, 2.0**-1072])
def test_huge_and_denormal_coordinates_are_exact(factor: float) -> None:
    """Where products overflow and underflow. Most of these polygons are not valid any more: the definition decides."""
    rng = np.random.default_rng(21)
    for family in (blobs(rng, 20, 9), unions(rng, 10), with_repeats(unions(rng, 3), 4)):
        shapes = scaled(family, factor)
        row, x, y = points_near(rng, shapes, 300)
        expected = [is_inside(shapes[r], *point) for r, *point in zip(row, x.tolist(), y.tolist(), strict=True)]
        assert Polygons.of(shapes).contains(row, x, y).tolist() == expected


_numbers = (
    st.sampled_from([-180.0, -90.0, -1.0, -0.0, 0.0, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 90.0, 180.0, 5e-324, -5e-324])
    | st.sampled_from([sys.float_info.max, -sys.float_info.max, 1e150, 1e-150, 1e308])
    | st.integers(-3, 3).map(float)
    | st.builds(math.nextafter, st.integers(-2, 2).map(float), st.sampled_from([-math.inf, math.inf]))
    | st.floats(allow_nan=False, allow_infinity=False)
)
_points = st.tuples(_numbers, _numbers)
_small = st.tuples(*[st.integers(0, 4).map(float)] * 2)
_rings = st.lists(_points, min_size=3, max_size=8) | st.lists(_small, min_size=3, max_size=12)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Shapes, list[tuple[float, float]]]:
    """A shape of any rings, also invalid ones, and points: its vertices, on its edges, beside, anywhere."""
    rings = draw(st.lists(_rings, min_size=1, max_size=3))
    shape = with_repeats(np.array([shapely.Polygon(rings[0], rings[1:])]), draw(st.sampled_from([1, 1, 9, 40])))
    vertices = [point for ring in rings for point in ring]
    points = list(vertices)
    for (ax, ay), (bx, by) in draw(st.lists(st.tuples(*[st.sampled_from(vertices)] * 2), max_size=5)):
        points += [(ax / 2 + bx / 2, ay / 2 + by / 2), (ax, by), (math.nextafter(ax, bx), math.nextafter(ay, by))]
    return shape, points + draw(st.lists(_points | _small, max_size=5))


@extensive()
@given(case=cases())
def test_any_rings_are_exact(case: tuple[Shapes, list[tuple[float, float]]]) -> None:
    """For all finite coordinates, also if rings cross, touch, or are lines."""
    shape, points = case
    x, y = zip(*points, strict=True)
    inside = Polygons.of(shape).contains([0] * len(points), x, y)
    assert inside.tolist() == [is_inside(shape[0], *point) for point in points]


@given(rings=st.lists(_rings, min_size=1, max_size=3), points=st.lists(_points, min_size=1, max_size=4))
def test_the_order_of_points_and_rings_does_not_matter(rings: Any, points: Any) -> None:
    """Nor does where a ring begins."""
    x, y = zip(*points, strict=True)
    turned = [[*ring[1:], ring[0]][::-1] for ring in rings][::-1]
    shapes = np.array([shapely.Polygon(each[0], each[1:]) for each in (rings, turned)])
    one, other = (Polygons.of(shapes).contains([row] * len(points), x, y).tolist() for row in (0, 1))
    assert one == other


def test_a_point_on_any_border_is_inside() -> None:
    """On the outer border and that of a hole, at vertices, on slanted, level and upright edges."""
    shape = shapely.from_wkt("POLYGON((0 0,8 0,8 8,4 12,0 8,0 0),(2 2,6 2,4 6,2 2))")
    on = [(0, 0), (8, 8), (4, 12), (4, 0), (8, 3), (6, 10), (1, 9), (2, 2), (4, 2), (5, 4), (3, 4), (4, 6)]
    off = [(4, 3), (4, 5.9), (-1, 0), (9, 0), (9, 8), (-1, 8), (4, 13), (0, 12), (8, 12), (7, 9.5)]
    x, y = zip(*on, *off, strict=True)
    inside = Polygons.of(np.array([shape])).contains([0] * len(x), x, y)
    assert inside.tolist() == [True] * len(on) + [False] * len(off)


@pytest.mark.parametrize("far", [math.nan, math.inf, -math.inf])
def test_points_that_are_not_finite_are_outside(far: float) -> None:
    """In either coordinate; few and many edges."""
    shapes = np.array([shapely.box(0, 0, 2, 2), shapely.Point(0, 0).buffer(2, quad_segs=100)])
    for row in (0, 1):
        assert not Polygons.of(shapes).contains([row] * 3, [far, 1, far], [1, far, far]).any()


def test_a_comb_is_decided_at_every_tooth() -> None:
    """Blocks beside the point are crossed although none of their edges is read."""
    teeth = 5000
    x = np.repeat(np.arange(teeth + 1.0), 2)[1:-1]
    ends = np.tile([0.0, 9.0], teeth)
    comb = shapely.Polygon([*zip(x, ends, strict=True), (teeth, -1), (0, -1)])
    assert comb.is_valid
    rng = np.random.default_rng(3)
    px, py = rng.uniform(-1, teeth + 1, 2000), rng.uniform(-2, 10, 2000)
    assert disagreements(np.array([comb]), np.zeros(2000, np.int64), px, py) == 0
