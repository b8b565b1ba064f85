"""Cells contain what they stand for; positions of sources are found by cell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roamcast.bind.discovery.cells import LEVELS, Cell, SourcePositions
from roamcast.model import Box

COORDINATES = st.one_of(st.floats(-1e9, 1e9), st.floats(-180, 180), st.integers(-8, 8).map(float))
POINTS = st.tuples(COORDINATES, COORDINATES)


def contains(cell: Cell, x: float, y: float) -> bool:
    box = cell.box
    return box.min_x <= x < box.max_x and box.min_y <= y < box.max_y


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    (x1, y1), (x2, y2) = draw(POINTS), draw(POINTS)
    return Box(min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2))


@given(boxes())
def test_a_cell_contains_its_box(box: Box) -> None:
    cell = Cell.around(box)
    assert cell is not None
    assert contains(cell, box.min_x, box.min_y)
    assert contains(cell, box.max_x, box.max_y)
    assert cell.level in LEVELS
    assert Cell.parse(str(cell)) == cell


@pytest.mark.parametrize("far", [1e18, 1e20, 1e150])
def test_what_is_too_large_or_far_is_everywhere(far: float) -> None:
    """Peers would refuse the cell, and with it all requests of the node."""
    assert Cell.around(Box(-far, -far, far, far)) is None
    assert Cell.around(Box(-far / 100, -1, 0, 0)) is not None or far > 1e18
    around = Cell.around(Box(far, far, far, far))
    assert (around is None) == (far == 1e150)


@given(boxes())
def test_a_cell_is_at_most_four_times_as_wide_as_its_box(box: Box) -> None:
    """Otherwise sources far away would be demanded."""
    cell = Cell.around(box)
    side = max(box.max_x - box.min_x, box.max_y - box.min_y)
    assert cell is not None
    exact = max(map(abs, box)) * 2.0**-48  # floats are too coarse for smaller ones
    assert cell.box.max_x - cell.box.min_x <= max(4 * side, exact, 2.0 ** (LEVELS.start + 1))


@given(boxes())
def test_a_parent_contains_its_cell(box: Box) -> None:
    cell = Cell.around(box)
    assert cell is not None
    inner, outer = cell.box, cell.ancestor(cell.level + 1).box
    assert outer.min_x <= inner.min_x
    assert outer.min_y <= inner.min_y
    assert outer.max_x >= inner.max_x
    assert outer.max_y >= inner.max_y


@given(POINTS, st.sampled_from([-3, 0, 5]), st.integers(-2, 2), st.integers(-2, 2))
def test_a_point_is_in_four_cells(point: tuple[float, float], level: int, right: int, up: int) -> None:
    """In no others of that level."""
    first = Cell.at(*point, level)
    other = Cell(level, first.column + right, first.row + up)
    assert (other in set(first.with_point())) == contains(other, *point)


def test_a_tiny_coordinate_below_zero_is_in_the_cell_below() -> None:
    """Divided by the width of a cell it is zero."""
    assert Cell.at(0.0, -5e-324, 5) == Cell(5, 0, -1)


def test_a_box_across_the_antimeridian_has_no_cell() -> None:
    assert Cell.around(Box(170, 0, -170, 10)) is None
    assert Cell.parse("") is None


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.one_of(st.none(), POINTS, st.just("removed")))), boxes())
def test_sources_are_found_by_cell(changes: list[tuple[str, tuple[float, float] | str | None]], box: Box) -> None:
    """As by looking at each of them, after any changes."""
    positions, known = SourcePositions(), dict[str, tuple[float, float] | None]()
    for source, change in changes:
        if isinstance(change, str):
            positions.remove(source)
            known.pop(source, None)
        else:
            positions.put(source, change)
            known[source] = change
    cell = Cell.around(box)
    assert cell is not None
    assert sorted(positions.inside([None])) == sorted(known)
    expected = [source for source, at in known.items() if at is None or contains(cell, *at)]
    assert sorted(positions.inside([cell])) == sorted(expected)


def test_many_sources_are_found() -> None:
    positions = SourcePositions()
    for number in range(1_000):
        positions.put(str(number), (float(number), 0.0))
    assert sorted(positions.inside([Cell(2, 1, 0)]), key=int) == [str(number) for number in range(4, 12)]
    assert sorted(positions.inside([Cell(2, 1, 0), Cell(2, 2, 0)]), key=int) == [str(n) for n in range(4, 16)]
