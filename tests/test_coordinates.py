"""Checks of points and boxes."""

from __future__ import annotations

import pytest

from roamcast.coordinates import GEOGRAPHIC_LIMITS, PLANAR_LIMITS
from roamcast.errors import InputError
from roamcast.model import Box

CROSSING = Box(170, -20, -170, 20)
PLAIN = Box(-170, -20, 170, 20)


def test_box_that_crosses_the_antimeridian_must_be_stated() -> None:
    """Swapped corners are an error unless the caller says that the box crosses."""
    GEOGRAPHIC_LIMITS.check_box(CROSSING, crosses_antimeridian=True)
    with pytest.raises(InputError, match="crosses_antimeridian") as error:
        GEOGRAPHIC_LIMITS.check_box(CROSSING, crosses_antimeridian=False)
    assert error.value.where == "min_x"


def test_box_that_does_not_cross_must_not_be_stated_to() -> None:
    """The statement and the order of min_x and max_x must agree."""
    GEOGRAPHIC_LIMITS.check_box(PLAIN, crosses_antimeridian=False)
    with pytest.raises(InputError) as error:
        GEOGRAPHIC_LIMITS.check_box(PLAIN, crosses_antimeridian=True)
    assert error.value.where == "crosses_antimeridian"


def test_order_decides_where_nothing_is_stated() -> None:
    """LACL and internal boxes follow the order of min_x and max_x."""
    GEOGRAPHIC_LIMITS.check_box(CROSSING)
    GEOGRAPHIC_LIMITS.check_box(PLAIN)


@pytest.mark.parametrize("stated", [True, False, None])
def test_planar_boxes_never_cross(stated: bool | None) -> None:
    """A plane has no antimeridian."""
    with pytest.raises(InputError) as error:
        PLANAR_LIMITS.check_box(CROSSING, crosses_antimeridian=stated)
    assert error.value.where == "min_x"
