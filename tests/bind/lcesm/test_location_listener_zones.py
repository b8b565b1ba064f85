from __future__ import annotations

import numpy as np
import pytest
from binding import places
from hypothesis import given
from hypothesis import strategies as st

from roamcast.bind.lcesm.location_listener import ZoneTable, zone_of
from roamcast.lacl.syntax import BoxRegion, Circle, Nearest, Within
from roamcast.model import Box
from roamcast.places import Places
from roamcast.space import GEOGRAPHIC, PLANAR, contains

NO_PLACES = Places({}, PLANAR)


@given(
    x=st.floats(-180, 180),
    y=st.floats(-90, 90),
    radius=st.floats(0, 2e7),
    bearing=st.floats(0, 2 * np.pi),
    share=st.floats(0, 1.01),
)
def test_geographic_bounds_contain_the_circle(x: float, y: float, radius: float, bearing: float, share: float) -> None:
    """Also over the poles and across the antimeridian."""
    angle = share * radius / 6_371_000
    up = np.degrees(angle * np.cos(bearing))
    py = float(np.clip(y + up, -90, 90))
    px = x + float(np.degrees(angle * np.sin(bearing)) / max(np.cos(np.radians(py)), 1e-6))
    px = (px + 180) % 360 - 180
    zone = zone_of(Circle(x, y, radius), GEOGRAPHIC, NO_PLACES)
    if GEOGRAPHIC.distance(x, y, px, py) <= radius:
        assert contains(*zone.bounds, px, py)


@given(x=st.floats(-1e6, 1e6), radius=st.floats(0, 1e6))
def test_planar_bounds_contain_the_circle(x: float, radius: float) -> None:
    """Also its outermost points, however sums are rounded."""
    zone = zone_of(Circle(x, 0, radius), PLANAR, NO_PLACES)
    for px in (np.nextafter(x + radius, np.inf), x + radius, x - radius, np.nextafter(x - radius, -np.inf)):
        if PLANAR.distance(x, 0, px, 0) <= radius:
            assert contains(*zone.bounds, px, 0)


def test_a_relative_region_has_no_zone() -> None:
    """The check of a query excludes it."""
    with pytest.raises(ValueError, match="relative"):
        zone_of(Nearest(), PLANAR, NO_PLACES)


def test_points_are_tested_pair_by_pair() -> None:
    """Each with its own zone."""
    zones = ZoneTable(PLANAR, places(room=(0, 0, 2, 2)))
    room, circle, box = zones.acquire([Within("room"), Circle(5, 5, 1), BoxRegion(Box(0, 0, 9, 9))])
    numbers = np.array([circle, room, box, circle, room, circle], np.int32)
    x = np.array([5.9, 1.0, 9.0, 5.8, 3.0, np.nan])
    y = np.array([5.0, 1.0, 9.0, 5.8, 1.0, 5.0])
    assert zones.contain(numbers, x, y).tolist() == [True, True, True, False, False, False]


def test_equal_regions_share_a_number() -> None:
    """It is used again after the last release."""
    zones = ZoneTable(PLANAR, NO_PLACES)
    (first,), (second,) = zones.acquire([Circle(0, 0, 1)]), zones.acquire([Circle(0, 0, 1)])
    assert first == second
    zones.release(first)
    assert zones.acquire([Circle(0, 0, 2)]) != [first]
    zones.release(first)
    assert zones.acquire([Circle(0, 0, 3)]) == [first]
    assert zones.contain(np.array([first], np.int32), np.array([2.5]), np.array([0.0])).tolist() == [True]
