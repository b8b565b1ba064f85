"""The parts of a query that binding and matching use."""

from __future__ import annotations

import pytest

from roamcast.lacl import Query, check, parse, plan_of
from roamcast.lacl.printing import condition_text
from roamcast.lacl.syntax import Nearest, RangLoc, Within


def query(text: str) -> Query:
    """Parse and check."""
    return check(parse(text))


def test_where_is_split_into_location_terms_and_source_condition() -> None:
    """Required terms are separated from terms inside `or` and `not`."""
    parsed = query(
        "Select all() Where &floor > 2 and &terms has (fire, smoke, fire) and &location in within(stage) "
        "and (&terms has a or &b = 1) and &terms has (smoke, heat)"
    )
    assert parsed.location == Within("stage")
    assert parsed.terms == ("fire", "smoke", "heat")
    assert parsed.source_condition is not None
    assert condition_text(parsed.source_condition) == '&floor > 2 and (&terms has ("a") or &b = 1)'


def test_a_location_constraint_alone_gives_no_source_condition() -> None:
    """Every source in range qualifies."""
    parsed = query("Select anyof() Where &location in rang:loc(30)")
    assert (parsed.location, parsed.terms, parsed.source_condition) == (RangLoc(30.0), (), None)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("all() Where &a = 1 and &location in rang:loc(1 km)", "all() Where &location in range:loc(1000) and &a = 1."),
        ("Where &location in nearest and &a in (1, 2)", "Where (&a = 2 or &a = 1) and &location in nearest(1)"),
        ("Where &location in nearest and not not &a = x", "Where &a = 'x' and (&location in nearest and &a = x)"),
        ("Where &location in nearest and &a between 1 and 2", "Where &location in nearest and &a <= 2 and &a >= 1"),
    ],
)  # fmt: skip
def test_equivalent_expressions_have_equal_keys(left: str, right: str) -> None:
    """Order, grouping, spelling and the other clauses do not matter."""
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
def test_different_expressions_have_different_keys(left: str, right: str) -> None:
    """Queries that may select different sources do not share an agent."""
    assert query(f"Select {left}").expression_key != query(f"Select {right}").expression_key


def test_the_function_determines_the_plan() -> None:
    """`all()` is matched, everything else is bound."""
    assert plan_of(query("Select all() Where &location in rang:loc(30)")) == "match"
    assert plan_of(query("Select anyof() Where &location in rang:loc(30)")) == "bind"
    assert plan_of(query("Select Where &location in nearest")) == "bind"


def test_equality_ignores_the_text() -> None:
    """Only the clauses are compared; the text is kept for error messages."""
    left, right = parse("Select Where &location in nearest"), parse("select\n where &location in nearest(1)")
    assert left == right
    assert hash(left) == hash(right)
    assert left.text != right.text
    assert left.location == Nearest()
