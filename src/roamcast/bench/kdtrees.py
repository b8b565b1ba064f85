"""The peer of `roamcast bench bind`: nearest sources by scipy's k-d trees, one for each context."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree  # type: ignore[import-untyped]
from scipy.spatial.distance import cdist  # type: ignore[import-untyped]

__all__ = ["KDTrees"]

Integers = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


class KDTrees:
    """Which source is nearest to each subscriber within its radius. Entities are the sources, then the subscribers.

    After a batch a context builds its tree anew if one of its sources moved, and queries the subscribers that need it:
    those that moved, those whose source moved, and those to whom a moved source has come as near as their own. Of the
    ways tried it is the quickest: all subscribers queried, the last kind found by a tree of the moved sources or by a
    tree of the subscribers all took longer. So did queries with `workers=2`, a few hundred points each: instead the
    contexts are shared out to two threads, which scipy lets run at once.
    """

    def __init__(
        self,
        x: Floats,
        y: Floats,
        context_of_source: Integers,
        context: Integers,
        radius: Floats,
        pool: ThreadPoolExecutor,
    ) -> None:
        self._pool = pool
        self._split = len(context_of_source)
        self._radius = radius
        self._context = np.concatenate([context_of_source, context])
        self._row = np.empty(len(self._context), np.int32)  # by entity: which one it is of its context
        self._contexts = []
        points = np.column_stack([x, y])
        for number in range(int(self._context.max()) + 1):
            sources = np.flatnonzero(context_of_source == number)
            subscribers = self._split + np.flatnonzero(context == number)
            self._row[sources], self._row[subscribers] = np.arange(len(sources)), np.arange(len(subscribers))
            self._contexts.append(_Context(sources, points[sources], points[subscribers]))

    def move(self, entities: Integers, x: Floats, y: Floats) -> None:
        """Entities, each at most once, are somewhere else."""
        context = self._context[entities]
        order = np.argsort(context, kind="stable")
        entities, points = entities[order], np.column_stack([x, y])[order]
        cuts = np.searchsorted(context[order], np.arange(len(self._contexts) + 1))
        rows, is_source = self._row[entities], entities < self._split

        def work(number: int) -> None:
            part = slice(cuts[number], cuts[number + 1])
            row, point, source = rows[part], points[part], is_source[part]
            self._contexts[number].move(row[source], point[source], row[~source], point[~source])

        list(self._pool.map(work, range(len(self._contexts))))

    def bound(self, subscriptions: Integers) -> Integers:
        """The sources of these subscriptions, or -1."""
        at = self._split + subscriptions
        metres, sources = np.empty(len(at)), np.empty(len(at), np.int32)
        for i, (context, row) in enumerate(zip(self._context[at].tolist(), self._row[at].tolist(), strict=True)):
            metres[i], sources[i] = self._contexts[context].nearest(row)
        return np.where(metres <= self._radius[subscriptions], sources, np.int32(-1))


class _Context:
    def __init__(self, ids: npt.NDArray[np.intp], sources: Floats, subscribers: Floats) -> None:
        self._ids = ids
        self._sources = sources
        self._subscribers = subscribers
        self._tree = cKDTree(sources)
        self._distance, self._nearest = self._tree.query(subscribers)
        self._moved = np.zeros(len(sources), np.bool_)

    def nearest(self, row: int) -> tuple[float, int]:
        return self._distance[row], self._ids[self._nearest[row]]

    def move(self, source: Integers, source_at: Floats, subscriber: Integers, subscriber_at: Floats) -> None:
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
        self._distance[rows], self._nearest[rows] = self._tree.query(self._subscribers[rows])
