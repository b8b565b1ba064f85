"""Conditions and queries as JSON values."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from lacl_queries import comparisons, conditions, in_place, queries

from roamcast.errors import InputError
from roamcast.lacl import MAX_NESTING, Query, normalise, parse
from roamcast.lacl.codec import VERSION, condition_from_json, condition_to_json, query_from_json, query_to_json
from roamcast.lacl.syntax import Condition


def encoded_query(**changes: Any) -> dict[str, Any]:
    """An encoded query with some keys replaced."""
    return {"version": VERSION, "select": None, "where": ["inside", "&location", ["nearest", 1]]} | changes


@given(queries())
def test_a_query_survives_the_round_trip(query: Query) -> None:
    """Decoding restores an equal query."""
    assert query_from_json(orjson.loads(orjson.dumps(query_to_json(query)))) == query


@given(conditions(comparisons("&") | in_place))
def test_a_condition_survives_the_round_trip(condition: Condition) -> None:
    """Decoding restores an equal condition, in its own form and in normal form."""
    for form in (condition, normalise(condition)):
        assert condition_from_json(orjson.loads(orjson.dumps(condition_to_json(form)))) == form


def test_the_form_is_stable() -> None:
    """The encoding of each kind of part is as documented."""
    query = parse(
        "Select all() Where &location in box(1, 2, 3, 4) and &terms has (fire) and (&a in (1, 2) or not &b = true)"
        " On @ > 5 and @t between 1 and 2 Every 10 s"
        " Life-control #location in hall or #location in circle(1, 2, 3) or #role != guard"
    )
    assert query_to_json(query) == {
        "version": 1,
        "select": "all",
        "where": [
            "and",
            ["inside", "&location", ["box", 1.0, 2.0, 3.0, 4.0]],
            ["has", "&terms", ["fire"]],
            ["or", ["in", "&a", [1.0, 2.0]], ["not", ["=", "&b", True]]],
        ],
        "on": ["and", [">", "@", 5.0], ["between", "@t", 1.0, 2.0]],
        "every": 10_000_000,
        "life_control": [
            "or",
            ["inside", "#location", ["within", "hall"]],
            ["inside", "#location", ["circle", 1.0, 2.0, 3.0]],
            ["!=", "#role", "guard"],
        ],
    }


def test_clauses_that_are_missing_are_left_out() -> None:
    """Only `version`, `select` and `where` are always there."""
    assert query_to_json(parse("Select Where &location in nearest")) == encoded_query()
    assert query_to_json(parse("Select anyof() Where &location in rang:loc(3)")) == encoded_query(
        select="anyof", where=["inside", "&location", ["rang:loc", 3.0]]
    )


def test_the_deepest_text_can_be_encoded_and_stored() -> None:
    """The limit on nesting leaves room for every text that the parser accepts."""
    text = (
        "Select Where &location in nearest On " + "(@a = 1 or @b = 2 and " * MAX_NESTING + "@c = 3" + ")" * MAX_NESTING
    )
    query = parse(text)
    assert query_from_json(orjson.loads(orjson.dumps({"query": query_to_json(query)}))["query"]) == query


def test_a_condition_that_is_nested_too_deeply_is_refused() -> None:
    """The decoder does not exhaust Python's stack."""
    value: Any = ["=", "&a", 1]
    for _ in range(100_000):
        value = ["not", value]
    with pytest.raises(InputError, match="nested too deeply"):
        condition_from_json(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "not an encoded condition: None"),
        ([], "not an encoded condition: a list"),
        ([1, "&a", 2], "not an encoded condition: a list"),
        ({"and": []}, "not an encoded condition: a dict"),
        ("&a = 1", "not an encoded condition: '&a = 1'"),
        (["xor", "&a", 1], "unknown operator 'xor'"),
        (["and", ["=", "&a", 1]], "'and' needs two operands or more"),
        (["not"], "'not' needs 1 argument, not 0"),
        (["=", "&a"], "'=' needs 2 arguments, not 1"),
        (["between", "&a", 1], "'between' needs 3 arguments, not 2"),
        (["=", "a", 1], "not a variable: 'a'"),
        (["=", "&", 1], "not a variable: '&'"),
        (["=", "", 1], "not a variable: ''"),
        (["=", 7, 1], "not a string: 7"),
        (["=", "&a", None], "not a number: None"),
        (["=", "&a", [1]], "not a number: a list"),
        (["=", "&a", 10**400], "a number is not finite"),
        (["=", "&a", float("nan")], "a number is not finite"),
        (["=", "&a", "\0"], "a character that is not allowed"),
        (["=", "&a", "\ud800"], "a character that is not allowed"),
        (["in", "&a", []], "not a list of values: a list"),
        (["has", "&terms", "fire"], "not a list of values: 'fire'"),
        (["inside", "&location", "nearest"], "not an encoded region: 'nearest'"),
        (["inside", "&location", ["sphere", 1]], "unknown region 'sphere'"),
        (["inside", "&location", ["box", 1, 2, 3]], "'box' needs 4 arguments, not 3"),
        (["inside", "&location", ["box", 1, 2, 3, True]], "not a number: True"),
        (["inside", "&location", ["nearest", 1.5]], "not a count: 1.5"),
        (["inside", "&location", ["within", 3]], "not a string: 3"),
    ],
)
def test_a_bad_condition_is_refused(value: Any, message: str) -> None:
    """The error says what is wrong."""
    with pytest.raises(InputError) as caught:
        condition_from_json(value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "must be a JSON object"),
        (encoded_query(version=2), "unknown version of an encoded query: 2"),
        ({"select": None}, "unknown version of an encoded query: None"),
        (encoded_query(more=1), "unknown key in an encoded query: 'more'"),
        (encoded_query(select="some"), "unknown function 'some'"),
        (encoded_query(select=["all"]), "unknown function a list"),
        (encoded_query(where=None), "where: is missing"),
        (encoded_query(on=["xor"]), "on: unknown operator 'xor'"),
        (encoded_query(life_control=7), "life_control: not an encoded condition: 7"),
        (encoded_query(every=1.5), "every: not a period in microseconds: 1.5"),
        (encoded_query(every=True), "every: not a period in microseconds: True"),
        (encoded_query(every=10**20), "every: not a period in microseconds"),
    ],
)
def test_a_bad_query_is_refused(value: Any, message: str) -> None:
    """The error names the clause."""
    with pytest.raises(InputError) as caught:
        query_from_json(value)
    assert message in str(caught.value)


def test_whole_numbers_are_accepted_for_numbers() -> None:
    """A program that writes JSON by hand need not write `1.0`."""
    assert condition_from_json(json.loads('["=", "&a", 1]')) == condition_from_json(["=", "&a", 1.0])
