"""Conditions as JSON values."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from lacl_queries import comparisons, conditions, in_place, queries

from roamcast.errors import InputError
from roamcast.lacl import MAX_NESTING, Query, normalise, parse
from roamcast.lacl.codec import condition_from_json, condition_to_json
from roamcast.lacl.syntax import Condition


@given(queries())
def test_the_clauses_of_a_query_survive_the_round_trip(query: Query) -> None:
    """Decoding restores equal conditions."""
    for clause in (query.where, query.on, query.life_control):
        if clause is not None:
            assert condition_from_json(orjson.loads(orjson.dumps(condition_to_json(clause)))) == clause


@given(conditions(comparisons("&") | in_place))
def test_a_condition_survives_the_round_trip(condition: Condition) -> None:
    """Decoding restores an equal condition, in its own form and in normal form."""
    for form in (condition, normalise(condition)):
        assert condition_from_json(orjson.loads(orjson.dumps(condition_to_json(form)))) == form


def test_the_form_is_stable() -> None:
    """The encoding of each kind of part is as documented."""
    query = parse(
        "Select all() Where &location in box(1, 2, 3, 4) and &terms has (fire) and (&a in (1, 2) or not &b = true)"
        " On @ > 5 and @t between 1 and 2"
        " Life-control #location in hall or #location in circle(1, 2, 3) or #role != guard"
    )
    assert condition_to_json(query.where) == [
        "and",
        ["inside", "&location", ["box", 1.0, 2.0, 3.0, 4.0]],
        ["has", "&terms", ["fire"]],
        ["or", ["in", "&a", [1.0, 2.0]], ["not", ["=", "&b", True]]],
    ]
    assert query.on is not None
    assert condition_to_json(query.on) == ["and", [">", "@", 5.0], ["between", "@t", 1.0, 2.0]]
    assert query.life_control is not None
    assert condition_to_json(query.life_control) == [
        "or",
        ["inside", "#location", ["within", "hall"]],
        ["inside", "#location", ["circle", 1.0, 2.0, 3.0]],
        ["!=", "#role", "guard"],
    ]
    near = parse("Select Where &location in nearest").where
    assert condition_to_json(near) == ["inside", "&location", ["nearest", 1]]
    around = parse("Select anyof() Where &location in rang:loc(3)").where
    assert condition_to_json(around) == ["inside", "&location", ["rang:loc", 3.0]]


def test_the_deepest_text_can_be_encoded_and_stored() -> None:
    """The limit on nesting leaves room for every text that the parser accepts."""
    text = (
        "Select Where &location in nearest On " + "(@a = 1 or @b = 2 and " * MAX_NESTING + "@c = 3" + ")" * MAX_NESTING
    )
    on = parse(text).on
    assert on is not None
    assert condition_from_json(orjson.loads(orjson.dumps({"on": condition_to_json(on)}))["on"]) == on


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


def test_whole_numbers_are_accepted_for_numbers() -> None:
    """A program that writes JSON by hand need not write `1.0`."""
    assert condition_from_json(json.loads('["=", "&a", 1]')) == condition_from_json(["=", "&a", 1.0])
