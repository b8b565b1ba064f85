"""Tests of roamcast.match.index.circles: a box contains its circle and is not much larger."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import extensive

from roamcast.match.index.circles import Extents, boxes_around, room_to_move
from roamcast.space import GEOGRAPHIC, PLANAR, Space, contains


def box_of(space: Space, x: float, y: float, radius: float) -> np.ndarray:
    return boxes_around(space, [x], Extents.of(space, [x], [y], [radius]))[0]


def points_near(rng: np.random.Generator, space: Space, x: float, y: float, radius: float) -> np.ndarray:
    """Return points near the border of the circle, and anywhere."""
    turn, way = rng.uniform(0, 2 * np.pi, 500), radius * rng.uniform(0.9, 1.01, 500)
    if space is PLANAR:
        return np.stack([x + way * np.cos(turn), y + way * np.sin(turn)])
    degrees = way / 111_000
    east = x + degrees * np.cos(turn) / max(np.cos(np.radians(y)), 1e-3)
    near = np.stack([(east + 180) % 360 - 180, np.clip(y + degrees * np.sin(turn), -90, 90)])
    everywhere = np.stack([rng.uniform(-180, 180, 500), np.degrees(np.arcsin(rng.uniform(-1, 1, 500)))])
    special = np.array([[180, -180, x, x, 0], [y, y, 90, -90, y]], np.float64)
    return np.concatenate([near, everywhere, special], axis=1)


@given(
    st.floats(-180, 180),
    st.floats(-90, 90) | st.sampled_from([-90.0, 89.9999, 90.0, 0.0]),
    st.floats(0, 2.1e7) | st.sampled_from([0.0, 1e-3, 50.0, 1_000.0, 1e7]),
    st.integers(0, 2**32 - 1),
)
@extensive()
def test_a_geographic_circle_lies_in_its_box(x: float, y: float, radius: float, seed: int) -> None:
    """Including circles around a pole, across the antimeridian and around the world."""
    points = points_near(np.random.default_rng(seed), GEOGRAPHIC, x, y, radius)
    inside = GEOGRAPHIC.distance(x, y, *points) <= radius
    assert contains(*box_of(GEOGRAPHIC, x, y, radius), *points[:, inside]).all()


@given(st.floats(-1e12, 1e12), st.floats(-1e12, 1e12), st.floats(0, 1e12), st.integers(0, 2**32 - 1))
@extensive()
def test_a_planar_circle_lies_in_its_box(x: float, y: float, radius: float, seed: int) -> None:
    """Rounding does not push a point of the circle out of the box."""
    points = points_near(np.random.default_rng(seed), PLANAR, x, y, radius)
    points = np.concatenate([points, [[x + radius, x - radius, x, x], [y, y, y + radius, y - radius]]], axis=1)
    inside = PLANAR.distance(x, y, *points) <= radius
    assert contains(*box_of(PLANAR, x, y, radius), *points[:, inside]).all()


@pytest.mark.parametrize(("x", "y"), [(8.8, 53.1), (-179.99, -16.5), (0.0, 0.0), (25.0, 70.0)])
def test_a_box_is_at_most_one_percent_larger_than_its_circle(x: float, y: float) -> None:
    """In each direction."""
    west, south, east, north = box_of(GEOGRAPHIC, x, y, 10_000.0)
    width = (east - west) % 360 * np.cos(np.radians(y)) * 111_320
    assert 20_000 <= width * 1.01 <= 20_400 * 1.01
    assert 20_000 <= (north - south) * 111_320 <= 20_400


def test_a_box_at_the_antimeridian_contains_180_and_minus_180() -> None:
    """A circle that touches it contains both longitudes."""
    box = box_of(GEOGRAPHIC, 179.9, 0.0, 50_000.0)
    assert contains(*box, [180.0, -180.0, -179.9], [0.0, 0.0, 0.0]).all()


@pytest.mark.parametrize("space", [GEOGRAPHIC, PLANAR])
@given(
    st.floats(-180, 180),
    st.floats(-90, 90) | st.sampled_from([-90.0, 89.99, 0.0]),
    st.sampled_from([0.0, 10.0, 1e3, 1e5, 5e6]),
    st.sampled_from([0.0, 1.0, 1e3, 1e6]),
    st.floats(-1, 1),
    st.floats(-1, 1),
)
@extensive()
def test_a_circle_stays_in_its_box_while_the_centre_stays_in_its_room(
    space: Space, x: float, y: float, radius: float, slack: float, east: float, north: float
) -> None:
    """Wherever in the room the centre moves."""
    room_x, room_y = room_to_move(space, x, y, radius, slack)
    box = box_of(space, x, y, radius + slack)
    moved_x, moved_y = x + east * min(float(room_x), 180.0), y + north * float(room_y)
    if space is GEOGRAPHIC:
        moved_x, moved_y = (moved_x + 180) % 360 - 180, min(max(moved_y, -90.0), 90.0)
    points = points_near(np.random.default_rng(5), space, moved_x, moved_y, radius)
    inside = space.distance(moved_x, moved_y, *points) <= radius
    assert contains(*box, *points[:, inside]).all()
