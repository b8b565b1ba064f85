"""Validation of coordinates, distances and boxes."""

from __future__ import annotations

import math
import pickle

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from roamcast.errors import InputError
from roamcast.model import Box
from roamcast.space import GEOGRAPHIC, PLANAR, SPACES, Space, contains

EQUATORIAL_RADIUS = 6_378_137.0
FLATTENING = 1 / 298.257223563
QUARTER_MERIDIAN = 10_001_965.729


def vincenty(x1: float, y1: float, x2: float, y2: float) -> float | None:
    """The geodesic on WGS84 by Vincenty's iteration, good to a millimetre; None if it does not converge."""
    u1, u2 = (math.atan((1 - FLATTENING) * math.tan(math.radians(y))) for y in (y1, y2))
    sin1, cos1, sin2, cos2 = math.sin(u1), math.cos(u1), math.sin(u2), math.cos(u2)
    turn = longitude = math.radians(x2 - x1)
    for _ in range(200):
        sin_l, cos_l = math.sin(longitude), math.cos(longitude)
        sin_s = math.hypot(cos2 * sin_l, cos1 * sin2 - sin1 * cos2 * cos_l)
        if sin_s == 0:
            return 0.0
        cos_s = sin1 * sin2 + cos1 * cos2 * cos_l
        sigma = math.atan2(sin_s, cos_s)
        sin_a = cos1 * cos2 * sin_l / sin_s
        cos2_a = 1 - sin_a**2
        middle = cos_s - 2 * sin1 * sin2 / cos2_a if cos2_a > 1e-15 else 0.0
        c = FLATTENING / 16 * cos2_a * (4 + FLATTENING * (4 - 3 * cos2_a))
        before = longitude
        inner = middle + c * cos_s * (2 * middle**2 - 1)
        longitude = turn + (1 - c) * FLATTENING * sin_a * (sigma + c * sin_s * inner)
        if abs(longitude - before) < 1e-12:
            break
    else:
        return None
    polar = EQUATORIAL_RADIUS * (1 - FLATTENING)
    u = cos2_a * (EQUATORIAL_RADIUS**2 - polar**2) / polar**2
    a = 1 + u / 16384 * (4096 + u * (u * (320 - 175 * u) - 768))
    b = u / 1024 * (256 + u * (u * (74 - 47 * u) - 128))
    last = b / 6 * middle * (4 * sin_s**2 - 3) * (4 * middle**2 - 3)
    return polar * a * (sigma - b * sin_s * (middle + b / 4 * (cos_s * (2 * middle**2 - 1) - last)))


longitudes, latitudes = st.floats(-180, 180), st.floats(-90, 90)


@pytest.mark.parametrize(
    ("start", "end", "metres"),
    [
        ((0, 0), (1, 0), math.radians(1) * EQUATORIAL_RADIUS),
        ((0, 0), (0, 90), QUARTER_MERIDIAN),
        ((12, -90), (-70, 90), 2 * QUARTER_MERIDIAN),
        ((-73.8, 40.6), (-0.5, 51.6), 5_551_759.400),  # New York to London
        ((144 + 25 / 60 + 29.5244 / 3600, -(37 + 57 / 60 + 3.7203 / 3600)),
         (143 + 55 / 60 + 35.3839 / 3600, -(37 + 39 / 60 + 10.1561 / 3600)), 54_972.271),
        ((179.5, 0), (-179.5, 0), math.radians(1) * EQUATORIAL_RADIUS),
        ((180, 10), (-180, 10), 0),
    ],
)  # fmt: skip
def test_known_distances(start: tuple[float, float], end: tuple[float, float], metres: float) -> None:
    """Published geodesics are reproduced within 2e-6."""
    assert GEOGRAPHIC.distance(*start, *end) == pytest.approx(metres, rel=2e-6, abs=1e-6)


@given(x1=longitudes, y1=latitudes, x2=longitudes, y2=latitudes)
def test_geographic_distance_is_as_accurate_as_it_says(x1: float, y1: float, x2: float, y2: float) -> None:
    """Lambert's formula agrees with Vincenty's within the documented bounds."""
    exact = vincenty(x1, y1, x2, y2)
    assume(exact is not None and exact <= 19_000_000)
    assert exact is not None
    bound = 2e-6 if exact < 10_000_000 else 5e-5
    assert GEOGRAPHIC.distance(x1, y1, x2, y2) == pytest.approx(exact, rel=bound, abs=0.01)


