"""Every partitioner routes every event to all workers with a match, after any history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from matching import EventRow, SubscriptionRow, any_event, any_subscription, events_of, pairs, subscriptions_of
from profiles import brief

from roamcast.lab.models.matcher import ReferenceMatcher
from roamcast.lab.models.workers import SimulatedWorkers
from roamcast.match.index.rows import index_rows
from roamcast.match.partitioners.categories import CategoryParameters
from roamcast.match.partitioners.curve import CurvePartitioner
from roamcast.match.partitioners.drtcluster import Distribution, DrtCluster
from roamcast.match.partitioners.hashing import Hashing
from roamcast.match.partitioners.kdtree import KdTree
from roamcast.match.routing.partitioner import Partitioner

PARAMETERS = CategoryParameters(5, new_threshold=0.3)

MAKE: dict[str, Callable[[int], Partitioner]] = {
    "drtcluster": lambda workers: DrtCluster(workers, PARAMETERS),
    "in-node": lambda workers: DrtCluster(workers, PARAMETERS, Distribution(between=False, overload=1.0)),
    "kdtree": KdTree,
    "hashing": Hashing,
    "curve": CurvePartitioner,
}


def restarted(partitioner: Partitioner) -> Partitioner:
    """Restore a partitioner from its arrays."""
    arrays = partitioner.arrays()
    if isinstance(partitioner, DrtCluster):
        return DrtCluster.of_arrays(partitioner.workers, PARAMETERS, partitioner.distribution, arrays)
    kind = type(partitioner)
    assert issubclass(kind, KdTree | Hashing | CurvePartitioner)
    return kind.of_arrays(partitioner.workers, arrays)


class PartitionMachine(RuleBasedStateMachine):
    """Adds, removals, events, balancing and restarts, beside a plain dictionary of the subscriptions."""

    name = "curve"

    @initialize(workers=st.sampled_from([1, 2, 4]))
    def start(self, workers: int) -> None:
        self.workers = SimulatedWorkers(MAKE[self.name](workers))
        self.wanted: dict[int, SubscriptionRow] = {}
        self.next = 0

    @rule(new=st.lists(any_subscription, min_size=1, max_size=12))
    def add(self, new: list[SubscriptionRow]) -> None:
        handles = np.arange(self.next, self.next + len(new)) * 2
        self.next += len(new)
        self.wanted.update(zip(handles.tolist(), new, strict=True))
        self.workers.add(index_rows(handles, subscriptions_of(new)))

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        removed = data.draw(st.lists(st.sampled_from(sorted(self.wanted)), unique=True) if self.wanted else st.just([]))
        for handle in removed:
            del self.wanted[handle]
        self.workers.remove(np.array([*removed, 1], np.int64))

    @rule()
    def balance(self) -> None:
        self.workers.balance()

    @rule()
    def restart(self) -> None:
        self.workers.partitioner = restarted(self.workers.partitioner)

    @rule(event_rows=st.lists(any_event, min_size=1, max_size=12), times=st.integers(1, 3))
    def match(self, event_rows: list[EventRow], times: int) -> None:
        events = events_of(event_rows)
        handles = sorted(self.wanted)
        reference = ReferenceMatcher(subscriptions_of([self.wanted[handle] for handle in handles]))
        expected = [(event, handles[row]) for event, row in pairs(reference.match(events))]
        for _ in range(times):
            assert pairs(self.workers.match(events).matches) == expected

    @invariant()
    def all_are_held(self) -> None:
        if hasattr(self, "workers"):
            every = range(self.workers.partitioner.workers)
            held = Counter(handle for worker in every for handle in self.workers.held(worker).tolist())
            assert set(held) == set(self.wanted)
            assert self.name == "kdtree" or set(held.values()) <= {1}


@pytest.mark.parametrize("name", MAKE)
def test_workers_together_equal_the_reference(name: str) -> None:
    """Each match once, with one, two and four workers."""
    machine = type(f"Machine_{name}", (PartitionMachine,), {"name": name})
    run_state_machine_as_test(machine, settings=brief())
