"""Workers in one process that do what a partitioner decides. For experiments, and to test that it is exact."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.match.index.build import build
from roamcast.match.index.index import Index, OpenSegment
from roamcast.match.index.rows import IndexRows, concatenate_rows, select_events, select_rows
from roamcast.match.index.segments import MappedArrays
from roamcast.match.port import Events, Matches
from roamcast.match.routing.features import hash_events
from roamcast.match.routing.partitioner import NO_WORKER, Partitioner, PlacementChanges
from roamcast.match.routing.placement import Placement

__all__ = ["SimulatedWorkers", "WorkerMatches"]

Integers = npt.NDArray[np.int64]


class WorkerMatches(NamedTuple):
    """The matches of a batch; by worker, its messages and its checks.

    Checks are pairs of an event that was sent to the worker and a subscription with its cell and rarest term.
    """

    matches: Matches
    messages: Integers
    checks: Integers


class SimulatedWorkers:
    """Holds the subscriptions of each worker, and an index over them."""

    def __init__(self, partitioner: Partitioner) -> None:
        self.partitioner = partitioner
        self.moved = 0  # subscriptions that moved from one worker to another
        self._placement = Placement()
        self._rows: IndexRows | None = None
        self._indexes: list[Index | None] = [None] * partitioner.workers

    def add(self, rows: IndexRows) -> None:
        self._rows = rows if self._rows is None else concatenate_rows(self._rows, rows)
        changes = self.partitioner.add(rows)
        term = self._placement.choose_terms(rows)
        new = np.isin(changes.handle, rows.handle)
        mask = np.zeros(len(rows.handle), np.uint64)
        at = np.searchsorted(rows.handle, changes.handle[new])
        np.bitwise_or.at(mask, at, np.uint64(1) << changes.target[new].astype(np.uint64))
        self._drop_indexes(changes)
        self._placement.add(rows, term, mask)
        self._apply(PlacementChanges(*(column[~new] for column in changes)))

    def remove(self, handles: Integers) -> None:
        self._apply(self.partitioner.remove(handles))

    def balance(self) -> None:
        self._apply(self.partitioner.balance())

    def match(self, events: Events, *, observe: bool = True) -> WorkerMatches:
        """Route events and match them at the workers. With `observe` the partitioner learns from the matches."""
        routed = self.partitioner.route(events)
        hashed = hash_events(events)
        candidates = self._placement.candidates(hashed)
        pairs, messages, checks = [], [], []
        for worker in range(self.partitioner.workers):
            rows = routed.event[routed.worker == worker]
            matches = self._index(worker).match(select_events(events, rows))
            pairs.append((rows[matches.event], matches.subscription))
            sent = np.zeros(len(events.x), np.bool_)
            sent[rows] = True
            held = (self._placement.mask[candidates.row] & np.uint64(1 << worker)) != 0
            messages.append(len(rows))
            checks.append(int((held & sent[candidates.event]).sum()))
        event, handle = (np.concatenate(column) for column in zip(*pairs, strict=True))
        order = np.lexsort((handle, event))
        merged = Matches(event[order], handle[order])
        if observe:
            self._placement.observe(hashed)
            self.partitioner.observe(events, merged)
        return WorkerMatches(merged, np.array(messages), np.array(checks))

    def held(self, worker: int) -> Integers:
        """Return the handles that a worker holds."""
        handles: Integers = self._placement.handle[(self._placement.mask & np.uint64(1 << worker)) != 0]
        return handles

    @property
    def replication(self) -> float:
        """How many workers hold a subscription, on average."""
        held = sum(len(self.held(worker)) for worker in range(self.partitioner.workers))
        return held / max(len(self._placement.live), 1)

    def _apply(self, changes: PlacementChanges) -> None:
        """Apply changes of known subscriptions. The removal of one includes all of its workers."""
        rows = self._placement.find(changes.handle)
        mask = self._placement.mask
        for side, update in ((changes.source, np.bitwise_and), (changes.target, np.bitwise_or)):
            some = side != NO_WORKER
            bit = np.uint64(1) << side[some].astype(np.uint64)
            update.at(mask, rows[some], ~bit if update is np.bitwise_and else bit)
        self.moved += int(((changes.source != NO_WORKER) & (changes.target != NO_WORKER)).sum())
        self._drop_indexes(changes)

    def _drop_indexes(self, changes: PlacementChanges) -> None:
        """Drop the indexes of workers whose subscriptions changed."""
        for worker in np.union1d(changes.source, changes.target).tolist():
            if worker != NO_WORKER:
                self._indexes[worker] = None

    def _index(self, worker: int) -> Index:
        index = self._indexes[worker]
        if index is None:
            segments = []
            held = self.held(worker)
            if self._rows is not None and len(held):
                rows = select_rows(self._rows, np.flatnonzero(np.isin(self._rows.handle, held)))
                segments.append(OpenSegment(MappedArrays.in_memory(build(rows)._asdict()), None))
            index = self._indexes[worker] = Index(segments)
        return index
