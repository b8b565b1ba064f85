"""The port of partitioners: which worker holds which subscriptions, and which workers an event must be sent to."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from roamcast.match.index.rows import IndexRows
from roamcast.match.index.segments import Arrays
from roamcast.match.port import Events, Matches

__all__ = ["MAX_WORKERS", "NO_WORKER", "Partitioner", "PlacementChanges", "RoutedEvents", "placement_changes"]

Integers = npt.NDArray[np.int64]
Masks = npt.NDArray[np.uint64]

NO_WORKER: Final = -1
MAX_WORKERS: Final = 64


class RoutedEvents(NamedTuple):
    """Messages: distinct pairs of an event and a worker it is sent to, ordered by event, then worker."""

    event: Integers
    worker: Integers


class PlacementChanges(NamedTuple):
    """Subscriptions that move from the worker `source` to `target`. NO_WORKER if they are new or removed there."""

    handle: Integers
    source: Integers
    target: Integers

    @classmethod
    def concatenate(cls, parts: list[PlacementChanges]) -> PlacementChanges:
        return cls(*(np.concatenate([np.empty(0, np.int64), *column]) for column in zip(*parts, _EMPTY, strict=True)))


_EMPTY: Final[tuple[Any, ...]] = tuple(np.empty(0, np.int64) for _ in range(3))


class Partitioner(Protocol):
    """Decides placement and routing.

    Exact: if all placement changes are applied in order and events are sent as routed, every match is found, by exactly
    one worker. Handles passed to `add` are new and ascending. Deterministic: nothing depends on time or chance.
    """

    workers: int

    def add(self, rows: IndexRows) -> PlacementChanges:
        """Add subscriptions; others may move because of it."""

    def remove(self, handles: Integers) -> PlacementChanges:
        """Remove subscriptions; unknown handles are ignored."""

    def route(self, events: Events) -> RoutedEvents:
        """Return the workers that may hold a match."""

    def observe(self, events: Events, matches: Matches) -> None:
        """Learn from events, or a sample of them. The matches name subscriptions by their handles."""

    def balance(self) -> PlacementChanges:
        """Move subscriptions to even out the load observed since the last call."""

    def arrays(self) -> Arrays:
        """Return the whole state, to be stored in a file."""


def placement_changes(handle: Integers, before: Masks, after: Masks) -> PlacementChanges:
    """Return the changes that take subscriptions from the workers in one mask to those in another."""
    parts: list[PlacementChanges] = []
    workers = int(np.bitwise_or.reduce(before | after, initial=np.uint64(0)))
    for worker in range(workers.bit_length()):
        bit = np.uint64(1 << worker)
        added, removed = np.flatnonzero(after & ~before & bit), np.flatnonzero(before & ~after & bit)
        parts.append(PlacementChanges(handle[added], np.full(len(added), NO_WORKER), np.full(len(added), worker)))
        parts.append(PlacementChanges(handle[removed], np.full(len(removed), worker), np.full(len(removed), NO_WORKER)))
    return _pair(PlacementChanges.concatenate(parts))


def _pair(changes: PlacementChanges) -> PlacementChanges:
    """Join each addition with a removal of the same subscription to one move."""
    order = np.lexsort((changes.target, changes.handle))
    changes = PlacementChanges(*(column[order] for column in changes))
    is_added, is_removed = changes.source == NO_WORKER, changes.target == NO_WORKER
    added, removed = (PlacementChanges(*(column[some] for column in changes)) for some in (is_added, is_removed))
    added_key = added.handle * MAX_WORKERS + _occurrence(added.handle)
    removed_key = removed.handle * MAX_WORKERS + _occurrence(removed.handle)
    _, at_added, at_removed = np.intersect1d(added_key, removed_key, assume_unique=True, return_indices=True)
    added.source[at_added] = removed.source[at_removed]
    rest = np.delete(np.arange(len(removed.handle)), at_removed)
    return PlacementChanges.concatenate([added, PlacementChanges(*(column[rest] for column in removed))])


def _occurrence(handle: Integers) -> Integers:
    """Number the occurrences of each handle from 0. Equal handles are adjacent."""
    first = np.flatnonzero(np.diff(handle, prepend=-1))
    return np.arange(len(handle)) - np.repeat(first, np.diff(np.append(first, len(handle))))
