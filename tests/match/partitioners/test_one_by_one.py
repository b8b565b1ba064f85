"""Tests of roamcast.match.partitioners.one_by_one: the candidates of brute force, however rows are divided."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matching import WORLD, EventRow, SubscriptionRow, any_event, any_subscription, events_of, pairs, subscriptions_of

from roamcast.lab.models.matcher import ReferenceMatcher
from roamcast.match.index.rows import IndexRows, index_rows
from roamcast.match.partitioners import one_by_one
from roamcast.match.partitioners.one_by_one import OneByOne
from roamcast.match.port import Matches

MATCHERS: list[Callable[[IndexRows], OneByOne]] = [
    lambda rows: OneByOne.by_label(rows, rows.handle % 3),
    lambda rows: OneByOne.by_curve(rows, 4),
    lambda rows: OneByOne.by_leaf(rows, 5),
    OneByOne.by_term,
]


@pytest.mark.parametrize("make", MATCHERS)
@given(st.lists(any_subscription, min_size=1, max_size=30), st.lists(any_event, max_size=20), st.sampled_from([1, 99]))
def test_candidates_are_the_matches_of_brute_force(
    make: Callable[[IndexRows], OneByOne], subscriptions: list[SubscriptionRow], event_rows: list[EventRow], room: int
) -> None:
    """In the same order, in one chunk or in several. All pairs that were compared are listed, each once."""
    wanted, events = subscriptions_of(subscriptions), events_of(event_rows)
    matcher = make(index_rows(np.arange(len(subscriptions)), wanted))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_by_one, "_ROOM", room)
        chunks = list(matcher.candidates(events))
        listed = [pair for chunk in matcher.scanned_postings(events) for pair in pairs(Matches(*chunk[:2]))]
    found = [pair for chunk in chunks for pair in pairs(Matches(chunk.event, chunk.subscription))]
    assert found == pairs(ReferenceMatcher(wanted).match(events))
    assert len(set(listed)) == len(listed) == sum(chunk.scanned for chunk in chunks)
    assert set(found) <= set(listed)


def compared(matcher: OneByOne, event: EventRow) -> list[int]:
    """The subscriptions that an event is compared with."""
    return sorted(handle for chunk in matcher.scanned_postings(events_of([event])) for handle in chunk.subscription)


def test_an_event_is_compared_with_all_of_a_category_that_one_member_brings_it_to() -> None:
    """Here by its cell and its rarest term. Categories without such a member are not compared."""
    wanted = [(0, 0, 1, 1, ["a"]), (50, 50, 51, 51, ["b"]), (0, 0, 1, 1, ["c"]), (50, 50, 51, 51, ["a"])]
    rows = index_rows(np.arange(4), subscriptions_of(wanted))
    matcher = OneByOne.by_label(rows, np.array([7, 7, 9, 9]))
    assert compared(matcher, (0.5, 0.5, ["a", "x"])) == [0, 1]
    assert compared(matcher, (0.5, 0.5, ["a", "c"])) == [0, 1, 2, 3]
    assert compared(matcher, (0.5, 0.5, ["x"])) == []


def test_an_event_is_compared_with_the_boxes_of_its_leaf() -> None:
    """Whatever their terms are; a box on a border is in both leaves."""
    wanted = [(x, 0, x + 1, 1, ["a"]) for x in (0, 10, 20, 30)] + [(*WORLD, [])]
    matcher = OneByOne.by_leaf(index_rows(np.arange(5), subscriptions_of(wanted)), 2)
    assert compared(matcher, (-5.0, 0.5, ["b"])) == [0, 1, 4]
    assert compared(matcher, (50.0, 0.5, ["b"])) == [1, 2, 3, 4]


def test_an_event_is_compared_with_the_subscriptions_of_its_terms() -> None:
    """Those of which a term of the event is the rarest, wherever their boxes are."""
    wanted = [(0, 0, 1, 1, ["rare", "often"]), (50, 50, 51, 51, ["often"]), (9, 9, 9, 9, ["often"])]
    matcher = OneByOne.by_term(index_rows(np.arange(3), subscriptions_of(wanted)))
    assert compared(matcher, (80.0, 80.0, ["often"])) == [1, 2]
    assert compared(matcher, (80.0, 80.0, ["rare"])) == [0]
