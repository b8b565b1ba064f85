"""Categories equal those of the reference after any history."""

from __future__ import annotations

import numpy as np
from categories_reference import ReferenceCategories
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from matching import subscriptions_of

from roamcast.match.index.rows import index_rows
from roamcast.match.partitioners.categories import Categories, CategoryParameters

_side = st.integers(-8, 8).map(float)
_subscription = st.tuples(
    _side, _side, st.integers(0, 4), st.integers(0, 4), st.lists(st.sampled_from("abcdef"), max_size=3)
)


class CategoriesMachine(RuleBasedStateMachine):
    """Adds, removals, matches and restarts, compared with the reference."""

    @initialize(
        most=st.integers(1, 5),
        frequencies=st.booleans(),
        correlation=st.booleans(),
        threshold=st.sampled_from([0.0, 0.1, 0.5]),
        window=st.sampled_from([1, 3, 1024]),
    )
    def start(self, most: int, frequencies: bool, correlation: bool, threshold: float, window: int) -> None:
        self.parameters = CategoryParameters(
            most, new_threshold=threshold, frequencies=frequencies, correlation=correlation, least_area=4.0,
            window=window,
        )  # fmt: skip
        self.categories = Categories(self.parameters)
        self.reference = ReferenceCategories(self.parameters)
        self.next = 0

    @rule(wanted=st.lists(_subscription, min_size=1, max_size=12))
    def add(self, wanted: list[tuple[float, float, int, int, list[str]]]) -> None:
        handles = np.arange(self.next, self.next + len(wanted)) * 3
        self.next += len(wanted)
        boxes = [(x, y, x + width, y + height) for x, y, width, height, _ in wanted]
        subscription_rows = [(*box, subscription[4]) for box, subscription in zip(boxes, wanted, strict=True)]
        self.categories.add(index_rows(handles, subscriptions_of(subscription_rows)))
        for handle, box, subscription in zip(handles.tolist(), boxes, wanted, strict=True):
            self.reference.add(handle, box, subscription[4])

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        here = sorted(self.reference.box)
        removed = data.draw(st.lists(st.sampled_from(here), unique=True) if here else st.just([]))
        self.categories.remove(np.array([*removed, 1], np.int64))
        for handle in removed:
            self.reference.remove(handle)

    @rule(data=st.data())
    def observe(self, data: st.DataObject) -> None:
        here = sorted(self.reference.box)
        if len(here) < 2:
            return
        matches = sorted(data.draw(st.lists(st.sampled_from(here), min_size=2, max_size=5, unique=True)))
        self.categories.observe(np.zeros(len(matches), np.int64), np.array(matches))
        self.reference.observe(matches)

    @rule()
    def restart(self) -> None:
        self.categories = Categories.of_arrays(self.parameters, self.categories.arrays())

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "categories"):
            return
        handles = np.array(sorted(self.reference.box), np.int64)
        of = self.categories.of(handles)
        groups = sorted(sorted(handles[of == number].tolist()) for number in np.unique(of))
        assert groups == self.reference.groups()
        assert len(groups) <= self.parameters.max_categories
        assert self.categories.slots.size[self.categories.live].sum() == len(handles)


TestCategoriesMachine = CategoriesMachine.TestCase
