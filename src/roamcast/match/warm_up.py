"""A small world that uses every kernel once, so that all are compiled, or taken from numba's cache."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from roamcast.match.index.lsm import IndexStore
from roamcast.match.index.moving import MovingRegions
from roamcast.match.index.rows import index_rows
from roamcast.match.index.term_statistics import TermStatistics
from roamcast.match.partitioners.categories import Parameters
from roamcast.match.partitioners.drtcluster import DrtCluster
from roamcast.match.port import Events, Subscriptions
from roamcast.match.routing.router import RoutingTables, new_secret
from roamcast.space import GEOGRAPHIC

__all__ = ["rehearse"]


def rehearse() -> None:
    """Add, match, move, remove and merge; route; and put into categories."""
    count = 40
    side, terms = np.arange(count) / 10, pa.array([["a", str(n % 3)][: n % 3] for n in range(count)])
    point = pa.array(side).to_numpy()  # as the pipeline has it: read-only
    events = Events(point, point, pa.array([["a", str(n % 3), "b"] for n in range(count)]))
    wanted = Subscriptions(side - 0.1, side - 0.1, side + 0.1, side + 0.1, terms)
    with tempfile.TemporaryDirectory() as folder:
        layers, seen = IndexStore(Path(folder)), TermStatistics()
        seen.count(events.terms)
        stack = layers.apply((), added=index_rows(np.arange(count), wanted), frequency=seen)
        stack = layers.apply(stack, removed=[1], added=index_rows(np.arange(count, 2 * count), wanted), frequency=seen)
        regions = MovingRegions(GEOGRAPHIC)
        boxes = regions.add(np.arange(3), side[:3], side[:3], np.full(3, 100.0))
        stack = layers.replace_boxes(stack, boxes.handle, boxes.box)
        layers.open(layers.compact(stack)).match(events)
        tables = RoutingTables(Path(folder))
        routes = tables.push((), index_rows(np.arange(count), wanted), np.zeros(count, np.int64), new_secret())
        tables.open(routes).route(events)
    cluster = DrtCluster(2, Parameters(4))
    cluster.add(index_rows(np.arange(count), wanted))
    cluster.remove(np.arange(5))
    cluster.balance()
