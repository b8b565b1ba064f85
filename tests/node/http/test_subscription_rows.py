"""Rows of subscriptions in bulk: the short way gives what the reference gives."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from roamcast.errors import RoamcastError
from roamcast.model import Box
from roamcast.node.control.queries import Queries, box_text
from roamcast.node.http.subscription_rows import accept_rows, new_id, read_row, read_simple
from roamcast.places import Places
from roamcast.settings_model import NodeLimits
from roamcast.space import SPACES

LIMITS = NodeLimits(subscription_terms=3, term_length=5)
SPACE_NAMES = sorted(SPACES)

numbers = st.one_of(
    st.integers(-200, 200), st.floats(-200, 200), st.sampled_from([True, None, "1", 1e308, 10**400, float("inf")])
)
boxes = st.one_of(st.lists(numbers, min_size=4, max_size=4), st.lists(numbers, max_size=6))
terms = st.lists(st.one_of(st.text(max_size=6), st.sampled_from([1, None])), max_size=4)
plain_texts = st.builds(
    "Select all() Where &location in box({}, {}, {}, {}) and &terms has ({})".format,
    *[st.one_of(st.integers(-200, 200), st.floats(-200, 200))] * 4,
    st.lists(st.sampled_from(["a", "b", '"a b"', "toolong", "true"]), max_size=4).map(", ".join),
)
rows = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "id": st.one_of(st.sampled_from(["q", "", "-", "a b", None, 1, "x" * 200]), st.text(max_size=3)),
            "box": st.one_of(boxes, st.sampled_from([None, {"min_x": 0}, "0,0,1,1"])),
            "crosses_antimeridian": st.sampled_from([True, False, 1]),
            "terms": st.one_of(terms, st.sampled_from([None, "fire"])),
            "lacl": st.sampled_from(["Select Where &location in nearest", "Select", 1]) | plain_texts,
            "unknown": st.just(1),
        },
    ),
    st.sampled_from([None, 1, [], "q", b"{"]),
)


def queries(space: str = "geographic") -> Queries:
    return Queries(Places({}, SPACES[space]), SPACES[space], LIMITS)


def outcome(read: Any, *arguments: Any) -> Any:
    try:
        return read(*arguments)
    except RoamcastError as error:
        return type(error), error.message, error.where, error.hint


@given(rows, st.sampled_from(SPACE_NAMES))
def test_the_short_way_equals_the_reference(row: Any, space: str) -> None:
    """It returns nothing, or what the reference returns."""
    try:
        row = row if isinstance(row, bytes) else orjson.loads(orjson.dumps(row))
    except TypeError:  # JSON has no such numbers
        return
    simple = read_simple(row, queries(space), LIMITS)
    assert simple is None or simple == outcome(read_row, row, queries(space), LIMITS)


@given(
    st.one_of(st.none(), st.tuples(*[st.floats(-89, 89)] * 4)),
    st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=5),
        max_size=3,
        unique=True,
    ),
    st.sampled_from(SPACE_NAMES),
)
def test_a_box_is_accepted_as_its_text_would_be(corners: Any, terms: list[str], space: str) -> None:
    """Text, body and cell are the same."""
    box = None
    if corners is not None:
        corners = [corner + 0.0 for corner in corners]  # text has no -0.0
        (min_x, max_x), (min_y, max_y) = sorted(corners[:2]), sorted(corners[2:])
        box = Box(min_x, min_y, max_x, max_y)
    if box is None and not terms:
        return
    accepted = queries(space).accept_box(box, terms)
    assert accepted == queries(space).accept(box_text(box, terms))


def test_simple_rows_take_the_short_way() -> None:
    box = [0, 0, 1, 1]
    text = "Select all() Where &location in box(0, 0, 1, 1) and &terms has (a, b)"
    for row in (
        {"id": "q", "box": box, "terms": ["a"]}, {"box": box}, {"terms": ["a", "a"]}, {"id": "q", "lacl": text},
        {"lacl": 'Select all() Where &terms has ("ü")'},
    ):  # fmt: skip
        assert read_simple(row, queries(), LIMITS) == read_row(row, queries(), LIMITS)


def test_errors_name_the_row() -> None:
    sent = [{"terms": ["a"]}, {"terms": ["\0"]}, b"{", {"box": [0, 2, 1, 1]}]
    refused = accept_rows(sent, 10, queries(), LIMITS, "ann", None)[1:]
    assert [error.where for error in refused if isinstance(error, RoamcastError)] == [
        "subscriptions[11].terms", "subscriptions[12]", "subscriptions[13].box[1]",
    ]  # fmt: skip


def test_with_a_key_rows_keep_their_ids() -> None:
    """They differ by subscriber, key and row."""
    assert new_id("ann", "k", 1) == new_id("ann", "k", 1)
    assert len({new_id("ann", "k", 1), new_id("bob", "k", 1), new_id("ann", "l", 1), new_id("ann", "k", 2)}) == 4
    assert new_id("ann", None) != new_id("ann", None)