@example(x=0, y=0, dx=0, dy=0)
@example(x=0, y=90, dx=0, dy=0)
@given(x=longitudes, y=latitudes, dx=st.floats(-1, 1), dy=st.floats(-1, 1))
def test_distances_near_the_antipode_are_bounded(x: float, y: float, dx: float, dy: float) -> None:
    """Near the antipode the distance is within 1/500 of half a meridian ellipse."""
    metres = GEOGRAPHIC.distance(x, y, x + 180 + dx, max(-90.0, min(90.0, -y + dy)))
    nearest = 2 * QUARTER_MERIDIAN - math.hypot(111_700 * dx, 111_700 * dy)
    assert nearest * (1 - 1 / 500) <= metres <= 2 * QUARTER_MERIDIAN * (1 + 1 / 500)


@pytest.mark.parametrize("away", [1e-3, 1e-5, 1e-7])
def test_distances_near_a_pole_are_accurate(away: float) -> None:
    """Across the pole, and to the pole itself, at any longitude."""
    y = 90 - away
    metres = math.radians(90 - y) * EQUATORIAL_RADIUS / (1 - FLATTENING)  # the radius of curvature there
    assert GEOGRAPHIC.distance(33, 90, -70, y) == pytest.approx(metres, rel=2e-6)
    assert GEOGRAPHIC.distance(0, y, 180, y) == pytest.approx(2 * metres, rel=2e-6)


@pytest.mark.parametrize("space", [GEOGRAPHIC, PLANAR])
@given(x1=longitudes, y1=latitudes, x2=longitudes, y2=latitudes)
def test_distance_is_symmetric_and_zero_to_itself(space: Space, x1: float, y1: float, x2: float, y2: float) -> None:
    """In both spaces, for any two points."""
    assert space.distance(x1, y1, x2, y2) == pytest.approx(float(space.distance(x2, y2, x1, y1)))
    assert space.distance(x1, y1, x1, y1) == 0


@pytest.mark.parametrize("space", [GEOGRAPHIC, PLANAR])
def test_distance_broadcasts(space: Space) -> None:
    """One point and an array of points give an array of distances."""
    many = space.distance(0, 0, [1.0, 2.0, math.nan], [1.0, 2.0, 0.0])
    assert many[:2].tolist() == [space.distance(0, 0, 1, 1), space.distance(0, 0, 2, 2)]
    assert math.isnan(many[2])


def test_planar_distance_is_euclidean() -> None:
    """Planar distances are Euclidean."""
    assert PLANAR.distance(1, 1, 4, 5) == 5


@pytest.mark.parametrize(
    ("space", "x", "y", "where", "message"),
    [
        (GEOGRAPHIC, math.nan, 0, "x", "is not a number"),
        (GEOGRAPHIC, 0, math.inf, "y", "is infinite"),
        (GEOGRAPHIC, 180.5, 0, "x", "180.5 is outside -180 to 180"),
        (GEOGRAPHIC, 0, -90.25, "y", "-90.25 is outside -90 to 90"),
        (PLANAR, math.nan, 0, "x", "is not a number"),
        (PLANAR, 0, -math.inf, "y", "is infinite"),
        (PLANAR, 1e200, 0, "x", "1e+200 is outside -1e+150 to 1e+150"),
    ],
)
def test_invalid_points_are_refused(space: Space, x: float, y: float, where: str, message: str) -> None:
    """The error names the coordinate and has a hint; the bulk check has the same message."""
    with pytest.raises(InputError) as caught:
        space.check_point(x, y)
    assert (caught.value.where, caught.value.message) == (where, message)
    assert caught.value.hint
    assert space.bad_points([0, x, 1], [0, y, 1]).tolist() == [None, f"{where} {message}", None]


@pytest.mark.parametrize(
    ("space", "x", "y"),
    [(GEOGRAPHIC, 180, 90), (GEOGRAPHIC, -180, -90), (GEOGRAPHIC, 0, 0), (PLANAR, 1e150, -1e150)],
)
def test_points_at_the_limits_are_valid(space: Space, x: float, y: float) -> None:
    """Poles, antimeridian and very large planar coordinates are valid."""
    space.check_point(x, y)
    assert space.bad_points([x], [y]).tolist() == [None]


