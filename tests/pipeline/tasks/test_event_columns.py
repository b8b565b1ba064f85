"""Event columns: conditions are evaluated for each row of a batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest
from controls import condition
from hypothesis import given
from hypothesis import strategies as st
from lacl_queries import conditions
from profiles import thorough

from roamcast.journal.records import EVENT, Record, to_batch
from roamcast.lacl import holds, parse
from roamcast.lacl.syntax import Between, Boolean, Compare, Condition, Has, In, Not, Number, Text, Variable
from roamcast.pipeline.tasks.event_columns import EventColumns, parse_attributes


def reading(
    readings: Mapping[str, float] | None = None, body: str | None = None, terms: Sequence[str] | None = ()
) -> Record:
    return Record(EVENT, "cam", 1, "cam:1", 0, 0.0, 0.0, terms, readings, body)


def columns(*records: Record) -> EventColumns:
    return EventColumns(to_batch("local", 1, records))


def satisfied(on: str, *records: Record) -> list[bool]:
    """Which records satisfy a condition on readings."""
    return columns(*records).readings_satisfy(condition(on), np.arange(len(records))).tolist()


def sources_match(where: str, *records: Record) -> list[bool]:
    """Which records satisfy a condition on the source and on terms."""
    where_condition = parse(f"Select all() Where {where}").where
    return columns(*records).sources_satisfy(where_condition, np.arange(len(records))).tolist()


LEVEL = '{"context":"level"}'


def test_named_readings_are_tested_by_name() -> None:
    """Each name has its own column."""
    assert satisfied("@a > 1 and @b < 1", reading({"a": 2, "b": 0}), reading({"a": 0, "b": 2})) == [True, False]


def test_a_plain_reading_is_named_by_the_context() -> None:
    """The attribute `context` of the source, as it was when the event was accepted."""
    rows = [
        reading({"level": 5, "heat": 0}, LEVEL),
        reading({"level": 5, "heat": 0}, '{"context":"heat"}'),
        reading({"level": 5, "heat": 0}, '{"owner":"bob"}'),
        reading({"level": 5, "heat": 0}),
    ]
    assert satisfied("@ > 1", *rows) == [True, False, False, False]
    assert satisfied("not @ > 1", *rows) == [False, True, True, True]


@pytest.mark.parametrize("missing", [None, {}, {"other": 5}, {"level": math.nan}])
def test_a_missing_reading_satisfies_nothing(missing: Mapping[str, float] | None) -> None:
    """No comparison holds, but `not` of one does."""
    row = reading(missing, LEVEL)
    assert [satisfied(on, row)[0] for on in ("@ > 1", "@level != 1", "@ <= 1", "not @level > 1")] == [
        False, False, False, True,
    ]  # fmt: skip


@pytest.mark.parametrize("body", ["", "{", "[]", "null", '"level"', '{"context":7}', '{"context":["level"]}'])
def test_an_unreadable_body_has_no_context(body: str) -> None:
    """Invalid JSON, or a value that is not a name, counts as no attributes."""
    assert satisfied("@ > 1", reading({"level": 5}, body)) == [False]


@pytest.mark.parametrize(
    "body", [None, "", "{", "[]", "null", "7", '{"owner":null}', '{"owner":["bob"]}', '{"owner":{}}']
)
def test_an_unreadable_attribute_is_missing(body: str | None) -> None:
    """No comparison with it holds."""
    row = reading(body=body)
    for where in ("&owner = bob", "&owner != bob", "&owner < 1", "&owner != 1", "&owner = true", "&owner in (1, 2)"):
        assert sources_match(where, row) == [False]
        assert sources_match(f"not {where}", row) == [True]


def test_attributes_are_texts_numbers_and_booleans() -> None:
    """Other JSON values are left out."""
    body = '{"a":"x","b":1,"c":2.5,"d":true,"e":null,"f":[1],"g":{"h":1}}'
    assert parse_attributes(body) == {"a": "x", "b": 1, "c": 2.5, "d": True}


def test_terms_of_the_event_are_tested() -> None:
    """An event may have no terms."""
    where = '(&terms has ("fire", "smoke") or &owner = bob)'
    rows = [reading(terms=["smoke", "fire", "x"]), reading(terms=["fire"]), reading(terms=None), reading(terms=())]
    assert sources_match(where, *rows) == [True, False, False, False]
    assert sources_match(where, *[row._replace(body='{"owner":"bob"}') for row in rows]) == [True] * 4


def test_results_are_in_the_order_of_the_rows() -> None:
    """Rows may be repeated or left out."""
    known = columns(reading({"a": 1}, '{"n":1}'), reading({"a": 2}, '{"n":2}'), reading({"a": 3}, '{"n":3}'))
    rows = np.array([2, 0, 2, 1])
    assert known.readings_satisfy(condition("@a > 1"), rows).tolist() == [True, False, True, True]
    plain = columns(reading({"a": 1, "b": 2}, '{"context":"a"}'), reading({"a": 1, "b": 2}, '{"context":"b"}'))
    assert plain.readings_satisfy(condition("@ > 1"), np.array([1, 0, 1])).tolist() == [True, False, True]
    assert known.sources_satisfy(parse("Select all() Where &n > 1").where, rows).tolist() == [True, False, True, True]
    for nothing in (
        known.readings_satisfy(condition("@ > 1"), rows[:0]),
        columns().readings_satisfy(condition("@ > 1"), rows[:0]),
    ):
        assert (nothing.tolist(), nothing.dtype) == ([], np.bool_)
    assert known.sources_satisfy(parse("Select all() Where &n > 1").where, rows[:0]).tolist() == []


def test_a_batch_may_be_a_slice() -> None:
    """Rows are counted from its start."""
    batch = to_batch("local", 1, [reading({"a": number}, f'{{"n":{number}}}') for number in range(5)])
    known = EventColumns(batch.slice(2, 2))
    assert known.readings_satisfy(condition("@a = 2"), np.arange(2)).tolist() == [True, False]
    assert known.sources_satisfy(parse("Select all() Where &n = 3").where, np.arange(2)).tolist() == [False, True]


_names = st.sampled_from(["a", "b", "größe"])
_values = st.sampled_from([-1.0, 0.0, 1.0, 2.0])
_signs = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
_readings = st.builds(Variable, st.just("@"), _names | st.none())
_on = conditions(
    st.builds(Compare, _readings, _signs, st.builds(Number, _values))
    | st.builds(In, _readings, st.lists(st.builds(Number, _values), min_size=1, max_size=3).map(tuple))
    | st.builds(Between, _readings, st.builds(Number, _values), st.builds(Number, _values))
)
_literals = st.sampled_from([Number(1.0), Number(2.0), Text("x"), Boolean(True)])
_where = conditions(
    st.builds(Compare, st.builds(Variable, st.just("&"), _names), _signs, _literals)
    | st.lists(st.sampled_from("xy").map(Text), min_size=1, max_size=2).map(
        lambda terms: Has(Variable("&", "terms"), tuple(terms))
    )
)
_attributes = st.dictionaries(_names, st.sampled_from([0, 1, 2.0, "x", True, False, None, [1]])) | st.none()
_records = st.lists(
    st.tuples(
        st.none() | st.dictionaries(_names, _values | st.just(math.nan)),
        st.none() | _names | st.just(7),
        _attributes,
        st.none() | st.lists(st.sampled_from("xyz")),
    ),
    max_size=6,
)


def body_of(context: Any, attributes: Mapping[str, Any] | None) -> str | None:
    named = {} if context is None else {"context": context}
    return None if attributes is None else orjson.dumps({**attributes, **named}).decode()


@thorough()
@given(on=_on, where=_where, records=_records)
def test_columns_equal_the_evaluation_of_single_events(on: Condition, where: Condition, records: list[Any]) -> None:
    """`holds` is the reference, for readings, attributes and terms."""
    known = columns(*(reading(r, body_of(context, a), terms) for r, context, a, terms in records))
    rows = np.arange(len(records))
    for tested in (on, Not(on)):
        expected = [
            holds(tested, r or {}, context=context if a is not None and isinstance(context, str) else None)
            for r, context, a, _ in records
        ]
        assert known.readings_satisfy(tested, rows).tolist() == expected
    plain = [{n: v for n, v in (a or {}).items() if not isinstance(v, list)} for _, _, a, _ in records]
    expected = [holds(where, a, terms=frozenset(terms or ())) for a, (*_, terms) in zip(plain, records, strict=True)]
    assert known.sources_satisfy(where, rows).tolist() == expected


def test_maps_from_spark_are_accepted() -> None:
    """Whatever the names of inner fields, and even if values are null."""
    theirs = pa.map_(pa.string(), pa.field("theirs", pa.float64(), nullable=True))
    batch = to_batch("local", 1, [reading({"a": 2.0}), reading()])
    values = {name: batch[name] for name in batch.schema.names}
    values["readings"] = pa.array([[("a", None), ("b", 2.0)], None], theirs)
    known = EventColumns(pa.RecordBatch.from_pydict(values))
    assert known.readings_satisfy(condition("@a < 9 or @b = 2"), np.arange(2)).tolist() == [True, False]
    assert known.readings_satisfy(condition("@a < 9"), np.arange(2)).tolist() == [False, False]
