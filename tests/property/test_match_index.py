"""The index gives the reference's matches, whatever happened to it before."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from matching import Row, Wish, crowd, events_of, on_borders, pairs, rows, subscriptions_of, wishes
from profiles import brief, thorough

from roamcast.match.index.grid import choose_levels
from roamcast.match.index.lsm import IndexStore, SegmentRef, build_index
from roamcast.match.index.rows import index_rows
from roamcast.match.index.segments import SegmentFolder
from roamcast.match.reference import ReferenceMatcher

SEEDS = st.integers(0, 2**32 - 1)


@given(st.lists(wishes, max_size=40), st.lists(rows, max_size=20), st.none() | SEEDS)
@thorough()
def test_an_index_in_memory_matches_as_the_reference_does(
    wanted: list[Wish], happened: list[Row], seed: int | None
) -> None:
    """On boxes and terms of every kind, few or so many that there is a grid."""
    if seed is not None:
        rng = np.random.default_rng(seed)
        wanted = [*wanted, *crowd(rng)]
        happened = [*happened, *on_borders(rng, wanted)]
        assert (choose_levels(np.array([wish[:4] for wish in wanted])).scale > 0).any()
    subscriptions, events = subscriptions_of(wanted), events_of(happened)
    assert pairs(build_index(subscriptions).match(events)) == pairs(ReferenceMatcher(subscriptions).match(events))


@given(SEEDS)
@brief()
def test_many_subscriptions_of_all_sizes_match_as_the_reference_does(seed: int) -> None:
    """Where cells are full, levels many, terms few and matches plenty."""
    rng = np.random.default_rng(seed)
    count, words = 2_000, [f"w{n}" for n in range(rng.integers(1, 40))]
    x, y = rng.choice([rng.uniform(-180, 180, (2, count)), rng.normal(0, 1, (2, count))])
    half_x, half_y = 10.0 ** rng.uniform(-6, 2.5, (2, count))
    lists = [list(rng.choice(words, rng.integers(0, 4))) for _ in range(2 * count)]
    wanted: list[Wish] = list(
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
    """Adds, removals, merges and restarts of an index, beside a plain dictionary of what is wanted."""

    @initialize(seed=SEEDS)
    def start(self, seed: int) -> None:
        """With a crowd, so that there is a grid from the beginning."""
        self.folder = Path(tempfile.mkdtemp(prefix="roamcast-test-"))
        self.layers = IndexStore(self.folder)
        self.rng = np.random.default_rng(seed)
        self.wanted: dict[int, Wish] = dict(enumerate(crowd(self.rng)))
        self.next = len(self.wanted)
        everyone = index_rows(np.arange(self.next), subscriptions_of(list(self.wanted.values())))
        self.stack: tuple[SegmentRef, ...] = self.layers.apply((), added=everyone)
        assert (SegmentFolder(self.folder).open(self.stack[0].segment).segment.scale > 0).any()

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    @rule(new=st.lists(wishes, max_size=12), data=st.data())
    def change(self, new: list[Wish], data: st.DataObject) -> None:
        """Some go, some come, one of those that go perhaps with another wish."""
        gone = data.draw(st.lists(st.sampled_from(sorted(self.wanted)), unique=True) if self.wanted else st.just([]))
        handles = list(range(self.next, self.next + len(new)))
        if gone and new and data.draw(st.booleans()):
            handles[0] = gone[0]
        self.next += len(new)
        for handle in gone:
            del self.wanted[handle]
        self.wanted.update(zip(handles, new, strict=True))
        added = index_rows(np.array(handles, np.int64), subscriptions_of(new))
        self.stack = self.layers.apply(self.stack, removed=[*gone, 10**9], added=added)

    @rule()
    def merge(self) -> None:
        self.stack = self.layers.compact(self.stack)

    @rule()
    def restart(self) -> None:
        """Only the names of files are left."""
        self.stack = tuple(SegmentRef(*layer) for layer in self.stack)
        self.layers = IndexStore(self.folder)
        self.layers.sweep(self.stack)

    @rule(happened=st.lists(rows, max_size=8))
    def match(self, happened: list[Row]) -> None:
        handles = sorted(self.wanted)
        if handles:
            happened = [*happened, *on_borders(self.rng, list(self.wanted.values()))]
        reference = ReferenceMatcher(subscriptions_of([self.wanted[handle] for handle in handles]))
        right = [(event, handles[row]) for event, row in pairs(reference.match(events_of(happened)))]
        assert pairs(self.layers.open(self.stack).match(events_of(happened))) == right


TestIndexMachine = IndexMachine.TestCase
