"""Updating the index from batch to batch, in either physical plan, and balancing the load of shards.

Which worker holds a subscription is decided by its key on a space-filling curve (see `match.partitioners.curve`). The
shards are the authority; the router follows them.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.match.index.build import TermFrequency
from roamcast.match.index.lsm import IndexStore, SegmentRef
from roamcast.match.index.moving import RegionBoxes
from roamcast.match.index.rows import IndexRows, concatenate_rows, index_rows, sample_evenly, select_rows
from roamcast.match.partitioners.cuts import Cuts, LoadSample
from roamcast.match.partitioners.hilbert import curve_keys_of_rows
from roamcast.match.routing.router import RoutingTableRef, RoutingTables, new_secret
from roamcast.pipeline.schemas import SUBSCRIPTIONS
from roamcast.pipeline.state.index_state import IndexState, Shard, ShardedIndex, boxes_and_terms, rows_for_index
from roamcast.pipeline.state.lookups import Integers, TableLookup
from roamcast.pipeline.state.parts import PartFolder
from roamcast.pipeline.state.state_rows import StateRows

__all__ = ["IMBALANCE", "IndexUpdater", "plan_rebalance"]

IMBALANCE: Final = 1.2
"""Subscriptions move when the load of the busiest worker is this many times the mean."""
_SAMPLE: Final = 20_000  # matches, and subscriptions
_CONFIDENCE: Final = 3.0  # standard deviations by which the load in a sample may be off
_PLACED: Final = ("handle", "min_x", "min_y", "max_x", "max_y", "terms", "moving_radius")
_STALE: Final = 0.25  # of all subscriptions: with more outdated entries the routing tables are rebuilt


class IndexUpdater:
    """Computes the index after a batch. The same input gives the same result, except for a new secret of new shards."""

    def __init__(self, store: IndexStore, tables: RoutingTables, parts: PartFolder) -> None:
        self._store = store
        self._tables = tables
        self._parts = parts

    def reshard(self, index: IndexState, workers: int, known: StateRows) -> IndexState:
        """Bring the index into shards for `workers` (0: replicate it), and move the rows that are to move."""
        sharded = index.sharded
        if sharded is not None and len(sharded.shards) == workers:
            return index if sharded.planned is None else index._replace(sharded=self._move(sharded, known))
        if sharded is None and not workers:
            return index
        rows = self._all_rows(index)
        if not workers:
            return index._replace(stack=self._store.apply((), added=rows), sharded=None)
        keys = np.empty(0) if rows is None else curve_keys_of_rows(rows)
        cuts = Cuts.even(workers, keys)
        sharded = ShardedIndex((Shard(),) * workers, cuts, new_secret())
        if rows is not None:
            sharded = self._change(sharded, rows, cuts.workers_of(keys), known.with_handles(rows.handle))
        return index._replace(stack=(), sharded=sharded)

    def update(
        self, index: IndexState, rows: pa.Table, boxes: RegionBoxes, frequency: TermFrequency | None = None
    ) -> IndexState:
        """The index after a batch that wrote these `rows` of SUBSCRIPTIONS, which have handles.

        `boxes` are those of moving regions that are new or have left their box.
        """
        is_known = boxes.handle < index.next_handle
        moved = RegionBoxes(boxes.handle[is_known], boxes.box[is_known])
        if not rows.num_rows and not is_known.any():
            return index if index.sharded is None else self._refresh(index, frequency)
        handles: Integers = rows["handle"].to_numpy()
        added = rows_for_index(rows.filter(pa.array(handles >= index.next_handle)), boxes) if rows.num_rows else None
        if index.sharded is None:
            index = index._replace(stack=self._update_stack(index, added, moved, frequency))
        else:
            index = index._replace(sharded=self._update_shards(index, index.sharded, rows, added, moved, frequency))
        if rows.num_rows:
            removed = tuple(handles[pc.is_valid(rows["removed_in"]).to_numpy()].tolist())
            index = index._replace(removed=removed, next_handle=max(index.next_handle, int(handles.max()) + 1))
        return self._refresh(index, frequency)

    def _update_stack(
        self, index: IndexState, added: IndexRows | None, moved: RegionBoxes, frequency: TermFrequency | None
    ) -> tuple[SegmentRef, ...]:
        stack = index.stack
        if len(moved.handle):
            stack = self._store.replace_boxes(stack, moved.handle, moved.box, frequency)
        if added is not None:
            stack = self._store.apply(stack, removed=index.removed, added=added, frequency=frequency)
        return self._store.compact(stack, frequency)

    def _update_shards(
        self,
        index: IndexState,
        sharded: ShardedIndex,
        rows: pa.Table,
        added: IndexRows | None,
        moved: RegionBoxes,
        frequency: TermFrequency | None,
    ) -> ShardedIndex:
        if len(moved.handle):
            sharded = self._replace_boxes(sharded, moved, frequency)
        if added is None:
            return sharded
        keys = curve_keys_of_rows(added)
        if not sharded.live and len(keys) >= len(sharded.cuts.at):  # the first rows show where subscriptions are
            sharded = sharded._replace(cuts=Cuts.even(len(sharded.shards), keys))
        return self._change(sharded, added, sharded.cuts.workers_of(keys), rows, index.removed, frequency)

    def _move(self, sharded: ShardedIndex, known: StateRows) -> ShardedIndex:
        """Apply the planned cuts. Only rows that move are written again."""
        cuts = sharded.planned or sharded.cuts
        moving = []
        for number, shard in enumerate(sharded.shards):
            rows = self._store.rows(shard.stack)
            if rows is not None:
                worker = cuts.workers_of(curve_keys_of_rows(rows))
                away = np.flatnonzero(worker != number)
                moving.append((select_rows(rows, away), worker[away]))
        sharded = sharded._replace(cuts=cuts, planned=None)
        if not moving:
            return sharded
        rows = reduce(concatenate_rows, (rows for rows, _ in moving))
        workers = np.concatenate([worker for _, worker in moving])
        return self._change(sharded, rows, workers, known.with_handles(rows.handle), rows.handle)

    def _change(
        self,
        sharded: ShardedIndex,
        added: IndexRows,
        worker: Integers,
        rows: pa.Table,
        removed: npt.ArrayLike = (),
        frequency: TermFrequency | None = None,
    ) -> ShardedIndex:
        """Take the handles `removed` out of all shards, then give each row of `added` to its `worker`.

        `rows` are the rows of SUBSCRIPTIONS of `added` and perhaps of others; the latter may concern any shard.
        """
        handles = rows["handle"].to_numpy()
        is_added, shards = np.isin(handles, added.handle), []
        for number, shard in enumerate(sharded.shards):
            mine = select_rows(added, np.flatnonzero(worker == number))
            stack = self._store.apply(shard.stack, removed=removed, added=mine, frequency=frequency)
            stack = self._store.compact(stack, frequency)
            my_rows = rows.filter(pa.array(~is_added | np.isin(handles, mine.handle)))
            parts = self._parts.push(SUBSCRIPTIONS, shard.rows, my_rows, partial(self._is_absent, stack))
            shards.append(Shard(stack, parts))
        return sharded._replace(
            shards=tuple(shards),
            routes=self._tables.push(sharded.routes, added, worker, sharded.secret, frequency),
            stale=sharded.stale + np.size(removed),
        )

    def _is_absent(self, stack: tuple[SegmentRef, ...], rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Which rows a shard with this index does not need."""
        held = self._store.rows(stack)
        return np.isin(rows["handle"].to_numpy(), () if held is None else held.handle, invert=True)

    def _replace_boxes(
        self, sharded: ShardedIndex, boxes: RegionBoxes, frequency: TermFrequency | None
    ) -> ShardedIndex:
        """Moving regions stay with their workers."""
        shards, routes = [], sharded.routes
        for number, shard in enumerate(sharded.shards):
            stack = self._store.replace_boxes(shard.stack, boxes.handle, boxes.box, frequency) if shard.stack else ()
            routes = self._route(sharded, routes, stack, number, frequency, boxes.handle)
            shards.append(shard._replace(stack=self._store.compact(stack, frequency)))
        return sharded._replace(shards=tuple(shards), routes=routes, stale=sharded.stale + len(boxes.handle))

    def _refresh(self, index: IndexState, frequency: TermFrequency | None) -> IndexState:
        """Rebuild the routing tables if too many of their entries are outdated."""
        sharded = index.sharded
        if sharded is None or sharded.stale <= _STALE * sharded.live + 1024:
            return index
        routes: tuple[RoutingTableRef, ...] = ()
        for number, shard in enumerate(sharded.shards):
            routes = self._route(sharded, routes, shard.stack, number, frequency)
        return index._replace(sharded=sharded._replace(routes=routes, stale=0))

    def _route(
        self,
        sharded: ShardedIndex,
        routes: tuple[RoutingTableRef, ...],
        stack: tuple[SegmentRef, ...],
        number: int,
        frequency: TermFrequency | None,
        handles: Integers | None = None,
    ) -> tuple[RoutingTableRef, ...]:
        """Add the rows of a stack, or those of them with these handles, to the routing tables."""
        rows = self._store.rows(stack, handles)
        if rows is None:
            return routes
        return self._tables.push(routes, rows, np.full(len(rows.handle), number), sharded.secret, frequency)

    def _all_rows(self, index: IndexState) -> IndexRows | None:
        stacks = [shard.stack for shard in index.sharded.shards] if index.sharded else [index.stack]
        rows = [each for stack in stacks if (each := self._store.rows(stack)) is not None]
        return reduce(concatenate_rows, rows) if rows else None


