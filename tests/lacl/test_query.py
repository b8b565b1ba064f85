"""The parts of a query that binding and matching ask for."""

from __future__ import annotations

import pytest

from roamcast.lacl import Query, check, parse, plan_of
from roamcast.lacl.printing import condition_text
from roamcast.lacl.syntax import Nearest, RangLoc, Within


def query(text: str) -> Query:
    return check(parse(text))


def test_where_is_split_into_location_terms_and_source_expression() -> None:
    """Terms that every event must have stand apart from those below `or` and `not`."""
    whole = query(
        "Select all() Where &floor > 2 and &terms has (fire, smoke, fire) and &location in within(stage) "
        "and (&terms has a or &b = 1) and &terms has (smoke, heat)"
    )
    assert whole.location == Within("stage")
    assert whole.terms == ("fire", "smoke", "heat")
    assert whole.source_expression is not None
    assert condition_text(whole.source_expression) == '&floor > 2 and (&terms has ("a") or &b = 1)'


def test_a_location_alone_leaves_no_source_expression() -> None:
    """Then every source qualifies that is near enough."""
    whole = query("Select anyof() Where &location in rang:loc(30)")
    assert (whole.location, whole.terms, whole.source_expression) == (RangLoc(30.0), (), None)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("all() Where &a = 1 and &location in rang:loc(1 km)", "all() Where &location in range:loc(1000) and &a = 1."),
        ("Where &location in nearest and &a in (1, 2)", "Where (&a = 2 or &a = 1) and &location in nearest(1)"),
        ("Where &location in nearest and not not &a = x", "Where &a = 'x' and (&location in nearest and &a = x)"),
        ("Where &location in nearest and &a between 1 and 2", "Where &location in nearest and &a <= 2 and &a >= 1"),
    ],
)  # fmt: skip
def test_same_expression_same_agent(left: str, right: str) -> None:
    """Order, grouping and spelling do not count, nor do the other clauses."""
    assert query(f"Select {left} On @ > 1").expression_key == query(f"Select {right} Every 1 s").expression_key


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("anyof() Where &location in rang:loc(30)", "nearof() Where &location in rang:loc(30)"),
        ("anyof() Where &location in rang:loc(30)", "anyof() Where &location in rang:loc(31)"),
        ("Where &location in nearest and &a = 1", "Where &location in nearest and &a = '1'"),
        ("Where &location in nearest and &a = true", "Where &location in nearest and &a = 'true'"),
        ("Where &location in nearest and &a != 1", "Where &location in nearest and not &a = 1"),
        ("Where &location in nearest and &a < 1", "Where &location in nearest and not &a >= 1"),
        ("Where &location in nearest and &a = x", "Where &location in nearest and &A = x"),
    ],
)
def test_other_expression_other_agent(left: str, right: str) -> None:
    """What may choose another source has another key."""
    assert query(f"Select {left}").expression_key != query(f"Select {right}").expression_key


def test_all_is_matched_and_the_rest_is_bound() -> None:
    """The function decides the plan."""
    assert plan_of(query("Select all() Where &location in rang:loc(30)")) == "match"
    assert plan_of(query("Select anyof() Where &location in rang:loc(30)")) == "bind"
    assert plan_of(query("Select Where &location in nearest")) == "bind"


def test_places_in_a_text_do_not_make_queries_different() -> None:
    """Equality is of what is said; the text is kept for errors."""
    left, right = parse("Select Where &location in nearest"), parse("select\n where &location in nearest(1)")
    assert left == right
    assert hash(left) == hash(right)
    assert left.text != right.text
    assert left.location == Nearest()
