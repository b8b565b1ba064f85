"""Workers in one process: what a partitioner decides, done. For experiments, and to see that it is exact."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.match.index.build import build
from roamcast.match.index.index import Index, OpenSegment
from roamcast.match.index.rows import IndexRows, concatenate_rows, select_events, select_rows
from roamcast.match.index.segments import Opened
from roamcast.match.port import Events, Matches
from roamcast.match.routing.features import hashed_events
from roamcast.match.routing.partitioner import NOWHERE, Moves, Partitioner
from roamcast.match.routing.placement import Placement

__all__ = ["Matched", "Workers"]

Integers = npt.NDArray[np.int64]


class Matched(NamedTuple):
    """The matches of a batch; by worker how many messages it had, and how many subscriptions had the cell and the
    rarest term of an event it was sent."""

    matches: Matches
    messages: Integers
    checks: Integers


class Workers:
    """Holds for each worker the subscriptions it was given, and one index over them."""

    def __init__(self, partitioner: Partitioner) -> None:
        self.partitioner = partitioner
        self.moved = 0  # subscriptions that went from one worker to another
        self._ledger = Placement()
        self._rows: IndexRows | None = None
        self._indexes: list[Index | None] = [None] * partitioner.workers

    def add(self, rows: IndexRows) -> None:
        self._rows = rows if self._rows is None else concatenate_rows(self._rows, rows)
        moves = self.partitioner.add(rows)
        term = self._ledger.choose_terms(rows)
        new = np.isin(moves.handle, rows.handle)
        mask = np.zeros(len(rows.handle), np.uint64)
        at = np.searchsorted(rows.handle, moves.handle[new])
        np.bitwise_or.at(mask, at, np.uint64(1) << moves.target[new].astype(np.uint64))
        self._forget(moves)
        self._ledger.add(rows, term, mask)
        self._follow(Moves(*(column[~new] for column in moves)))

    def remove(self, handles: Integers) -> None:
        self._follow(self.partitioner.remove(handles))

    def balance(self) -> None:
        self._follow(self.partitioner.balance())

    def match(self, events: Events, *, observe: bool = True) -> Matched:
        routed = self.partitioner.route(events)
        hashed = hashed_events(events)
        admitted = self._ledger.admitted(hashed)
        found, messages, checks = [], [], []
        for worker in range(self.partitioner.workers):
            rows = routed.event[routed.worker == worker]
            matches = self._index(worker).match(select_events(events, rows))
            found.append((rows[matches.event], matches.subscription))
            sent = np.zeros(len(events.x), np.bool_)
            sent[rows] = True
            held = (self._ledger.mask[admitted.row] & np.uint64(1 << worker)) != 0
            messages.append(len(rows))
            checks.append(int((held & sent[admitted.event]).sum()))
        event, handle = (np.concatenate(column) for column in zip(*found, strict=True))
        order = np.lexsort((handle, event))
        all_of_them = Matches(event[order], handle[order])
        if observe:
            self._ledger.see(hashed)
            self.partitioner.observe(events, all_of_them)
        return Matched(all_of_them, np.array(messages), np.array(checks))

    def held(self, worker: int) -> Integers:
        """The handles of what a worker holds."""
        here: Integers = self._ledger.handle[(self._ledger.mask & np.uint64(1 << worker)) != 0]
        return here

    @property
    def replication(self) -> float:
        """How many workers hold a subscription, on average."""
        held = sum(len(self.held(worker)) for worker in range(self.partitioner.workers))
        return held / max(len(self._ledger.live), 1)

    def _follow(self, moves: Moves) -> None:
        """Moves of what is here; for one that goes from all workers, all of them."""
        rows = self._ledger.find(moves.handle)
        change = self._ledger.mask
        for side, bits in ((moves.source, np.bitwise_and), (moves.target, np.bitwise_or)):
            some = side != NOWHERE
            bit = np.uint64(1) << side[some].astype(np.uint64)
            bits.at(change, rows[some], ~bit if bits is np.bitwise_and else bit)
        self.moved += int(((moves.source != NOWHERE) & (moves.target != NOWHERE)).sum())
        self._forget(moves)

    def _forget(self, moves: Moves) -> None:
        """The indexes of those who hold something else now."""
        for worker in np.union1d(moves.source, moves.target).tolist():
            if worker != NOWHERE:
                self._indexes[worker] = None

    def _index(self, worker: int) -> Index:
        index = self._indexes[worker]
        if index is None:
            layers = []
            held = self.held(worker)
            if self._rows is not None and len(held):
                rows = select_rows(self._rows, np.flatnonzero(np.isin(self._rows.handle, held)))
                layers.append(OpenSegment(Opened.in_memory(build(rows)._asdict()), None))
            index = self._indexes[worker] = Index(layers)
        return index
