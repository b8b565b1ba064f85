"""What partitioners mean for tasks: which events a worker gets, and how its load is counted (see `state.load`)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from roamcast.match.index.rows import select_events
from roamcast.match.partitioners.kdtree import KdLeaves, point_cells
from roamcast.match.port import Events
from roamcast.match.routing.partitioner import RoutedEvents
from roamcast.pipeline.state.load import SAMPLED_OFFSETS, WHOLE_SHARD, LoadRows
from roamcast.pipeline.state.lookups import Integers
from roamcast.pipeline.state.partitioning import MEASURED, PartitioningState
from roamcast.pipeline.tasks.context import MatchContext, OpenContext
from roamcast.pipeline.tasks.one_by_one import categories_of

__all__ = ["measure_load", "restrict_to_owners"]


def restrict_to_owners(state: PartitioningState | None, events: Events, routed: RoutedEvents) -> RoutedEvents:
    """Where subscriptions have copies, only the owner of an event's point gets the event. So pairs stay unique."""
    if state is None or state.partitioner != "kdtree":
        return routed
    owner = KdLeaves.of_lists(state.values["leaves"]).workers_of(np.asarray(events.x), np.asarray(events.y))
    is_owner = routed.worker == owner[routed.event]
    return RoutedEvents(routed.event[is_owner], routed.worker[is_owner])


def measure_load(
    events: pa.RecordBatch,
    worker: int,
    event: Integers,
    handle: Integers,
    scanned: int,
    opened: OpenContext,
    context: MatchContext,
) -> LoadRows:
    """The load of a shard that matched these events. Its matches are the pairs of `event` and `handle`."""
    whole = LoadRows.of(worker, np.array([WHOLE_SHARD]), events.num_rows, scanned, len(event))
    if context.partitioning is None or context.partitioning.partitioner not in MEASURED:
        return whole
    sampled = np.flatnonzero(events["offset"].to_numpy() % SAMPLED_OFFSETS == 0)
    of_sample = np.searchsorted(sampled, event)
    is_sampled = np.isin(event, sampled)
    matches = of_sample[is_sampled], handle[is_sampled]
    points = Events(events["x"].to_numpy(), events["y"].to_numpy(), events["terms"])
    points = select_events(points, sampled)
    if context.partitioning.partitioner == "kdtree":
        return LoadRows.concatenate([whole, *_by_cell(worker, points, matches[0], opened)])
    return LoadRows.concatenate([whole, *_by_category(worker, points, *matches, opened)])


def _by_cell(worker: int, points: Events, event: Integers, opened: OpenContext) -> Iterator[LoadRows]:
    """By the cell in which the event is."""
    cells = point_cells(np.asarray(points.x), np.asarray(points.y))
    yield LoadRows.of(worker, cells, messages=1)
    yield LoadRows.of(worker, cells[event], matches=1)
    for postings in opened.index.scanned_postings(points):
        yield LoadRows.of(worker, cells[postings.event], checks=postings.times)


def _by_category(
    worker: int, points: Events, event: Integers, handle: Integers, opened: OpenContext
) -> Iterator[LoadRows]:
    """By the category of the subscription. A category receives an event if one of its postings is compared."""
    received = [np.empty(0, np.int64)]
    for postings in opened.index.scanned_postings(points):
        category = categories_of(postings.subscription, opened.members)
        known = np.flatnonzero(category >= 0)
        yield LoadRows.of(worker, category[known], checks=postings.times[known])
        received.append(np.unique(category[known] * len(points.x) + postings.event[known]))
    distinct = np.unique(np.concatenate(received))
    yield LoadRows.of(worker, distinct // max(len(points.x), 1), messages=1)
    yield LoadRows.of(worker, categories_of(handle, opened.members), matches=1)
