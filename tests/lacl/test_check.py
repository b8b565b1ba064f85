"""What is checked depends on what is known; the errors themselves are golden."""

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
    """A query made without text."""
    return Query(Select("all"), Inside(Variable("&", "location"), region))


def test_a_checked_query_is_itself() -> None:
    """Checking changes nothing."""
    query = parse("Select Where &location in nearest")
    assert check(query) is query


def test_a_box_may_cross_the_antimeridian_in_geographic_space_only() -> None:
    """Without a space nothing is said against it."""
    check(parse(CROSSING))
    check(parse(CROSSING), space=GEOGRAPHIC)
    with pytest.raises(LaclError, match="min_x 179 is beyond max_x -179"):
        check(parse(CROSSING), space=PLANAR)


def test_places_are_checked_where_they_are_known() -> None:
    """Without places every name will do."""
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
def test_trees_made_in_code_are_checked_too(region: Region) -> None:
    """What no text can say is refused as well, with no place to point at."""
    with pytest.raises(LaclError) as caught:
        check(in_region(region))
    assert (caught.value.line, caught.value.excerpt) == (None, "")


def test_a_period_of_nothing_is_refused() -> None:
    """Also where it came from rounding."""
    with pytest.raises(LaclError, match="longer than 0"):
        check(parse("Select Where &location in nearest Every 0.0001 ms"))
    with pytest.raises(LaclError, match="longer than 0"):
        check(Query(Select(None), Inside(Variable("&", "location"), Nearest()), every=Every(0)))


def test_a_second_location_is_found_in_a_group() -> None:
    """A constraint that stands in parentheses below and alone is still at the top."""
    check(parse("Select Where &a = 1 and (&b = 2 and (&location in nearest))"))
    with pytest.raises(LaclError, match="a second location constraint"):
        check(parse("Select Where &location in nearest and (&b = 2 and (&location in nearest))"))
