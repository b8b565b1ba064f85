"""An index tells of its pairs in portions, and takes memory for one of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matching import WORLD, Row, Wish, events_of, pairs, rows, subscriptions_of, wishes
from peaks import peak_of
from profiles import thorough

from roamcast.errors import InputError
from roamcast.match.index.build import build
from roamcast.match.index.index import ExactTest, Index, OpenSegment
from roamcast.match.index.rows import index_rows
from roamcast.match.index.segments import MappedArrays
from roamcast.match.port import Events, Matches, Subscriptions
from roamcast.match.reference import ReferenceMatcher

AT_ONCE = 50_000


def index_of(*lots: Subscriptions, at_once: int, residual: bool = False, exact: ExactTest | None = None) -> Index:
    """A segment for each lot; handles count through all of them."""
    layers, first = [], 0
    for lot in lots:
        count = len(lot.min_x)
        body = build(index_rows(np.arange(first, first + count), lot, np.full(count, residual)))
        layers.append(OpenSegment(MappedArrays.in_memory(body._asdict()), None))
        first += count
    return Index(layers, exact, at_once)


def alike(count: int) -> Subscriptions:
    """That want the same, and all of it."""
    terms = pa.ListArray.from_arrays(np.arange(count + 1, dtype=np.int32), pa.array(["fire"] * count))
    return Subscriptions(*(np.full(count, side) for side in (-1.0, -1.0, 1.0, 1.0)), terms)


def fires(count: int) -> Events:
    return Events(np.zeros(count), np.zeros(count), pa.array([["fire"]] * count))


@given(st.lists(wishes, max_size=30), st.lists(rows, max_size=20), st.integers(1, 40), st.integers(0, 30))
@thorough()
def test_portions_are_the_whole(wanted: list[Wish], happened: list[Row], at_once: int, cut: int) -> None:
    """Together they are the reference's matches, in order; each is small, or of one event."""
    lots, events = (subscriptions_of(wanted[:cut]), subscriptions_of(wanted[cut:])), events_of(happened)
    portions = list(index_of(*lots, at_once=at_once).matches(events))
    right = pairs(ReferenceMatcher(subscriptions_of(wanted)).match(events))
    assert [pair for portion in portions for pair in pairs(portion)] == right
    assert all(len(found.event) <= at_once or len(set(found.event.tolist())) == 1 for found in portions)
    assert pairs(index_of(*lots, at_once=at_once).match(events)) == right


@pytest.mark.parametrize(("count", "events"), [(AT_ONCE, 40), (AT_ONCE // 10, 400), (30, 20_000), (AT_ONCE // 64, 900)])
def test_however_many_pairs_there_are_memory_is_for_one_portion(count: int, events: int) -> None:
    """And what had to be searched again is less than half of the work."""
    index, happened = index_of(alike(count), at_once=AT_ONCE), fires(events)
    next(index.candidates(fires(1)))

    def told() -> tuple[int, int]:
        found = scanned = 0
        for portion in index.candidates(happened):
            found, scanned = found + len(portion.event), scanned + portion.scanned
        return found, scanned

    (found, scanned), peak = peak_of(told)
    assert found == count * events
    assert peak < 64 * AT_ONCE + 200 * events + 1_000_000
    assert scanned < 1.5 * found


def test_an_event_with_more_than_a_portion_is_one() -> None:
    """Its pairs are not torn apart, and do not make the portions around it larger."""
    events = events_of([(9, 9, ["fire"])] * 3 + [(0, 0, ["fire"])] + [(9, 9, ["fire"])] * 3)
    everywhere = subscriptions_of([(*WORLD, ["fire"])] * 2)
    sizes = [len(found.event) for found in index_of(alike(100), everywhere, at_once=10).candidates(events)]
    assert sum(sizes) == 7 * 2 + 100
    *others, most = sorted(sizes)
    assert most == 102
    assert max(others) <= 10


def test_no_events_make_one_empty_portion() -> None:
    """Also where there are no subscriptions."""
    for lots in ((), (alike(3),)):
        assert [pairs(found) for found in index_of(*lots, at_once=10).matches(fires(0))] == [[]]
        assert pairs(index_of(*lots, at_once=10).match(fires(0))) == []


def test_a_further_condition_is_tested_portion_by_portion() -> None:
    """With the numbers that events have in the whole batch."""
    asked = []

    def exact(events: Events, event: np.ndarray, subscription: np.ndarray) -> np.ndarray:
        asked.append(len(event))
        return (event + subscription) % 2 == 0

    index = index_of(alike(6), at_once=12, residual=True, exact=exact)
    found: Matches = index.match(fires(10))
    assert pairs(found) == [(e, s) for e in range(10) for s in range(6) if (e + s) % 2 == 0]
    assert sum(asked) == 60
    assert max(asked) <= 12
    with pytest.raises(InputError):
        index_of(alike(6), at_once=12, residual=True).match(fires(10))