def plan_rebalance(
    sharded: ShardedIndex, matched: pa.Table, subscriptions: TableLookup, imbalance: float = IMBALANCE
) -> ShardedIndex:
    """Plan other cuts for the next batch if the load of this one was too uneven. `matched` has MATCHED_SCHEMA.

    A little is gained with every new sample, but each time many subscriptions would have to move. Hence the threshold.
    """
    pairs = matched["subscriptions"].combine_chunks()
    sample = sample_evenly(len(pairs.flatten()), _SAMPLE)
    event = np.repeat(np.arange(len(pairs)), pc.list_value_length(pairs).to_numpy())[sample]
    keys, is_fixed = _curve_keys(subscriptions, pairs.flatten().to_numpy()[sample])
    held, _ = _curve_keys(subscriptions, subscriptions.sample(_SAMPLE))
    load, workers = LoadSample.of_candidates(event[is_fixed], keys), len(sharded.shards)
    events_per_worker = max(len(np.unique(load.event)), 1) / workers
    threshold = imbalance * (1 + _CONFIDENCE / np.sqrt(events_per_worker))
    if sharded.cuts.imbalance(workers, load, held) < threshold:
        return sharded
    cuts = sharded.cuts.rebalance(workers, load, held)
    return sharded if cuts == sharded.cuts else sharded._replace(planned=cuts)


def _curve_keys(subscriptions: TableLookup, numbers: Integers) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """The curve keys of the rows that have no moving region, and which of the rows these are."""
    rows = subscriptions.take(numbers, _PLACED)
    is_fixed = pc.is_null(rows["moving_radius"])
    rows = rows.filter(is_fixed)
    return curve_keys_of_rows(index_rows(rows["handle"].to_numpy(), boxes_and_terms(rows))), is_fixed.to_numpy()
