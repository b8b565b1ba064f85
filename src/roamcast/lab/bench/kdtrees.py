"""The comparison of `roamcast bench bind`: nearest sources by scipy's k-d trees, one for each context."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree  # type: ignore[import-untyped]
from scipy.spatial.distance import cdist  # type: ignore[import-untyped]

__all__ = ["KDTrees"]

Int32s = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


class KDTrees:
    """The nearest source of each subscriber within its radius. Entities are the sources, then the subscribers.

    After a batch each context rebuilds its tree if one of its sources moved. It then queries the subscribers that
    moved, those whose source moved, and those that a moved source may have come nearer to than their own. This was the
    fastest of several variants: querying all subscribers, and finding the last kind with a tree of the moved sources or
    of the subscribers, took longer. So did queries of a few hundred points with `workers=2`; instead the contexts are
    distributed over two threads, which scipy runs concurrently.
    """

    def __init__(
        self,
        x: Floats,
        y: Floats,
        context_of_source: Int32s,
        context: Int32s,
        radius: Floats,
        pool: ThreadPoolExecutor,
    ) -> None:
        self._pool = pool
        self._split = len(context_of_source)
        self._context = np.concatenate([context_of_source, context])
        self._row = np.empty(len(self._context), np.int32)  # by entity: its index within its context
        self._contexts = []
        points = np.column_stack([x, y])
        for number in range(int(self._context.max()) + 1):
            sources = np.flatnonzero(context_of_source == number)
            subscribers = self._split + np.flatnonzero(context == number)
            self._row[sources], self._row[subscribers] = np.arange(len(sources)), np.arange(len(subscribers))
            of_context = subscribers - self._split
            self._contexts.append(
                _ContextTree(sources, of_context, points[sources], points[subscribers], radius[of_context])
            )

    def move(self, entities: Int32s, x: Floats, y: Floats) -> Int32s:
        """Move entities, each at most once. Returns the subscriptions whose source changed."""
        context = self._context[entities]
        order = np.argsort(context, kind="stable")
        entities, points = entities[order], np.column_stack([x, y])[order]
        cuts = np.searchsorted(context[order], np.arange(len(self._contexts) + 1))
        rows, is_source = self._row[entities], entities < self._split

        def work(number: int) -> Int32s:
            part = slice(cuts[number], cuts[number + 1])
            row, point, source = rows[part], points[part], is_source[part]
            return self._contexts[number].move(row[source], point[source], row[~source], point[~source])

        return np.concatenate(list(self._pool.map(work, range(len(self._contexts)))))

    def bound(self) -> Int32s:
        """The source of every subscription, or -1."""
        bound = np.empty(len(self._context) - self._split, np.int32)
        for context in self._contexts:
            bound[context.subscriptions] = context.bound(np.arange(len(context.subscriptions)))
        return bound


class _ContextTree:
    def __init__(
        self,
        ids: npt.NDArray[np.intp],
        subscriptions: npt.NDArray[np.intp],
        sources: Floats,
        subscribers: Floats,
        radius: Floats,
    ) -> None:
        self.subscriptions = subscriptions.astype(np.int32)
        self._ids = ids.astype(np.int32)
        self._sources = sources
        self._subscribers = subscribers
        self._radius = radius
        self._tree = cKDTree(sources)
        self._distance, self._nearest = self._tree.query(subscribers)
        self._moved = np.zeros(len(sources), np.bool_)

    def bound(self, rows: npt.NDArray[np.intp]) -> Int32s:
        """The source of each of these subscribers, or -1."""
        return np.where(self._distance[rows] <= self._radius[rows], self._ids[self._nearest[rows]], np.int32(-1))

    def move(self, source: Int32s, source_at: Floats, subscriber: Int32s, subscriber_at: Floats) -> Int32s:
        """Move sources and subscribers. Returns the subscriptions whose source changed."""
        self._subscribers[subscriber] = subscriber_at
        stale = np.zeros(len(self._subscribers), np.bool_)
        if len(source):
            self._sources[source] = source_at
            self._tree = cKDTree(self._sources)
            self._moved[source] = True
            stale = (cdist(source_at, self._subscribers, "sqeuclidean") <= self._distance**2).any(axis=0)
            stale |= self._moved[self._nearest]
            self._moved[source] = False
        stale[subscriber] = True
        rows = np.flatnonzero(stale)
        before = self.bound(rows)
        self._distance[rows], self._nearest[rows] = self._tree.query(self._subscribers[rows])
        changed: Int32s = self.subscriptions[rows[before != self.bound(rows)]]
        return changed
