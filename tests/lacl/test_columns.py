"""Evaluating columns of readings gives the same result as evaluating each row."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from lacl_queries import conditions

from roamcast.lacl import holds
from roamcast.lacl.columns import holds_rows
from roamcast.lacl.syntax import Between, Compare, Condition, In, Number, Text, Variable

values = st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0, math.inf])
numbers = st.builds(Number, st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0]))
literals = numbers | st.just(Text("x"))
variables = st.builds(Variable, st.just("@"), st.sampled_from([None, "a", "b", "missing"]))
on_tests = st.one_of(
    st.builds(Compare, variables, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), literals),
    st.builds(In, variables, st.lists(literals, min_size=1, max_size=3).map(tuple)),
    st.builds(Between, variables, numbers, numbers),
)
rows = st.lists(
    st.tuples(st.dictionaries(st.sampled_from("ab"), values), st.sampled_from(["a", "b", "c", None])), max_size=8
)


@given(conditions(on_tests), rows)
def test_holds_rows_equals_holds(condition: Condition, events: list[tuple[dict[str, float], str | None]]) -> None:
    """On every row, with NaN for a missing reading."""
    columns = {name: np.array([readings.get(name, math.nan) for readings, _ in events]) for name in "ab"}
    expected = [holds(condition, readings, context=context) for readings, context in events]
    assert holds_rows(condition, columns, [context for _, context in events]).tolist() == expected
