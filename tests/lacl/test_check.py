"""Semantic checks. The golden files have the error messages."""

from __future__ import annotations

import math

import pytest
import shapely

from roamcast import model
from roamcast.lacl import LaclError, Query, check, parse
from roamcast.lacl.syntax import BoxRegion, Circle, Every, Inside, Nearest, RangLoc, Region, Select, Variable, Within
from roamcast.places import Places
from roamcast.space import GEOGRAPHIC, PLANAR

CROSSING = "Select all() Where &location in box(179, -10, -179, 10)"


def in_region(region: Region) -> Query:
    """Build a query without a text."""
    return Query(Select("all"), Inside(Variable("&", "location"), region))


def test_check_returns_the_query() -> None:
    """A valid query is returned unchanged."""
    query = parse("Select Where &location in nearest")
    assert check(query) is query


def test_a_box_may_cross_the_antimeridian_in_geographic_space_only() -> None:
    """Without a space the order of min_x and max_x is not checked."""
    check(parse(CROSSING))
    check(parse(CROSSING), space=GEOGRAPHIC)
    with pytest.raises(LaclError, match="min_x 179 is greater than max_x -179"):
        check(parse(CROSSING), space=PLANAR)


def test_place_names_are_checked_if_places_are_given() -> None:
    """Without places, every name is accepted."""
    query = parse("Select Where &location in nearest Life-control #location in romm A")
    check(query)
    with pytest.raises(LaclError, match="no place named 'romm A'") as caught:
        check(query, places=Places({"room A": shapely.box(0, 0, 1, 1)}, PLANAR))
    assert caught.value.hint == "did you mean 'room A'?"


@pytest.mark.parametrize(
    "region",
    [
        RangLoc(math.nan), RangLoc(math.inf), RangLoc(-1), Circle(0, 0, math.nan), Nearest(0), Within(""),
        BoxRegion(model.Box(math.nan, 0, 1, 1)), BoxRegion(model.Box(0, 1, 1, 0)),
    ],
)  # fmt: skip
def test_trees_built_in_code_are_checked_too(region: Region) -> None:
    """Values that no text can express are refused, without a position."""
    with pytest.raises(LaclError) as caught:
        check(in_region(region))
    assert (caught.value.line, caught.value.excerpt) == (None, "")


def test_a_period_of_zero_is_refused() -> None:
    """Also if it is the result of rounding."""
    with pytest.raises(LaclError, match="longer than 0"):
        check(parse("Select Where &location in nearest Every 0.0001 ms"))
    with pytest.raises(LaclError, match="longer than 0"):
        check(Query(Select(None), Inside(Variable("&", "location"), Nearest()), every=Every(0)))


def test_a_second_location_constraint_in_parentheses_is_refused() -> None:
    """Parentheses around conjunctions do not hide a location constraint."""
    check(parse("Select Where &a = 1 and (&b = 2 and (&location in nearest))"))
    with pytest.raises(LaclError, match="more than one location constraint"):
        check(parse("Select Where &location in nearest and (&b = 2 and (&location in nearest))"))