@pytest.mark.parametrize(
    ("space", "box", "where", "message"),
    [
        (GEOGRAPHIC, Box(math.nan, 0, 1, 1), "min_x", "is not a number"),
        (GEOGRAPHIC, Box(0, 0, 1, math.inf), "max_y", "is infinite"),
        (GEOGRAPHIC, Box(0, -91, 1, 1), "min_y", "-91 is outside -90 to 90"),
        (GEOGRAPHIC, Box(0, 0, 181, 1), "max_x", "181 is outside -180 to 180"),
        (GEOGRAPHIC, Box(0, 2, 1, 1), "min_y", "2 is greater than max_y 1"),
        (PLANAR, Box(0, 2, 1, 1), "min_y", "2 is greater than max_y 1"),
        (PLANAR, Box(2, 0, 1, 1), "min_x", "2 is greater than max_x 1"),
        (PLANAR, Box(0, 0, 1, 1e151), "max_y", "1e+151 is outside -1e+150 to 1e+150"),
    ],
)
def test_invalid_boxes_are_refused(space: Space, box: Box, where: str, message: str) -> None:
    """The error names the coordinate and has a hint; the bulk check has the same message."""
    with pytest.raises(InputError) as caught:
        space.check_box(box)
    assert (caught.value.where, caught.value.message) == (where, message)
    assert caught.value.hint
    good = Box(0, 0, 1, 1)
    in_bulk = space.bad_boxes(*(np.array(column) for column in zip(good, box, good, strict=True)))
    assert in_bulk.tolist() == [None, f"{where} {message}", None]


@pytest.mark.parametrize(
    ("space", "box"),
    [
        (GEOGRAPHIC, Box(170, -10, -170, 10)),
        (GEOGRAPHIC, Box(3, 4, 3, 4)),
        (PLANAR, Box(-1e9, -1e9, 1e9, 1e9)),
    ],
)
def test_valid_boxes_are_accepted(space: Space, box: Box) -> None:
    """Boxes across the antimeridian, without area, and of any planar size are valid."""
    space.check_box(box)
    assert space.bad_boxes(*([c] for c in box)).tolist() == [None]


def test_contains_includes_borders_and_crosses_the_antimeridian() -> None:
    """A box with min_x > max_x contains both sides of the antimeridian and nothing between."""
    x = [0, 1, 2, 170, 180, -180, -170, -169, math.nan]
    assert contains(0, 0, 1, 1, x, 0).tolist() == [True, True] + [False] * 7
    assert contains(170, 0, -170, 1, x, 1).tolist() == [False] * 3 + [True] * 4 + [False] * 2


def test_contains_compares_longitudes_as_numbers() -> None:
    """A box that ends at 180 does not contain -180."""
    assert contains(170, 0, 180, 1, [180, -180], 0).tolist() == [True, False]


def test_contains_broadcasts_boxes_against_points() -> None:
    """A column of boxes and a row of points give a table."""
    table = contains([[0], [5]], 0, [[1], [6]], 1, [0, 5, 9], 0.5)
    assert table.tolist() == [[True, False, False], [False, True, False]]


def holds(space: Space, centre: tuple[float, float], radius: float, x: npt.ArrayLike, y: npt.ArrayLike) -> bool:
    """Whether the box around a circle is valid and contains all points."""
    box = space.box_around(*centre, radius)
    space.check_box(box)
    return bool(contains(*box, x, y).all())


offsets = st.sampled_from([1e-12, 1e-7, 1e-3, 1.0, 60.0]).flatmap(lambda size: st.floats(-size, size))
near_poles = st.builds(lambda pole, away: pole * (1 - abs(away) / 90), st.sampled_from([90.0, -90.0]), offsets)


@example(x=180, y=0, dx=0, dy=0)
@example(x=-180, y=0, dx=0, dy=0)
@example(x=180, y=12, dx=-1e-7, dy=0)
@example(x=-179.9, y=89.9, dx=-0.2, dy=0)
@example(x=0, y=90, dx=0, dy=-1e-12)
@example(x=0, y=-90, dx=30, dy=1e-3)
@example(x=0, y=0, dx=180, dy=0)
@given(x=longitudes, y=latitudes | near_poles, dx=offsets | longitudes, dy=offsets | latitudes)
def test_the_box_around_a_circle_contains_its_border(x: float, y: float, dx: float, dy: float) -> None:
    """For any two points, the box around the circle through the second contains the second."""
    other_x, other_y = math.remainder(x + dx, 360), max(-90.0, min(90.0, y + dy))
    radius = float(GEOGRAPHIC.distance(x, y, other_x, other_y))
    assert holds(GEOGRAPHIC, (x, y), radius, other_x, other_y)
    if abs(other_x) == 180:
        assert holds(GEOGRAPHIC, (x, y), radius, -other_x, other_y)


