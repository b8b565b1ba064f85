"""Tables of subscriptions are checked: boxes, geometries, and both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely

from roamcast.match.index.polygons import Polygons
from roamcast.spark.rows.problems import PROBLEM
from roamcast.spark.rows.subscriptions import CheckedSubscriptions, SubscriptionReader

BOX = "POLYGON((0 0,4 0,4 3.5,0 3.5,0 0))"
ACROSS = "POLYGON((170 -1,-170 -1,-170 1,170 1,170 -1))"
TRIANGLE = "POLYGON((0 0,4 1,2 3.5,0 0))"
SPLIT = "MULTIPOLYGON(((170 -1,180 -1,180 1,170 1,170 -1)),((-180 -1,-170 -1,-170 1,-180 1,-180 -1)))"
DIFFERS = "the bbox differs from the geometry; omit it, or give the bbox alone"
NOT_SPLIT = "the bbox differs from the geometry; split the geometry at the antimeridian, or give the bbox alone"


def read(geometries: Sequence[str | None], boxes: Sequence[Sequence[Any] | None] | None) -> CheckedSubscriptions:
    names = ("geometry", *"wsen")[: 5 if boxes else 1]
    sides = zip(*(box or [None] * 4 for box in boxes), strict=True) if boxes else ()
    columns = [pa.array(geometries, pa.string()), *(pa.array(side, pa.float64()) for side in sides)]
    reader = SubscriptionReader("geographic", (), names, (1, 2, 3, 4) if boxes else (), None, None, geometry=0)
    return reader.read(pa.table(columns, list(names)))


def boxes_of(checked: CheckedSubscriptions) -> list[tuple[float, ...]]:
    return list(zip(*(side.tolist() for side in checked.subscriptions[:4]), strict=True))


def problems_of(checked: CheckedSubscriptions) -> list[str]:
    problems: list[str] = checked.bad_rows[PROBLEM].to_pylist()
    return problems


@pytest.mark.parametrize(
    ("geometry", "bbox", "expected"),
    [
        (BOX, None, (0, 0, 4, 3.5)),
        (BOX, [0, 0, 4, 3.5], (0, 0, 4, 3.5)),
        (ACROSS, None, (-170, -1, 170, 1)),
        (None, [170, -1, -170, 1], (170, -1, -170, 1)),
        (None, [2, 0, 2, 3], (2, 0, 2, 3)),
    ],
)
def test_a_rectangle_is_a_box(geometry: str | None, bbox: Any, expected: tuple[float, ...]) -> None:
    """A Polygon along the axes, a box without a geometry, or both if they agree."""
    checked = read([geometry], [bbox])
    assert (boxes_of(checked), problems_of(checked)) == ([expected], [])
    assert checked.polygons is not None
    assert not checked.polygons.is_present.any()


@pytest.mark.parametrize(
    ("geometry", "bbox", "expected"),
    [
        (TRIANGLE, None, (0, 0, 4, 3.5)),
        (TRIANGLE, [0, 0, 4, 3.5], (0, 0, 4, 3.5)),
        (SPLIT, None, (170, -1, -170, 1)),
        (SPLIT, [170, -1, -170, 1], (170, -1, -170, 1)),
        (SPLIT, [-180, -1, 180, 1], (170, -1, -170, 1)),
    ],
)
def test_other_regions_are_polygons(geometry: str, bbox: Any, expected: tuple[float, ...]) -> None:
    """In their box, which crosses the antimeridian if they are split there."""
    for checked in (read([geometry], [bbox]), read([None, geometry], None)):
        assert boxes_of(checked) == [expected]
        assert checked.polygons is not None
        coordinate = Polygons.of(np.array([shapely.from_wkt(geometry)])).arrays.coordinate
        assert np.array_equal(checked.polygons.arrays.coordinate, coordinate, equal_nan=True)


@pytest.mark.parametrize(
    ("geometry", "bbox", "problem"),
    [
        (BOX, [0, 0, 4, 4], DIFFERS),
        (TRIANGLE, [0, 0, 4, 4], DIFFERS),
        (TRIANGLE, [0, 0, 4, None], DIFFERS),
        (SPLIT, [-170, -1, 170, 1], DIFFERS),
        (ACROSS, [170, -1, -170, 1], NOT_SPLIT),
        (None, None, "w is missing"),
        (None, [0, 9, 1, 1], "min_y 9 is greater than max_y 1"),
        ("POINT(1 2)", [1, 2, 1, 2], "the geometry must be a Polygon or MultiPolygon, not Point"),
    ],
)
def test_bad_regions_are_reported(geometry: str | None, bbox: Any, problem: str) -> None:
    """Good rows around them stay."""
    checked = read([TRIANGLE, geometry, BOX], [None, bbox, None])
    assert problems_of(checked) == [problem]
    assert boxes_of(checked) == [(0, 0, 4, 3.5)] * 2
    assert checked.polygons is not None
    assert checked.polygons.is_present.tolist() == [True, False]


def test_a_geometry_without_boxes_is_required() -> None:
    """A null is a bad row."""
    checked = read([None, BOX], None)
    assert (problems_of(checked), len(boxes_of(checked))) == (["geometry is missing"], 1)
