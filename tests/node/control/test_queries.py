"""Queries as a node parses them."""

from __future__ import annotations

import pytest

from roamcast.errors import CorruptionError
from roamcast.lacl import parse, to_text
from roamcast.model import Box, Subscription
from roamcast.node.control.queries import Queries, places_of
from roamcast.places import Places
from roamcast.settings_model import NodeLimits
from roamcast.space import PLANAR

NEAREST = "Select Where &location in nearest"


def queries(**limits: int) -> Queries:
    return Queries(Places({}, PLANAR), PLANAR, NodeLimits(**limits))


def test_equal_texts_share_one_query() -> None:
    """However they are formatted."""
    reader = queries()
    checked = reader.read(NEAREST)
    assert reader.read(NEAREST) is checked
    assert reader.read("select  where &location IN nearest").query is checked.query
    assert reader.stored(Subscription("q", "ann", NEAREST)) is checked


def test_the_cache_is_bounded() -> None:
    """Neither many texts nor long ones fill the memory."""
    reader = queries()
    for number in range(10_500):
        reader.read(f"Select all() Where &terms has (t{number})")
    long = f"{NEAREST} and &a in ({', '.join(map(str, range(1000)))})"
    assert reader.read(long) is not reader.read(long)
    assert len(reader._cache) == 10_000


def test_region_and_terms_round_trip() -> None:
    """Whatever characters the terms have."""
    terms = ['"', "\\", "Select", "a b", "\u2028", "ü", "-1", "\n"]
    text = queries().accept_box(Box(-1, -2.5, 3, 1e100), terms).text
    assert to_text(parse(text)) == text
    assert parse(text).terms == tuple(terms)


def test_limits_apply_to_new_subscriptions() -> None:
    """Accepted ones are parsed although limits are lower now. Invalid stored text is reported."""
    text = 'Select all() Where &terms has ("a", "b")'
    reader = queries(subscription_terms=1)
    assert reader.stored(Subscription("q", "ann", text)).text == text
    with pytest.raises(CorruptionError, match="subscription q"):
        reader.stored(Subscription("q", "ann", "Select nothing"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (NEAREST, True),
        ("Select all() Where &terms has a", False),
        ("Select all() Where &terms has a Life-control #role = guard", True),
    ],
)
def test_only_some_queries_have_a_lifecycle(text: str, expected: bool) -> None:
    """Those that are bound to sources or have life-control."""
    assert queries().read(text).has_lifecycle is expected


def test_the_places_of_a_query_are_found() -> None:
    """In both clauses, without duplicates."""
    text = "Select all() Where &location in within(hall) Life-control #location in stage or not #location in hall"
    assert places_of(parse(text)) == ("hall", "stage")
