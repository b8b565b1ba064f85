"""Categories equal those of the reference after any history."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from categories_reference import ReferenceCategories
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from matching import subscriptions_of
from profiles import thorough

from roamcast.errors import InputError
from roamcast.lab.experiments.drtcluster.run import WORKERS
from roamcast.match.index.rows import IndexRows, index_rows
from roamcast.match.partitioners.categories import Categories, CategoryParameters, Distribution

_side = st.integers(-8, 8).map(float)
_subscription = st.tuples(
    _side, _side, st.integers(0, 4), st.integers(0, 4), st.lists(st.sampled_from("abcdef"), max_size=3)
)


class CategoriesMachine(RuleBasedStateMachine):
    """Adds, removals, matches, balancing and restarts, compared with the reference."""

    @initialize(
        most=st.integers(1, 8),
        workers=st.integers(1, 3),
        frequencies=st.booleans(),
        correlation=st.booleans() | st.just(True),
        threshold=st.sampled_from([0.0, 0.1, 0.5, 2.0]),
        window=st.sampled_from([1, 3, 1024]),
        distribution=st.builds(Distribution, st.sampled_from([0.5, 1.0, 4.0]), st.booleans() | st.just(True)),
    )
    def start(
        self,
        most: int,
        workers: int,
        frequencies: bool,
        correlation: bool,
        threshold: float,
        window: int,
        distribution: Distribution,
    ) -> None:
        self.parameters = CategoryParameters(
            most, new_threshold=threshold, frequencies=frequencies, correlation=correlation, least_area=4.0,
            window=window,
        )  # fmt: skip
        self.workers, self.distribution = workers, distribution
        self.categories = Categories(self.parameters, workers, distribution)
        self.reference = ReferenceCategories(self.parameters, workers, distribution)
        self.next = 0
        self.effort_before = np.zeros(3, np.int64)

    @rule(wanted=st.lists(_subscription, min_size=1, max_size=12))
    def add(self, wanted: list[tuple[float, float, int, int, list[str]]]) -> None:
        handles = np.arange(self.next, self.next + len(wanted)) * 3
        self.next += len(wanted)
        before = {handle: self.reference.worker[self.reference.category_of(handle)] for handle in self.reference.box}
        boxes = [(x, y, x + width, y + height) for x, y, width, height, _ in wanted]
        subscription_rows = [(*box, subscription[4]) for box, subscription in zip(boxes, wanted, strict=True)]
        moved = self.categories.add(index_rows(handles, subscriptions_of(subscription_rows)))
        for handle, box, subscription in zip(handles.tolist(), boxes, wanted, strict=True):
            self.reference.add(handle, box, subscription[4])
        for handle in handles.tolist():
            self.reference.load[self.reference.category_of(handle)] += 1
        after = {handle: self.reference.worker[self.reference.category_of(handle)] for handle in before}
        assert {handle for handle in before if before[handle] != after[handle]} <= set(moved.tolist())

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        here = sorted(self.reference.box)
        removed = data.draw(st.lists(st.sampled_from(here), unique=True) if here else st.just([]))
        self.categories.remove(np.array([*removed, 1], np.int64))
        for handle in removed:
            self.reference.remove(handle)

    @rule(data=st.data(), times=st.integers(1, 4))
    def observe(self, data: st.DataObject, times: int) -> None:
        here = sorted(self.reference.box)
        if len(here) < 2:
            return
        some = st.lists(st.sampled_from(here), min_size=2, max_size=5, unique=True).map(sorted)
        events = data.draw(st.lists(some, min_size=times, max_size=times))
        event = np.repeat(np.arange(times), [len(matches) for matches in events])
        self.categories.observe(event, np.concatenate(events))
        for matches in events:
            self.reference.observe(matches)

    @rule(data=st.data(), factor=st.sampled_from([0.5, 1.0, 1.5, 2.0]))
    def balance(self, data: st.DataObject, factor: float) -> None:
        slots, count = self.categories.slots, len(self.reference.load)
        self.reference.load = data.draw(st.lists(st.integers(0, 9).map(float), min_size=count, max_size=count))
        slots.load[:] = self.reference.load
        self.categories.distribution = replace(self.distribution, overload=factor)
        self.categories.balance()
        self.reference.balance(factor)
        self.reference.load = [0.0] * count

    @rule()
    def restart(self) -> None:
        self.effort_before += self.categories.progress.effort
        arrays = self.categories.arrays()
        self.categories = Categories.of_arrays(self.parameters, arrays, self.workers, self.distribution)

    @rule()
    def store(self) -> None:
        self.categories.arrays()

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "categories"):
            return
        handles, reference, slots = sorted(self.reference.box), self.reference, self.categories.slots
        of = [reference.category_of(handle) for handle in handles]
        assert self.categories.of(np.array(handles, np.int64)).tolist() == of
        live = self.categories.live
        assert live.tolist() == reference.live
        assert len(live) <= self.parameters.max_categories
        for name in ("worker", "load"):
            assert getattr(slots, name)[live].tolist() == [getattr(reference, name)[number] for number in live]
        assert slots.size[live].tolist() == [len(reference.members[number]) for number in live]
        assert (self.effort_before + self.categories.progress.effort).tolist() == list(reference.effort)
        pairs = self.categories.pairs()
        points = {(a, b): reference.correlation(a, b) for a in reference.live for b in reference.live if a != b}
        assert dict(zip(zip(*map(np.ndarray.tolist, pairs[:2]), strict=True), pairs.points.tolist(), strict=True)) == {
            pair: value for pair, value in points.items() if value
        }


def test_categories_equal_the_reference() -> None:
    """The same numbers, workers, load, effort and correlation."""
    run_state_machine_as_test(CategoriesMachine, settings=thorough())


def _random_rows(rng: np.random.Generator, first: int, count: int) -> IndexRows:
    x, y = rng.integers(-20, 20, (2, count)).astype(float)
    width, height = rng.integers(0, 5, (2, count))
    terms = [[f"t{int(t)}" for t in rng.zipf(1.5, rng.integers(1, 4)) % 300] for _ in range(count)]
    rows = [(a, b, a + w, b + h, c) for a, b, w, h, c in zip(x, y, width, height, terms, strict=True)]
    return index_rows(np.arange(first, first + count), subscriptions_of(rows))


@pytest.mark.parametrize(("limit", "window"), [(3, 40), (60, 4), (60, 40)])
def test_many_rows_equal_the_reference(limit: int, window: int) -> None:
    """Tables grow while categories merge, within and between workers."""
    rng = np.random.default_rng(limit)
    parameters, distribution = CategoryParameters(limit, least_area=4.0, window=window), Distribution()
    categories = Categories(parameters, WORKERS, distribution)
    reference = ReferenceCategories(parameters, WORKERS, distribution)
    for first in range(0, 600, 100):
        rows = _random_rows(rng, first, 100)
        categories.add(rows)
        texts = rows.terms.texts
        for at, handle in enumerate(rows.handle.tolist()):
            codes = rows.terms.code[rows.terms.first[at] : rows.terms.first[at + 1]]
            words = [bytes(texts.data[texts.start[c] : texts.end[c]]).decode() for c in codes]
            reference.add(handle, tuple(rows.box[at].tolist()), words)
        for number in range(10):
            # Some events in common with few, so that categories lose all correlation when they are merged.
            matches = np.sort(rng.choice(first + 100, 2 if number % 2 else 5, replace=False))
            categories.observe(np.zeros(len(matches), np.int64), matches)
            reference.observe(matches.tolist())
        assert categories.of(np.arange(first + 100)).tolist() == [
            reference.category_of(handle) for handle in range(first + 100)
        ]
    assert categories.progress.effort.tolist() == list(reference.effort)
    assert limit == 3 or reference.effort.moved > 0


def test_removed_rows_take_no_memory() -> None:
    """Rows, terms and table slots are used again when subscriptions come and go."""
    rng = np.random.default_rng(5)
    categories = Categories(CategoryParameters(20))
    sizes = []
    for first in range(0, 40_000, 500):
        categories.add(_random_rows(rng, first, 500))
        categories.remove(np.arange(first, first + 500))
        sizes.append(sum(array.nbytes for array in (*categories.rows, *categories._counts)))
    assert max(sizes[40:]) <= max(sizes[:40])
    assert not categories.live.size


def test_handles_must_ascend() -> None:
    categories = Categories(CategoryParameters(2))
    rows = _random_rows(np.random.default_rng(1), 0, 3)
    categories.add(rows)
    with pytest.raises(InputError, match="ascending"):
        categories.add(rows)