def reach(y: float, radius: float) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Latitudes of a circle around (0, y) and its eastern extent at each, by bisection; NaN outside the circle."""
    north = np.linspace(max(-90.0, y - radius / 110_000), min(90.0, y + radius / 110_000), 3001)
    low, high = np.zeros_like(north), np.full_like(north, 180.0)
    for _ in range(60):
        middle = (low + high) / 2
        inside = GEOGRAPHIC.distance(0, y, middle, north) <= radius
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    touched = GEOGRAPHIC.distance(0, y, 0, north) <= radius
    return north[touched], low[touched]


@pytest.mark.parametrize("y", [0, 30, -45, 60, 80, -89, 89.99])
@pytest.mark.parametrize("radius", [1e-3, 1, 1e3, 1e5, 1e6, 3e6])
def test_the_box_around_a_circle_is_tight(y: float, radius: float) -> None:
    """Away from the poles it is at most 2 % wider and higher than the circle."""
    north, east = reach(y, radius)
    assert holds(GEOGRAPHIC, (0, y), radius, east, north)
    assert holds(GEOGRAPHIC, (0, y), radius, -east, north)
    if radius / 110_000 < (90 - abs(y)) / 2:
        box = GEOGRAPHIC.box_around(0, y, radius)
        assert box.max_x - box.min_x <= 2 * east.max() * 1.02 + 1e-11
        assert box.max_y - box.min_y <= (north.max() - north.min()) * 1.02 + 1e-11


@pytest.mark.parametrize("x", [0, 100, 179.999, 180, -180, -100])
@pytest.mark.parametrize(("y", "radius"), [(85, 600_000), (-90, 1), (90, 0), (0, 1.1e7), (12, 3e7), (45, 1.7e308)])
def test_the_box_around_a_circle_over_a_pole_has_all_longitudes(x: float, y: float, radius: float) -> None:
    """Its latitudes exceed the radius by at most 2 %."""
    box = GEOGRAPHIC.box_around(x, y, radius)
    assert (box.min_x, box.max_x) == (-180, 180)
    assert holds(GEOGRAPHIC, (x, y), radius, [-180, 0, 180], y)
    for border, pole in ((box.min_y, -90), (box.max_y, 90)):
        assert border == pole or abs(border - y) <= radius / 110_000 * 1.02 + 1e-11


def test_the_box_around_a_point_is_a_point() -> None:
    """With radius 0 only the rounding margin remains."""
    for space in (GEOGRAPHIC, PLANAR):
        box = space.box_around(3, 4, 0)
        assert holds(space, (3, 4), 0, 3, 4)
        assert max(box.max_x - box.min_x, box.max_y - box.min_y) <= 1e-11


anything = st.floats(-1e150, 1e150)


@example(x=1e150, y=-1e150, dx=-7e149, dy=7e149)
@example(x=1e16, y=0, dx=1, dy=0)
@example(x=1e150, y=1e150, dx=-2e150, dy=-2e150)
@example(x=1e150, y=0, dx=0, dy=0)
@example(x=0, y=0, dx=5e-324, dy=5e-324)
@given(x=anything, y=anything, dx=anything | st.floats(-10, 10), dy=anything | st.floats(-10, 10))
def test_the_planar_box_around_a_circle_contains_its_border(x: float, y: float, dx: float, dy: float) -> None:
    """For any two points, the box around the circle through the second contains the second."""
    assume(PLANAR.bad_points([x + dx], [y + dy])[0] is None)
    radius = float(PLANAR.distance(x, y, x + dx, y + dy))
    assert holds(PLANAR, (x, y), radius, x + dx, y + dy)


@given(x=st.floats(-1e100, 1e100), y=st.floats(-1e100, 1e100), radius=st.floats(0, 1e100))
def test_the_planar_box_around_a_circle_is_tight(x: float, y: float, radius: float) -> None:
    """It is larger by a few ulps or a billionth of the radius."""
    box = PLANAR.box_around(x, y, radius)
    for low, high, middle in ((box.min_x, box.max_x, x), (box.min_y, box.max_y, y)):
        room = radius * 1e-9 + 4 * max(math.ulp(low), math.ulp(high))
        assert max(middle - low, high - middle) - radius <= room


def test_spaces_can_be_pickled() -> None:
    """A space equals its copy and is found by name."""
    assert {name: pickle.loads(pickle.dumps(space)) for name, space in SPACES.items()} == SPACES
    assert [space.name for space in SPACES.values()] == list(SPACES)
