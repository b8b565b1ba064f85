"""Compile the kernels of matching, or load them from numba's cache, before they are needed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from roamcast.compiled import expect_compilation
from roamcast.match.index.lsm import IndexStore
from roamcast.match.index.rows import index_rows
from roamcast.match.index.term_statistics import TermStatistics
from roamcast.match.port import Events, Subscriptions

__all__ = ["warm_up"]


def warm_up() -> None:
    """Compile what a pipeline with a replicated index needs: adding, removing, merging and matching.

    Kernels of a partitioned index and of the partitioners are compiled at first use.
    """
    count = 40
    side = np.arange(count) / 10
    terms = pa.array([["a", str(n % 3)][: n % 3] for n in range(count)])
    events = Events(side, side, pa.array([["a", str(n % 3), "b"] for n in range(count)]))
    subscriptions = Subscriptions(side - 0.1, side - 0.1, side + 0.1, side + 0.1, terms)
    with expect_compilation(), tempfile.TemporaryDirectory() as folder:
        store, statistics = IndexStore(Path(folder)), TermStatistics()
        statistics.observe(events.terms)
        added = (index_rows(np.arange(first, first + count), subscriptions) for first in (0, count))
        stack = store.apply((), added=next(added), frequency=statistics)
        stack = store.apply(stack, removed=[1], added=next(added), frequency=statistics)
        store.open(store.compact(stack, statistics)).match(events)
