"""Tests of roamcast.match.index.polygons: compiling, boxes, files, and the exact test of an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from shapes import Shapes, blobs, is_inside, nested, points_near, unions, with_repeats

from roamcast.errors import CorruptionError
from roamcast.match.index.lsm import IndexStore
from roamcast.match.index.polygons import Polygons
from roamcast.match.index.rows import index_rows
from roamcast.match.port import Events, Subscriptions
from roamcast.places import Places
from roamcast.space import GEOGRAPHIC, PLANAR, contains

FIJI = "MULTIPOLYGON(((170 0,180 0,180 10,170 0)),((-180 0,-165 0,-180 10,-180 0)))"


def shapes_of(*texts: str | None) -> Shapes:
    shapes: Shapes = np.array([None if text is None else shapely.from_wkt(text) for text in texts], np.object_)
    return shapes


def mixed(seed: int) -> Shapes:
    """Polygons with few and many edges, with and without holes and parts, and rows without polygon."""
    rng = np.random.default_rng(seed)
    shapes = np.concatenate([
        blobs(rng, 9, 20), blobs(rng, 3, 300), unions(rng, 9), nested(rng, 5), with_repeats(unions(rng, 3), 6),
        shapes_of(None, None, "POLYGON EMPTY", "MULTIPOLYGON EMPTY", "MULTIPOLYGON(EMPTY,((0 0,1 0,1 1,0 0)))", FIJI),
    ])  # fmt: skip
    rng.shuffle(shapes)
    return shapes


def same(one: Polygons, other: Polygons) -> bool:
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one.arrays, other.arrays, strict=True))


def test_the_triangle() -> None:
    """Its inside and its border, nothing else."""
    triangle = Polygons.of(shapes_of("POLYGON((0 0,10 0,0 10,0 0))"))
    assert triangle.contains([0, 0, 0], [1, 5, 9], [1, 5, 9]).tolist() == [True, True, False]


def test_rows_without_polygon_contain_nothing() -> None:
    """None, and empty geometries."""
    polygons = Polygons.of(shapes_of("POLYGON EMPTY", None, "POLYGON((0 0,2 0,2 2,0 0))", "MULTIPOLYGON EMPTY"))
    assert polygons.is_present.tolist() == [False, False, True, False]
    assert polygons.contains([0, 1, 2, 3], [1] * 4, [1] * 4).tolist() == [False, False, True, False]
    assert np.isnan(polygons.boxes(PLANAR)).all(axis=1).tolist() == [True, True, False, True]


def test_there_may_be_no_rows() -> None:
    """Nothing to compile, to send or to test."""
    none = Polygons.of(shapes_of())
    assert (len(none), none.contains([], [], []).tolist(), none.boxes(GEOGRAPHIC).shape) == (0, [], (0, 4))
    assert same(Polygons.from_lists(none.lists()), none)
    assert len(Polygons.from_lists(pa.chunked_array([], pa.list_(pa.float64())))) == 0


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_all_kinds_beside_each_other(seed: int) -> None:
    """Holes are no part of their polygon, parts are."""
    shapes = mixed(seed)
    polygons = Polygons.of(shapes)
    rows = np.flatnonzero(polygons.is_present)
    row, x, y = points_near(np.random.default_rng(seed), shapes[rows], 400)
    expected = [is_inside(shapes[rows[r]], *point) for r, *point in zip(row, x.tolist(), y.tolist(), strict=True)]
    assert polygons.contains(rows[row], x, y).tolist() == expected


@pytest.mark.parametrize("seed", range(3))
def test_lists_make_the_same_polygons(seed: int) -> None:
    """In one array, sliced, or in chunks; a null is a row without polygon."""
    polygons = Polygons.of(mixed(seed))
    lists = polygons.lists()
    assert same(Polygons.from_lists(lists), polygons)
    assert same(Polygons.from_lists(pa.chunked_array([lists[:7], lists[7:7], lists[7:]])), polygons)
    nulls = pa.array([part or None for part in lists.to_pylist()], lists.type)
    assert same(Polygons.from_lists(nulls), polygons)


def test_a_file_is_mapped(tmp_path: Path) -> None:
    """It has the same arrays, read-only. The same polygons make the same file."""
    polygons = Polygons.of(mixed(1))
    version = polygons.write(tmp_path)
    assert Polygons.of(mixed(1)).write(tmp_path) == version
    mapped = Polygons.open(tmp_path, version)
    assert same(mapped, polygons)
    assert not mapped.arrays.coordinate.flags.writeable
    assert not mapped.arrays.coordinate.flags.owndata


def test_a_damaged_file_is_not_used(tmp_path: Path) -> None:
    """Nor a missing one."""
    version = Polygons.of(mixed(1)).write(tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-9] + b"\0" * 9)
    for name in (version, "0" * 64):
        with pytest.raises(CorruptionError):
            Polygons.open(tmp_path, name)


def test_boxes_are_the_smallest() -> None:
    """The bounds of the geometry."""
    shapes = mixed(2)
    boxes = Polygons.of(shapes).boxes(PLANAR)
    assert np.array_equal(boxes, shapely.bounds(shapes), equal_nan=True)


longitudes = st.lists(st.sampled_from([-180, -170, -90, 0, 20, 90, 180]), min_size=2, max_size=2, unique=True)


@given(sides=st.lists(longitudes.map(sorted), min_size=1, max_size=5))
def test_boxes_of_parts_are_those_of_places(sides: list[list[int]]) -> None:
    """They cross the antimeridian if the polygon was split there, and contain all of it."""
    shape = shapely.MultiPolygon([shapely.box(west, n, east, n + 0.5) for n, (west, east) in enumerate(sides)])
    for space in (GEOGRAPHIC, PLANAR):
        box = Polygons.of(np.array([shape])).boxes(space)[0]
        assert tuple(box) == Places({"place": shape}, space).bounds("place")
        points = shapely.get_coordinates(shape)
        assert contains(*box, points[:, 0], points[:, 1]).all()


def test_a_ring_around_a_pole_is_planar() -> None:
    """A polygon that reaches a pole is one on the plane of longitude and latitude, with an edge along the pole."""
    cap = Polygons.of(shapes_of("POLYGON((-180 60,180 60,180 90,-180 90,-180 60))"))
    assert cap.boxes(GEOGRAPHIC).tolist() == [[-180, 60, 180, 90]]
    assert cap.contains([0] * 4, [-180, 0, 180, 77], [60, 90, 75, 59.9]).tolist() == [True, True, True, False]


@pytest.mark.parametrize("split", [True, False])
def test_an_index_tests_polygons_exactly(tmp_path: Path, split: bool) -> None:
    """Beside subscriptions with a plain box; also with a file and a multipolygon across the antimeridian."""
    texts = [FIJI, None, "POLYGON((0 0,10 0,0 10,0 0))", "POLYGON((0 0,9 0,9 9,0 9,0 0),(2 2,4 2,4 4,2 4,2 2))"]
    polygons = Polygons.of(shapes_of(*texts))
    boxes = np.where(polygons.is_present[:, None], polygons.boxes(GEOGRAPHIC), [[0, 0, 3, 3]])
    terms = pa.array([None] * 4, pa.list_(pa.string()))
    rows = index_rows(np.arange(4), Subscriptions(*boxes.T, terms), polygons.is_present)
    store = IndexStore(tmp_path)
    exact = Polygons.open(tmp_path, polygons.write(tmp_path)) if split else polygons
    index = store.open(store.apply((), added=rows), exact.test)
    points = [(1, 1), (5, 5), (9, 9), (3, 3), (175, 1), (-179, 1), (180, 9), (-180, 11), (171, 9), (4, 3), (0, 10)]
    x, y = np.array(points, float).T
    matches = index.match(Events(x, y, pa.array([None] * len(points), pa.list_(pa.string()))))
    assert list(zip(matches.event.tolist(), matches.subscription.tolist(), strict=True)) == [
        (0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (3, 1), (3, 2), (4, 0), (5, 0), (6, 0), (9, 2), (9, 3), (10, 2),
    ]  # fmt: skip


@given(
    sides=st.lists(st.tuples(*[st.integers(-9, 9)] * 4), min_size=1, max_size=6),
    points=st.lists(st.tuples(*[st.floats(-10, 10) | st.integers(-9, 9)] * 2), min_size=1, max_size=9),
)
def test_upright_boxes_contain_what_boxes_do(sides: list[Any], points: list[Any]) -> None:
    """A rectangular polygon is its closed box."""
    boxes = [(min(a, c), min(b, d), max(a, c) + 1, max(b, d) + 1) for a, b, c, d in sides]
    polygons = Polygons.of(np.array([shapely.box(*box) for box in boxes]))
    for row, box in enumerate(boxes):
        x, y = np.array(points, float).T
        assert polygons.contains([row] * len(points), x, y).tolist() == contains(*box, x, y).tolist()
