"""Parsing inverts printing, and the normal form keeps the meaning."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from hypothesis import example, given
from hypothesis import strategies as st
from lacl_queries import conditions, has_terms, names, numbers, queries, texts

from roamcast.lacl import Query, check, holds, normalise, parse, to_text
from roamcast.lacl.syntax import (
    And,
    Between,
    Boolean,
    Compare,
    Condition,
    Has,
    In,
    Inside,
    Not,
    Number,
    Or,
    Text,
    Variable,
)
from roamcast.space import GEOGRAPHIC

few_names = st.sampled_from("abc")
few_values = st.sampled_from(
    [Number(0.0), Number(1.0), Number(2.0), Text("x"), Text("y"), Boolean(True), Boolean(False)]
)
few_variables = st.builds(Variable, st.just("&"), few_names)
few_tests = st.one_of(
    st.builds(Compare, few_variables, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), few_values),
    st.builds(In, few_variables, st.lists(few_values, min_size=1, max_size=3).map(tuple)),
    st.builds(Between, few_variables, few_values, few_values),
    has_terms,
)
few_attributes = st.dictionaries(few_names, st.sampled_from([0, 1.0, 2, "x", "y", True, False, float("nan")]))


@given(queries())
def test_generated_queries_pass_the_checks(query: Query) -> None:
    """The strategies generate valid queries."""
    assert check(query, space=GEOGRAPHIC) is query


@given(queries())
def test_parsing_a_printed_query_gives_an_equal_query(query: Query) -> None:
    """Parsing inverts printing."""
    assert parse(to_text(query)) == query


@given(queries())
def test_case_and_white_space_do_not_matter(query: Query) -> None:
    """Line breaks and comments between clauses are ignored."""
    text = to_text(query).replace("\nOn ", "  oN\t").replace("\nEvery ", " -- thin\n\n EVERY ")
    assert parse(text.replace("Select", "sELECT", 1)).expression_key == query.expression_key


@given(queries(), st.randoms(use_true_random=False))
def test_the_order_of_operands_does_not_change_the_key(query: Query, rng: Random) -> None:
    """`a and b` and `b and a` share an agent."""
    shuffled = Query(query.select, _shuffle(query.where, rng), query.on)
    assert shuffled.expression_key == query.expression_key


@given(queries())
def test_the_parts_of_where_are_complete(query: Query) -> None:
    """Source expression, terms and location together are equivalent to Where."""
    parts = [] if query.source_condition is None else [query.source_condition]
    if query.terms:
        parts.append(Has(Variable("&", "terms"), tuple(map(Text, query.terms))))
    if query.location is not None:
        parts.append(Inside(Variable("&", "location"), query.location))
    whole = And(tuple(parts)) if len(parts) > 1 else parts[0]
    assert normalise(whole) == normalise(query.where)


@given(conditions(few_tests), few_attributes, st.sets(names, max_size=2))
def test_the_normal_form_keeps_the_meaning(
    condition: Condition, attributes: Mapping[str, float | str | bool], terms: set[str]
) -> None:
    """A condition and its normal form have the same value, also for missing attributes."""
    expected = holds(condition, attributes, terms=terms)
    assert holds(normalise(condition), attributes, terms=terms) == expected


@given(conditions(few_tests))
def test_normalise_is_idempotent(condition: Condition) -> None:
    """A second application changes nothing, and double negations are removed."""
    once = normalise(condition)
    assert normalise(once) == once
    assert normalise(Not(Not(condition))) == once


@given(conditions(few_tests), conditions(few_tests))
def test_the_normal_form_obeys_de_morgan(left: Condition, right: Condition) -> None:
    """`not (a and b)` and `not a or not b` have the same normal form."""
    assert normalise(Not(And((left, right)))) == normalise(Or((Not(right), Not(left))))


@example("a" * 40, 0.0)
@given(texts, numbers)
def test_a_string_that_looks_like_a_number_stays_a_string(text: str, number: float) -> None:
    """Values keep their type."""
    where = And(
        (
            Compare(Variable("&", "a"), "=", Text(text)),
            Compare(Variable("&", "b"), "=", Text(repr(number))),
            Compare(Variable("&", "c"), "=", Number(number)),
        )
    )
    query = Query(parse("Select Where &location in nearest").select, where)
    assert parse(to_text(query)).where == where


def _shuffle(condition: Condition, rng: Random) -> Condition:
    match condition:
        case And(operands) | Or(operands):
            mixed = [_shuffle(operand, rng) for operand in operands]
            rng.shuffle(mixed)
            return type(condition)(tuple(mixed))
        case Not(operand):
            return Not(_shuffle(operand, rng))
        case _:
            return condition
