"""Moving regions match the events in their circles after any history."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from matching import WORLD, SubscriptionRow, events_of, pairs, subscriptions_of

from roamcast.match.index.lsm import IndexStore, SegmentRef
from roamcast.match.index.moving import CircleTest, MovingRegions
from roamcast.match.index.rows import index_rows
from roamcast.match.index.segments import SegmentFolder
from roamcast.space import SPACES

PLACES = {
    "geographic": [(8.8, 53.1), (8.81, 53.1), (179.999, -16.5), (-179.999, -16.5), (0.0, 90.0), (25.0, -89.99)],
    "planar": [(0.0, 0.0), (50.0, 0.0), (-1e6, 1e9), (1e15, 0.0)],
}
DENSE = 300
TERMS = st.lists(st.sampled_from(["a", "b"]), max_size=2)


class MovingMachine(RuleBasedStateMachine):
    """Adds, moves and removals of regions, beside fixed subscriptions, compared with the definition."""

    @initialize(space=st.sampled_from(sorted(SPACES)), seed=st.integers(0, 2**32 - 1))
    def start(self, space: str, seed: int) -> None:
        """Start with many regions around the first place, so that there is a grid from the beginning."""
        self.space, self.places = SPACES[space], PLACES[space]
        self.folder = Path(tempfile.mkdtemp(prefix="roamcast-test-"))
        self.store = IndexStore(self.folder)
        self.stack: tuple[SegmentRef, ...] = ()
        self.regions = MovingRegions(self.space)
        self.unit = 1e-4 if space == "geographic" else 10.0
        self.circle: dict[int, tuple[float, float, float, list[str]]] = {}
        self.next = 1000
        self.still = self.store.apply((), added=index_rows(np.array([1]), subscriptions_of([(*WORLD, ["a"])])))
        rng = np.random.default_rng(seed)
        points = np.array(self.places[0]) + self.unit * rng.integers(-9, 10, (DENSE, 2))
        radii = rng.choice([0.0, 10.0, 100.0], DENSE)
        self.add_regions(points.tolist(), radii.tolist(), [["a", "b"][: n % 3] for n in range(DENSE)])
        assert (SegmentFolder(self.folder).open(self.stack[0].segment).segment.scale > 0).any()

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)

    def somewhere(self, data: st.DataObject) -> tuple[float, float]:
        """Draw one of a few points, or one some steps away."""
        x, y = data.draw(st.sampled_from(self.places))
        x, y = (c + self.unit * data.draw(st.integers(-9, 9)) for c in (x, y))
        return (x, y) if self.space.name == "planar" else ((x + 180) % 360 - 180, min(max(y, -90.0), 90.0))

    @rule(data=st.data(), count=st.integers(1, 4))
    def add(self, data: st.DataObject, count: int) -> None:
        points = [self.somewhere(data) for _ in range(count)]
        radii = [data.draw(st.sampled_from([0.0, 10.0, 100.0, 1e4, 2e7])) for _ in range(count)]
        self.add_regions(points, radii, [data.draw(TERMS) for _ in range(count)])

    def add_regions(self, points: list[tuple[float, float]], radii: list[float], terms: list[list[str]]) -> None:
        handles = np.arange(self.next, self.next + len(points))
        self.next += len(points)
        self.circle.update((int(h), (*p, r, t)) for h, p, r, t in zip(handles, points, radii, terms, strict=True))
        moved = self.regions.add(handles, *np.array(points).T, radii)
        assert moved.handle.tolist() == handles.tolist()
        wanted: list[SubscriptionRow] = [(*box, t) for box, t in zip(moved.box.tolist(), terms, strict=True)]
        added = index_rows(handles, subscriptions_of(wanted), np.ones(len(points), np.bool_))
        self.stack = self.store.apply(self.stack, added=added)

    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        """Move several at once, perhaps one of them twice."""
        if not self.circle:
            return
        movers = data.draw(st.lists(st.sampled_from(sorted(self.circle)), min_size=1, max_size=5))
        points = [self.somewhere(data) for _ in movers]
        for handle, point in zip(movers, points, strict=True):
            self.circle[handle] = (*point, *self.circle[handle][2:])
        moved = self.regions.move(movers, *np.array(points).T)
        self.stack = self.store.replace_boxes(self.stack, *moved)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if not self.circle:
            return
        removed = data.draw(st.lists(st.sampled_from(sorted(self.circle)), min_size=1, unique=True))
        for handle in removed:
            del self.circle[handle]
        self.regions.remove(removed)
        self.stack = self.store.apply(self.stack, removed=removed)

    @rule()
    def merge(self) -> None:
        self.stack = self.store.compact(self.stack)

    @rule()
    def restart(self) -> None:
        version = self.regions.save(self.folder)
        self.regions = MovingRegions.open(self.space, self.folder, version)
        assert len(self.regions) == len(self.circle)

    @rule(data=st.data(), count=st.integers(1, 6))
    def match(self, data: st.DataObject, count: int) -> None:
        """Match random events, and some at the centres of regions."""
        rows = [(*self.somewhere(data), data.draw(TERMS)) for _ in range(count)]
        centres = [(x, y, ["a", "b"]) for x, y, *_ in self.circle.values()]
        rows += centres[:: data.draw(st.integers(20, 40))]
        test = CircleTest(self.space, self.folder, self.regions.save(self.folder))
        found = self.store.open((*self.still, *self.stack), test).match(events_of(rows))
        handles = sorted(self.circle)
        cx, cy, radius = np.array([self.circle[handle][:3] for handle in handles]).reshape(-1, 3).T
        expected = []
        for event, (x, y, terms) in enumerate(rows):
            expected += [(event, 1)] if "a" in terms else []
            inside = self.space.distance(cx, cy, np.full(len(cx), x), np.full(len(cy), y)) <= radius
            near = (handles[row] for row in np.flatnonzero(inside))
            expected += [(event, handle) for handle in near if set(self.circle[handle][3]) <= set(terms)]
        assert pairs(found) == expected


TestMovingMachine = MovingMachine.TestCase
