"""The index finds the matches of the reference after any history."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from matching import (
    EventRow,
    SubscriptionRow,
    any_event,
    any_subscription,
    border_points,
    dense_boxes,
    events_of,
    pairs,
    subscriptions_of,
)
from profiles import brief, extensive

from roamcast.lab.models.matcher import ReferenceMatcher
from roamcast.match.index.build import build
from roamcast.match.index.lsm import IndexStore, SegmentRef, build_index
from roamcast.match.index.rows import index_rows
from roamcast.match.index.segments import SegmentFolder

SEEDS = st.integers(0, 2**32 - 1)


@given(st.lists(any_subscription, max_size=40), st.lists(any_event, max_size=20), st.none() | SEEDS)
@extensive()
def test_an_index_in_memory_equals_the_reference(
    wanted: list[SubscriptionRow], event_rows: list[EventRow], seed: int | None
) -> None:
    """For boxes and terms of all kinds, with and without a grid."""
    if seed is not None:
        rng = np.random.default_rng(seed)
        wanted = [*wanted, *dense_boxes(rng)]
        event_rows = [*event_rows, *border_points(rng, wanted)]
        arrays = build(index_rows(np.arange(len(wanted)), subscriptions_of(wanted)))
        assert (arrays.scale > 0).any()
    subscriptions, events = subscriptions_of(wanted), events_of(event_rows)
    assert pairs(build_index(subscriptions).match(events)) == pairs(ReferenceMatcher(subscriptions).match(events))


@given(SEEDS)
@brief()
def test_an_index_of_boxes_of_all_sizes_equals_the_reference(seed: int) -> None:
    """With full cells, many levels, few terms and many matches."""
    rng = np.random.default_rng(seed)
    count, words = 2_000, [f"w{n}" for n in range(rng.integers(1, 40))]
    x, y = rng.choice([rng.uniform(-180, 180, (2, count)), rng.normal(0, 1, (2, count))])
    half_x, half_y = 10.0 ** rng.uniform(-6, 2.5, (2, count))
    lists = [list(rng.choice(words, rng.integers(0, 4))) for _ in range(2 * count)]
    wanted: list[SubscriptionRow] = list(
        zip(*(c.tolist() for c in (x - half_x, y - half_y, x + half_x, y + half_y)), lists[:count], strict=True)
    )
    for row in rng.choice(count, count // 10).tolist():
        west, south, east, north, terms = wanted[row]
        wanted[row] = (east, south, west, north, terms)
    near = rng.choice(count, count)
    points = np.stack(
        [x[near] + rng.normal(0, 1, count) * half_x[near], y[near] + rng.normal(0, 1, count) * half_y[near]]
    )
    events = events_of(list(zip(points[0].tolist(), points[1].tolist(), lists[count:], strict=True)))
    subscriptions = subscriptions_of(wanted)
    assert pairs(build_index(subscriptions).match(events)) == pairs(ReferenceMatcher(subscriptions).match(events))


class IndexMachine(RuleBasedStateMachine):
    """Adds, removals, merges and restarts of an index, beside a plain dictionary of the subscriptions."""

    @initialize(seed=SEEDS)
    def start(self, seed: int) -> None:
        """Start with dense boxes, so that there is a grid from the beginning."""
        self.folder = Path(tempfile.mkdtemp(prefix="roamcast-test-"))
        self.store = IndexStore(self.folder)
        self.rng = np.random.default_rng(seed)
        self.wanted: dict[int, SubscriptionRow] = dict(enumerate(dense_boxes(self.rng)))
        self.next = len(self.wanted)
        added = index_rows(np.arange(self.next), subscriptions_of(list(self.wanted.values())))
        self.stack: tuple[SegmentRef, ...] = self.store.apply((), added=added)
        assert (SegmentFolder(self.folder).open(self.stack[0].segment).segment.scale > 0).any()

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    @rule(new=st.lists(any_subscription, max_size=12), data=st.data())
    def change(self, new: list[SubscriptionRow], data: st.DataObject) -> None:
        """Remove some and add some, perhaps with the handle of a removed one."""
        removed = data.draw(st.lists(st.sampled_from(sorted(self.wanted)), unique=True) if self.wanted else st.just([]))
        handles = list(range(self.next, self.next + len(new)))
        if removed and new and data.draw(st.booleans()):
            handles[0] = removed[0]
        self.next += len(new)
        for handle in removed:
            del self.wanted[handle]
        self.wanted.update(zip(handles, new, strict=True))
        added = index_rows(np.array(handles, np.int64), subscriptions_of(new))
        self.stack = self.store.apply(self.stack, removed=[*removed, 10**9], added=added)

    @rule()
    def merge(self) -> None:
        self.stack = self.store.compact(self.stack)

    @rule()
    def restart(self) -> None:
        """Keep only the names of the files."""
        self.stack = tuple(SegmentRef(*ref) for ref in self.stack)
        self.store = IndexStore(self.folder)
        self.store.sweep(self.stack)

    @rule(event_rows=st.lists(any_event, max_size=8))
    def match(self, event_rows: list[EventRow]) -> None:
        handles = sorted(self.wanted)
        if handles:
            event_rows = [*event_rows, *border_points(self.rng, list(self.wanted.values()))]
        reference = ReferenceMatcher(subscriptions_of([self.wanted[handle] for handle in handles]))
        expected = [(event, handles[row]) for event, row in pairs(reference.match(events_of(event_rows)))]
        assert pairs(self.store.open(self.stack).match(events_of(event_rows))) == expected


TestIndexMachine = IndexMachine.TestCase
