"""Tests of roamcast.match.index.index: chunks of pairs in bounded memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matching import WORLD, EventRow, SubscriptionRow, any_event, any_subscription, events_of, pairs, subscriptions_of
from peaks import peak_of
from profiles import thorough

from roamcast.errors import InputError
from roamcast.lab.models.matcher import ReferenceMatcher
from roamcast.match.index.build import build
from roamcast.match.index.index import ExactTest, Index, OpenSegment
from roamcast.match.index.rows import index_rows
from roamcast.match.index.segments import MappedArrays
from roamcast.match.port import Events, Matches, Subscriptions

AT_ONCE = 50_000


def index_of(*lots: Subscriptions, at_once: int, residual: bool = False, exact: ExactTest | None = None) -> Index:
    """Make an index with a segment for each lot; handles are numbered across all lots."""
    segments, first = [], 0
    for lot in lots:
        count = len(lot.min_x)
        body = build(index_rows(np.arange(first, first + count), lot, np.full(count, residual)))
        segments.append(OpenSegment(MappedArrays.in_memory(body._asdict()), None))
        first += count
    return Index(segments, exact, at_once)


def equal_subscriptions(count: int) -> Subscriptions:
    """Make equal subscriptions."""
    terms = pa.ListArray.from_arrays(np.arange(count + 1, dtype=np.int32), pa.array(["fire"] * count))
    return Subscriptions(*(np.full(count, side) for side in (-1.0, -1.0, 1.0, 1.0)), terms)


def fires(count: int) -> Events:
    return Events(np.zeros(count), np.zeros(count), pa.array([["fire"]] * count))


@given(
    st.lists(any_subscription, max_size=30), st.lists(any_event, max_size=20), st.integers(1, 40), st.integers(0, 30)
)
@thorough()
def test_chunks_together_are_all_matches(
    subscriptions: list[SubscriptionRow], event_rows: list[EventRow], at_once: int, cut: int
) -> None:
    """In the order of the reference. Each chunk is small, or of one event."""
    lots, events = (subscriptions_of(subscriptions[:cut]), subscriptions_of(subscriptions[cut:])), events_of(event_rows)
    chunks = list(index_of(*lots, at_once=at_once).matches(events))
    expected = pairs(ReferenceMatcher(subscriptions_of(subscriptions)).match(events))
    assert [pair for chunk in chunks for pair in pairs(chunk)] == expected
    assert all(len(found.event) <= at_once or len(set(found.event.tolist())) == 1 for found in chunks)
    assert pairs(index_of(*lots, at_once=at_once).match(events)) == expected


@pytest.mark.parametrize(("count", "events"), [(AT_ONCE, 40), (AT_ONCE // 10, 400), (30, 20_000), (AT_ONCE // 64, 900)])
def test_memory_is_bounded_by_one_chunk(count: int, events: int) -> None:
    """However many pairs there are; and less than half of the work is repeated."""
    index, event_rows = index_of(equal_subscriptions(count), at_once=AT_ONCE), fires(events)
    next(index.candidates(fires(1)))

    def pairs_and_work() -> tuple[int, int]:
        found = scanned = 0
        for chunk in index.candidates(event_rows):
            found, scanned = found + len(chunk.event), scanned + chunk.scanned
        return found, scanned

    (found, scanned), peak = peak_of(pairs_and_work)
    assert found == count * events
    assert peak < 64 * AT_ONCE + 200 * events + 1_000_000
    assert scanned < 1.5 * found


def test_an_event_with_many_pairs_is_a_chunk_of_its_own() -> None:
    """Its pairs are not split, and the chunks around it do not grow."""
    events = events_of([(9, 9, ["fire"])] * 3 + [(0, 0, ["fire"])] + [(9, 9, ["fire"])] * 3)
    everywhere = subscriptions_of([(*WORLD, ["fire"])] * 2)
    sizes = [
        len(found.event) for found in index_of(equal_subscriptions(100), everywhere, at_once=10).candidates(events)
    ]
    assert sum(sizes) == 7 * 2 + 100
    *others, most = sorted(sizes)
    assert most == 102
    assert max(others) <= 10


def test_without_events_there_is_one_empty_chunk() -> None:
    """With and without subscriptions."""
    for lots in ((), (equal_subscriptions(3),)):
        assert [pairs(found) for found in index_of(*lots, at_once=10).matches(fires(0))] == [[]]
        assert pairs(index_of(*lots, at_once=10).match(fires(0))) == []


def test_the_exact_test_is_called_for_each_chunk() -> None:
    """With the event numbers of the whole batch."""
    tested = []

    def exact(events: Events, event: np.ndarray, subscription: np.ndarray) -> np.ndarray:
        tested.append(len(event))
        return (event + subscription) % 2 == 0

    index = index_of(equal_subscriptions(6), at_once=12, residual=True, exact=exact)
    found: Matches = index.match(fires(10))
    assert pairs(found) == [(e, s) for e in range(10) for s in range(6) if (e + s) % 2 == 0]
    assert sum(tested) == 60
    assert max(tested) <= 12
    with pytest.raises(InputError):
        index_of(equal_subscriptions(6), at_once=12, residual=True).match(fires(10))


def scanned(index: Index, events: Events) -> tuple[dict[tuple[int, int], int], int]:
    """How often each pair of an event and a handle is scanned, and how many postings a search scans."""
    counts: dict[tuple[int, int], int] = {}
    for event, handle, times in index.scanned_postings(events):
        for pair, count in zip(zip(event.tolist(), handle.tolist(), strict=True), times.tolist(), strict=True):
            counts[pair] = counts.get(pair, 0) + count
    return counts, sum(chunk.scanned for chunk in index.candidates(events))


@given(st.lists(any_subscription, max_size=30), st.lists(any_event, max_size=20), st.integers(0, 30))
@thorough()
def test_scanned_postings_are_those_that_a_search_counts(
    subscriptions: list[SubscriptionRow], event_rows: list[EventRow], cut: int
) -> None:
    """Every match is among them, and some pairs that do not match."""
    lots, events = (subscriptions_of(subscriptions[:cut]), subscriptions_of(subscriptions[cut:])), events_of(event_rows)
    counts, total = scanned(index_of(*lots, at_once=AT_ONCE), events)
    assert sum(counts.values()) == total
    assert set(pairs(ReferenceMatcher(subscriptions_of(subscriptions)).match(events))) <= set(counts)


def test_of_very_many_postings_some_are_listed_that_count_for_all() -> None:
    """Evenly: at most 4,096 for each event."""
    index = index_of(equal_subscriptions(10_000), at_once=AT_ONCE)
    counts, total = scanned(index, fires(3))
    assert total == 30_000
    assert [sum(times for (event, _), times in counts.items() if event == one) for one in range(3)] == [9999] * 3
    assert len(counts) == 3 * 3333
