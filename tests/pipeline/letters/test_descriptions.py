"""Descriptions of matches: by columns as one by one."""

from __future__ import annotations

from math import inf
from typing import Any

import pyarrow as pa
from controls import condition
from hypothesis import given
from hypothesis import strategies as st
from profiles import thorough

from roamcast.journal.bodies import LINK, encode_condition
from roamcast.journal.records import FORWARDED
from roamcast.pipeline.letters.descriptions import DESCRIBED, describe_match, describe_matches
from roamcast.pipeline.schemas import SUBSCRIPTIONS

_numbers = st.one_of(
    st.floats(-180, 180), st.floats(allow_nan=False, allow_infinity=False), st.integers(-200, 200).map(float),
    st.decimals(-180, 180, places=4).map(float), st.sampled_from([-0.0, 1e-4, 9.9e-5, 1e9, 999_999_999.5]),
)  # fmt: skip
_boxes = st.just((-inf, -inf, inf, inf)) | st.tuples(*[_numbers] * 4)
_terms = st.lists(st.text(max_size=5) | st.sampled_from(["fire", 'a"b', "a\\b", "é", "two words", ""]), max_size=3)
_rare: dict[str, st.SearchStrategy[Any]] = {
    "circle": st.just([1.0, 2.0, 3.0]),
    "place": st.just("park"),
    "on": st.just(encode_condition(condition("@level > 1"))),
    "moving_radius": st.just(12.5),
}


@thorough()
@given(
    st.lists(st.tuples(st.sampled_from(["ann", f"{LINK}x"]), _boxes, _terms, st.fixed_dictionaries({}, optional=_rare)))
)
def test_columns_are_described_as_rows(
    rows: list[tuple[str, tuple[float, float, float, float], list[str], dict[str, Any]]],
) -> None:
    """Whatever the numbers and the terms are."""
    names = ("subscriber", *DESCRIBED)
    written = [
        {**dict.fromkeys(names), "subscriber": who, **dict(zip(names[1:5], box, strict=True)), "terms": terms, **rare}
        for who, box, terms, rare in rows
    ]
    table = pa.Table.from_pylist(written, pa.schema([SUBSCRIPTIONS.schema.field(name) for name in names]))
    expected = [FORWARDED if row["subscriber"].startswith(LINK) else describe_match(row) for row in written]
    assert describe_matches(table).to_pylist() == expected
