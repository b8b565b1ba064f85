"""Tests of roamcast.spark.rows.geometry: columns of geometry, and what is wrong with their rows."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from shapes import Shapes, blobs, nested, points_near, unions

from roamcast.match.index.polygons import Polygons
from roamcast.space import GEOGRAPHIC, PLANAR, Space, contains
from roamcast.spark.rows.geometry import Regions, read_points, read_regions

TRIANGLE = "POLYGON((0 0,9 0,0 9,0 0))"
SQUARE = "POLYGON((0 0,9 0,9 9,0 9,0 0))"
SPLIT = "MULTIPOLYGON(((170 0,180 0,180 10,170 0)),((-180 0,-170 0,-180 10,-180 0)))"


def wkb(text: str, **options: Any) -> bytes:
    with np.errstate(invalid="ignore"):
        return bytes(shapely.to_wkb(shapely.from_wkt(text), **options))


def ewkb(text: str, srid: int) -> bytes:
    return bytes(shapely.to_wkb(shapely.set_srid(shapely.from_wkt(text), srid), include_srid=True))


def regions(values: Sequence[Any] | pa.Array, space: Space = GEOGRAPHIC) -> tuple[Regions, list[str | None]]:
    column = values if isinstance(values, pa.Array) else pa.array(values)
    problems: dict[int, str] = {}
    return read_regions(column, space, problems), [problems.get(row) for row in range(len(column))]


def points(values: Sequence[Any] | pa.Array, space: Space = GEOGRAPHIC) -> tuple[list[Any], list[str | None]]:
    column = values if isinstance(values, pa.Array) else pa.array(values)
    problems: dict[int, str] = {}
    x, y = read_points(column, space, problems)
    assert (np.isnan(x) == np.isnan(y)).all()
    return [None if math.isnan(a) else (a, b) for a, b in zip(x, y, strict=True)], [
        problems.get(row) for row in range(len(column))
    ]


def same(one: Polygons, other: Polygons) -> bool:
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one.arrays, other.arrays, strict=True))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([wkb(TRIANGLE), None, wkb(SQUARE), wkb(SPLIT)]),
        pa.array([wkb(TRIANGLE, byte_order=0), None, wkb(SQUARE, byte_order=0), wkb(SPLIT)], pa.large_binary()),
        pa.array([ewkb(TRIANGLE, 4326), None, ewkb(SQUARE, 0), ewkb(SPLIT, 4326)]),
        pa.array([TRIANGLE.lower(), None, SQUARE, f" {SPLIT}"]),
        pa.array(["POLYGON Z((0 0 1,9 0 2,0 9 3,0 0 1))", None, "POLYGON M((0 0 1,9 0 2,9 9 3,0 9 4,0 0 1))", SPLIT]),
        pa.array([*map(shapely.to_geojson, shapely.from_wkt([TRIANGLE, None, SQUARE, SPLIT]))]),
        pa.array([TRIANGLE, None, shapely.to_geojson(shapely.from_wkt(SQUARE), indent=1), SPLIT], pa.string_view()),
        pa.array([None, wkb(TRIANGLE), None, wkb(SQUARE), wkb(SPLIT, flavor="iso")])[1:],
        pa.array([wkb(TRIANGLE), None, wkb(SQUARE), wkb(SPLIT)]).dictionary_encode(),
    ],
)
def test_encodings_give_the_same_regions(column: pa.Array) -> None:
    """WKB, WKT and GeoJSON, also with heights. A rectangle is its box; a null is no region."""
    read, problems = regions(column)
    assert problems == [None] * 4
    assert same(read.polygons, Polygons.of(np.array([*shapely.from_wkt([TRIANGLE, None, None, SPLIT])])))
    expected = [[0, 0, 9, 9], [math.nan] * 4, [0, 0, 9, 9], [170, 0, -170, 10]]
    assert np.array_equal(read.box, expected, equal_nan=True)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("POLYGON((0 0,2 2,2 0,0 2,0 0))", "the geometry is not valid: Self-intersection[1 1]"),
        ("POLYGON((0 0,9 0,9 9,0 9,0 0),(5 5,20 5,20 6,5 6,5 5))", "the geometry is not valid: Self-intersection[9 5]"),
        ("POLYGON((0 0,1 1,0 0,1 1,0 0))", "the geometry is not valid: Self-intersection[1 1]"),
        ("MULTIPOLYGON(((0 0,2 0,2 2,0 0)),((1 0,3 0,3 2,1 0)))", "the geometry is not valid: Self-intersection[1 0]"),
        ("POLYGON((0 0,1 nan,1 1,0 0))", "the geometry is not valid: Invalid Coordinate[1 nan]"),
        ("POLYGON((0 0,1 inf,1 1,0 0))", "y is infinite, at point 2"),
        ("POLYGON((0 0,1 0,1 90.5,0 0))", "y 90.5 is outside -90 to 90, at point 3"),
        (
            "POLYGON((170 0,190 0,190 5,170 0))",
            "x 190 is outside -180 to 180, at point 2; split the geometry at the antimeridian",
        ),
        ("POLYGON((0 0,500000 0,0 5,0 0))", "x 500000 is outside -180 to 180, at point 2"),
        ("POINT(1 2)", "the geometry must be a Polygon or MultiPolygon, not Point"),
        ("LINESTRING(1 2,3 4)", "the geometry must be a Polygon or MultiPolygon, not LineString"),
        ("GEOMETRYCOLLECTION(POINT(1 2))", "the geometry must be a Polygon or MultiPolygon, not GeometryCollection"),
        ("POLYGON EMPTY", "the geometry is empty"),
        ("MULTIPOLYGON EMPTY", "the geometry is empty"),
        ("MULTIPOLYGON(EMPTY)", "the geometry is empty"),
    ],
)
def test_bad_regions_are_refused(value: str, problem: str) -> None:
    """As WKT and as WKB, between good ones."""
    for good, bad in ((TRIANGLE, value), (wkb(TRIANGLE), wkb(value))):
        read, problems = regions([good, bad, good])
        assert problems == [None, problem, None]
        assert read.polygons.is_present.tolist() == [True, False, True]
        assert np.isnan(read.box).all(axis=1).tolist() == [False, True, False]


NOT_CLOSED = "a ring is not closed: its last point must be its first"
NO_KIND = "not WKB: it does not begin with the kind of a geometry"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"", NO_KIND),
        (b"\1\3\0", NO_KIND),
        (b"POLYGON((0 0,1 0,1 1,0 0))", NO_KIND),
        (struct.pack("<BII", 1, 99, 0), NO_KIND),
        (wkb(TRIANGLE)[:-3], "not WKB: Input buffer is smaller than requested object size"),
        (struct.pack("<BIII", 1, 3, 1, 4_000_000_000), "not WKB: Input buffer is smaller than requested object size"),
        (struct.pack("<BIII6d", 1, 3, 1, 3, 0, 0, 1, 0, 1, 1), NOT_CLOSED),
        (struct.pack("<BII", 1, 10, 0), "the geometry must be a Polygon or MultiPolygon, not CurvePolygon"),
        (struct.pack("<BIIBII", 1, 6, 1, 1, 10, 0), "not WKB: Expected Polygon but got CurvePolygon"),
        (
            struct.pack("<BII", 1, 7, 1) * 100_000,
            "the geometry must be a Polygon or MultiPolygon, not GeometryCollection",
        ),
        (ewkb(TRIANGLE, 3857), "SRID 3857 is not 4326: convert to longitude and latitude"),
        ("", "not WKT: ''"),
        ("the square", "not WKT: 'the square'"),
        ("SRID=4326;POLYGON((0 0,1 0,1 1,0 0))", "not WKT: 'SRID=4326;POLYGON((0 0,1 0,1 1,0 0))'"),
        ("POLYGON((0 0,1 0,1 1))", NOT_CLOSED),
        ("POLYGON((0 0,1 0", "not WKT: Expected word but encountered end of stream"),
        ("CURVEPOLYGON EMPTY", "the geometry must be a Polygon or MultiPolygon, not CurvePolygon"),
        ("{", "not JSON: unexpected end of data at character 2"),
        ("{}", "the geometry must be a Polygon or MultiPolygon, not none"),
        ('{"type": "Feature"}', "the geometry must be a Polygon or MultiPolygon, not Feature"),
        ('{"type": "Polygon", "coordinates": [[[0, "a"]]]}', "not GeoJSON: type must be number, but is string"),
        ('{"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1]]]}', NOT_CLOSED),
    ],
)
def test_what_is_no_geometry_is_refused(value: Any, problem: str) -> None:
    """Truncated, of an unknown kind, in another reference system."""
    assert regions([value, None])[1] == [problem, None]


def test_known_problems_are_kept() -> None:
    """The first problem of a row is reported."""
    problems = {1: "terms has a null"}
    read_regions(pa.array(["POINT(1 2)", "POINT(1 2)"]), GEOGRAPHIC, problems)
    assert problems == {0: "the geometry must be a Polygon or MultiPolygon, not Point", 1: "terms has a null"}


def test_planar_space_has_other_limits() -> None:
    """Any reference system, metres, and no antimeridian."""
    far = "POLYGON((0 0,1e150 0,0 1e150,0 0))"
    read, problems = regions([ewkb(TRIANGLE, 3857), wkb(SPLIT), wkb(far), wkb(far.replace("1e150", "2e150"))], PLANAR)
    assert problems == [None, None, None, "x 2e+150 is outside -1e+150 to 1e+150, at point 2"]
    assert read.box[:3].tolist() == [[0, 0, 9, 9], [-180, 0, 180, 10], [0, 0, 1e150, 1e150]]


@pytest.mark.parametrize(
    ("text", "is_box"),
    [
        (SQUARE, True),
        ("POLYGON((10 10,10 0,0 0,0 10,10 10))", True),
        ("MULTIPOLYGON(((0 0,10 0,10 10,0 10,0 0)))", False),
        ("POLYGON((0 0,5 0,10 0,10 10,0 10,0 0))", False),
        ("POLYGON((0 0,10 0,10 10,0 9.999999999999,0 0))", False),
        ("POLYGON((0 0,10 1e-300,10 10,0 10,0 0))", False),
        ("POLYGON((5 0,10 5,5 10,0 5,5 0))", False),
        ("POLYGON((0 0,10 0,10 0,0 10,0 0))", False),
        ("POLYGON((0 0,9 0,9 9,0 9,0 0),(2 2,4 2,4 4,2 4,2 2))", False),
    ],
)
def test_only_plain_rectangles_are_boxes(text: str, is_box: bool) -> None:
    """Along the axes, exactly, with four corners. What is not recognised is a polygon, which is exact too."""
    read, problems = regions([wkb(text)])
    assert (read.polygons.is_present.tolist(), problems) == ([not is_box], [None])


def wkt(shape: Any) -> str:
    """The exact numbers, which shapely does not write."""
    parts = [
        [shapely.get_coordinates(ring).tolist() for ring in shapely.get_rings(p)] for p in shapely.get_parts(shape)
    ]
    return "MULTIPOLYGON" + re.sub(r"\[([^][]+), ([^][]+)\]", r"\1 \2", repr(parts)).replace("[", "(").replace("]", ")")


@pytest.mark.parametrize("seed", range(3))
def test_random_regions_contain_what_their_shapes_do(seed: int) -> None:
    """Whichever way they were written: the numbers stay the same."""
    rng = np.random.default_rng(seed)
    boxes = shapely.box(*rng.random((2, 9)), 2, 3)
    shapes: Shapes = np.concatenate([blobs(rng, 20, 12), unions(rng, 20), nested(rng, 5), boxes])
    shapes = shapes[shapely.is_valid(shapes)]
    row, x, y = points_near(rng, shapes, 2000)
    expected = Polygons.of(shapes).contains(row, x, y)
    for column in (shapely.to_wkb(shapes), [wkt(shape) for shape in shapes], shapely.to_geojson(shapes)):
        read, problems = regions(pa.array(column))
        assert problems == [None] * len(shapes)
        in_polygon = ~read.polygons.is_present[row] | read.polygons.contains(row, x, y)
        assert np.array_equal(contains(*read.box[row].T, x, y) & in_polygon, expected)


coordinates = st.tuples(*[st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, 5e-324, 180.0])] * 2)


@given(pairs=st.lists(coordinates, min_size=1, max_size=9), skipped=st.integers(0, 3))
def test_plain_points_are_read_like_others(pairs: list[tuple[float, float]], skipped: int) -> None:
    """The fast path gives what shapely gives: in whole and in sliced columns."""
    with np.errstate(all="ignore"):
        column = pa.array(shapely.to_wkb(shapely.points(pairs)))
        mixed = pa.concat_arrays([column, pa.array([wkb("POINT Z(1 2 3)")])])
    assert points(column[skipped:]) == (pairs[skipped:], [None] * len(pairs[skipped:]))
    assert points(mixed) == ([*pairs, (1, 2)], [None] * (len(pairs) + 1))


def test_bad_points_are_refused() -> None:
    """Other kinds and empty ones; a null is no point."""
    values = [wkb("POINT(1 2)"), None, wkb("POINT EMPTY"), wkb(TRIANGLE), b"\1", ewkb("POINT(3 4)", 3857)]
    problems = [
        None, None, "the geometry is empty", "the geometry must be a Point, not Polygon", NO_KIND,
        "SRID 3857 is not 4326: convert to longitude and latitude",
    ]  # fmt: skip
    assert points(values) == ([(1, 2), *[None] * 5], problems)
    assert points([wkb("POINT EMPTY")]) == ([None], ["the geometry is empty"])
    assert points(["POINT(1 2)", '{"type": "Point", "coordinates": [3, 4, 5]}']) == ([(1, 2), (3, 4)], [None, None])
    assert points(pa.array([], pa.binary())) == ([], [])
