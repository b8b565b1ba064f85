"""Updating the index from batch to batch, in either physical plan.

Which shards hold a subscription is decided by a policy (see `partitioning`). The shards are the authority; the router
follows them.
"""

from __future__ import annotations

import logging
from functools import partial, reduce
from time import perf_counter
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.match.index.build import TermFrequency
from roamcast.match.index.lsm import IndexStore, SegmentRef
from roamcast.match.index.moving import RegionBoxes
from roamcast.match.index.rows import IndexRows, concatenate_rows, select_rows
from roamcast.match.routing.router import RoutingTableRef, RoutingTables, new_secret
from roamcast.pipeline.schemas import SUBSCRIPTIONS
from roamcast.pipeline.state.category_policy import CategoryPolicy
from roamcast.pipeline.state.index_state import IndexState, Shard, ShardedIndex, rows_for_index
from roamcast.pipeline.state.lookups import Integers
from roamcast.pipeline.state.partitioning import Masks, PartitioningSettings, PartitioningState, ShardPolicy
from roamcast.pipeline.state.parts import PartFolder
from roamcast.pipeline.state.policies import CurvePolicy, HashingPolicy, KdTreePolicy
from roamcast.pipeline.state.state_rows import StateRows

__all__ = ["IndexUpdater"]

log = logging.getLogger(__name__)

_STALE: Final = 0.25  # of all subscriptions: with more outdated entries the routing tables are rebuilt


class IndexUpdater:
    """Computes the index after a batch. The same input gives the same result, except for a new secret of new shards."""

    def __init__(self, store: IndexStore, tables: RoutingTables, parts: PartFolder) -> None:
        self._store = store
        self._tables = tables
        self._parts = parts

    def reshard(
        self,
        index: IndexState,
        workers: int,
        settings: PartitioningSettings,
        known: StateRows,
        policy: ShardPolicy | None = None,
    ) -> tuple[IndexState, ShardPolicy | None]:
        """Bring the index into shards for `workers` (0: replicate it), and move the rows that are to move.

        `policy` is that of the index, None to restore it. Returns the policy to continue with.
        """
        sharded = index.sharded
        if not workers:
            if sharded is None:
                return index, None
            return index._replace(stack=self._store.apply((), added=self._all_rows(index)), sharded=None), None
        if sharded is None or len(sharded.shards) != workers or not _fits(sharded.partitioning, settings):
            sharded, policy = self._place_all(index, workers, settings, known)
            return index._replace(stack=(), sharded=sharded), policy
        policy = policy or self._restore_policy(index, sharded, settings)
        rows, masks = self._find_moves(sharded, policy, policy.begin_batch())
        if rows is not None:
            sharded = self._change(sharded, rows, masks, known.with_handles(rows.handle), rows.handle)
            sharded = sharded._replace(moved=sharded.moved + len(rows.handle))
        return index._replace(sharded=sharded), policy

    def update(
        self,
        index: IndexState,
        rows: pa.Table,
        boxes: RegionBoxes,
        known: StateRows,
        policy: ShardPolicy | None = None,
        frequency: TermFrequency | None = None,
    ) -> IndexState:
        """The index after a batch that wrote these `rows` of SUBSCRIPTIONS, which have handles.

        `boxes` are those of moving regions that are new or have left their box. `known` are the rows before the batch.
        """
        is_known = boxes.handle < index.next_handle
        moved = RegionBoxes(boxes.handle[is_known], boxes.box[is_known])
        if not rows.num_rows and not is_known.any():
            return self._refresh(index, frequency)
        handles: Integers = rows["handle"].to_numpy()
        added = rows_for_index(rows.filter(pa.array(handles >= index.next_handle)), boxes) if rows.num_rows else None
        if index.sharded is None or policy is None:
            index = index._replace(stack=self._update_stack(index, added, moved, frequency))
        else:
            sharded = self._replace_boxes(index.sharded, moved, known, policy, frequency)
            if added is not None:
                sharded = self._add(sharded, index.removed, added, rows, known, policy, frequency)
            index = index._replace(sharded=sharded)
        if rows.num_rows:
            ended, removed = (handles[pc.is_valid(rows[name]).to_numpy()] for name in ("until", "drained_in"))
            leaving = np.setdiff1d(np.union1d(np.array(index.leaving, np.int64), ended), removed)
            index = index._replace(
                removed=tuple(removed.tolist()),
                leaving=tuple(leaving.tolist()),
                next_handle=max(index.next_handle, int(handles.max()) + 1),
            )
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

    def _place_all(
        self, index: IndexState, workers: int, settings: PartitioningSettings, known: StateRows
    ) -> tuple[ShardedIndex, ShardPolicy]:
        """Place all rows in the order of their handles, as if they came now."""
        began = perf_counter()
        policy = self._new_policy(workers, settings)
        secret = index.sharded.secret if index.sharded else new_secret()
        sharded = ShardedIndex((Shard(),) * workers, policy.save_placement(), secret)
        rows = self._all_rows(index)
        if rows is not None:
            policy.start(rows)
            policy.add(rows)
            sharded = self._change(sharded, rows, policy.masks(rows), known.with_handles(rows.handle))
            seconds, count = perf_counter() - began, len(rows.handle)
            log.info(
                "placed %d subscriptions on %d shards by %s: %.1f s", count, workers, settings.partitioner, seconds
            )
        return sharded, policy

    def _new_policy(self, workers: int, settings: PartitioningSettings) -> ShardPolicy:
        match settings.partitioner:
            case "drtcluster":
                return CategoryPolicy.create(workers, settings, self._parts)
            case "kdtree":
                return KdTreePolicy(workers, settings)
            case "hashing":
                return HashingPolicy(workers)
            case "curve":
                return CurvePolicy(workers, settings)

    def _restore_policy(self, index: IndexState, sharded: ShardedIndex, settings: PartitioningSettings) -> ShardPolicy:
        state, workers = sharded.partitioning, len(sharded.shards)
        match settings.partitioner:
            case "drtcluster":
                return CategoryPolicy.restore(workers, settings, self._parts, state, self._all_rows(index))
            case "kdtree":
                return KdTreePolicy(workers, settings, state.values)
            case "hashing":
                return HashingPolicy(workers)
            case "curve":
                return CurvePolicy(workers, settings, state.values)

    def _find_moves(
        self, sharded: ShardedIndex, policy: ShardPolicy, handles: Integers | None
    ) -> tuple[IndexRows | None, Masks]:
        """The rows, of those with these handles or of all, that the policy wants in other shards, and in which."""
        found = [] if handles is not None and not len(handles) else self._rows_by_shard(sharded, handles)
        if not found:
            return None, np.empty(0, np.uint64)
        handle = np.concatenate([rows.handle for _, rows in found])
        bit = np.repeat([np.uint64(1 << number) for number, _ in found], [len(rows.handle) for _, rows in found])
        wanted = np.concatenate([policy.masks(rows) for _, rows in found])
        distinct, first, inverse = np.unique(handle, return_index=True, return_inverse=True)
        held = np.zeros(len(distinct), np.uint64)
        np.bitwise_or.at(held, inverse, bit)
        moving = np.flatnonzero(held != wanted[first])
        if not len(moving):
            return None, np.empty(0, np.uint64)
        copies = [select_rows(rows, np.flatnonzero(np.isin(rows.handle, distinct[moving]))) for _, rows in found]
        return _distinct_rows(copies), wanted[first[moving]]

    def _rows_by_shard(self, sharded: ShardedIndex, handles: Integers | None) -> list[tuple[int, IndexRows]]:
        rows = ((number, self._store.rows(shard.stack, handles)) for number, shard in enumerate(sharded.shards))
        return [(number, held) for number, held in rows if held is not None and len(held.handle)]

    def _add(
        self,
        sharded: ShardedIndex,
        removed: tuple[int, ...],
        added: IndexRows,
        rows: pa.Table,
        known: StateRows,
        policy: ShardPolicy,
        frequency: TermFrequency | None,
    ) -> ShardedIndex:
        """Take the handles `removed` out, add rows, and move others if the policy wants it.

        `rows` are the rows of SUBSCRIPTIONS of `added`, and others that changed.
        """
        policy.remove(np.array(removed, np.int64))
        if not len(added.handle):
            return self._change(sharded, added, np.empty(0, np.uint64), rows, removed, frequency)
        if not sharded.live:
            policy.start(added)
        affected = policy.add(added)
        masks = policy.masks(added)
        moving, moving_masks = self._find_moves(sharded, policy, affected)
        if moving is not None:
            others = moving.handle[np.isin(moving.handle, rows["handle"].to_numpy(), invert=True)]
            rows = pa.concat_tables([rows, known.with_handles(others)])
            added, masks = concatenate_rows(added, moving), np.append(masks, moving_masks)
            removed = (*removed, *moving.handle.tolist())
            sharded = sharded._replace(moved=sharded.moved + len(moving.handle))
        return self._change(sharded, added, masks, rows, removed, frequency)

    def _change(
        self,
        sharded: ShardedIndex,
        added: IndexRows,
        masks: Masks,
        rows: pa.Table,
        removed: npt.ArrayLike = (),
        frequency: TermFrequency | None = None,
    ) -> ShardedIndex:
        """Take the handles `removed` out of all shards, then give each row of `added` to the shards in its mask.

        `rows` are the rows of SUBSCRIPTIONS of `added` and perhaps of others; the latter may concern any shard.
        """
        handles = rows["handle"].to_numpy()
        is_added, shards = np.isin(handles, added.handle), []
        row, worker = _expand(masks, len(sharded.shards))
        for number, shard in enumerate(sharded.shards):
            mine = select_rows(added, row[worker == number])
            stack = self._store.apply(shard.stack, removed=removed, added=mine, frequency=frequency)
            stack = self._store.compact(stack, frequency)
            my_rows = rows.filter(pa.array(~is_added | np.isin(handles, mine.handle)))
            parts = self._parts.push(SUBSCRIPTIONS, shard.rows, my_rows, partial(self._is_absent, stack))
            shards.append(Shard(stack, parts))
        return sharded._replace(
            shards=tuple(shards),
            routes=self._tables.push(sharded.routes, select_rows(added, row), worker, sharded.secret, frequency),
            stale=sharded.stale + np.size(removed),
        )

    def _is_absent(self, stack: tuple[SegmentRef, ...], rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Which rows a shard with this index does not need."""
        held = self._store.rows(stack)
        return np.isin(rows["handle"].to_numpy(), () if held is None else held.handle, invert=True)

    def _replace_boxes(
        self,
        sharded: ShardedIndex,
        boxes: RegionBoxes,
        known: StateRows,
        policy: ShardPolicy,
        frequency: TermFrequency | None,
    ) -> ShardedIndex:
        """Moving regions stay with their shards, unless the policy places them by their boxes."""
        found = self._rows_by_shard(sharded, boxes.handle) if len(boxes.handle) else []
        if not found:
            return sharded
        policy.replace_boxes(boxes.handle, boxes.box)
        rows = _distinct_rows([rows for _, rows in found])
        held = np.zeros(len(rows.handle), np.uint64)
        for number, mine in found:
            held[np.searchsorted(rows.handle, mine.handle)] |= np.uint64(1 << number)
        order = np.argsort(boxes.handle)
        rows = rows._replace(box=boxes.box[order[np.searchsorted(boxes.handle, rows.handle, sorter=order)]])
        masks = policy.masks(rows) if policy.follows_boxes else held
        moving = rows.handle[masks != held]
        sharded = sharded._replace(moved=sharded.moved + len(moving))
        return self._change(sharded, rows, masks, known.with_handles(moving), rows.handle, frequency)

    def _refresh(self, index: IndexState, frequency: TermFrequency | None) -> IndexState:
        """Rebuild the routing tables if too many of their entries are outdated."""
        sharded = index.sharded
        if sharded is None or sharded.stale <= _STALE * sharded.live + 1024:
            return index
        routes: tuple[RoutingTableRef, ...] = ()
        for number, rows in self._rows_by_shard(sharded, None):
            routes = self._tables.push(routes, rows, np.full(len(rows.handle), number), sharded.secret, frequency)
        return index._replace(sharded=sharded._replace(routes=routes, stale=0))

    def _all_rows(self, index: IndexState) -> IndexRows | None:
        """All rows, each once, in the order of their handles."""
        if index.sharded is None:
            rows = [held for held in [self._store.rows(index.stack)] if held is not None]
        else:
            rows = [held for _, held in self._rows_by_shard(index.sharded, None)]
        return _distinct_rows(rows) if rows else None


def _fits(state: PartitioningState, settings: PartitioningSettings) -> bool:
    """Whether an index with this state can go on with these settings."""
    if state.partitioner != settings.partitioner:
        return False
    return settings.partitioner != "drtcluster" or CategoryPolicy.fits(state, settings)


def _distinct_rows(parts: list[IndexRows]) -> IndexRows:
    """All rows, each once although several shards may hold it, in the order of their handles."""
    rows = reduce(concatenate_rows, parts)
    return select_rows(rows, np.unique(rows.handle, return_index=True)[1])


def _expand(masks: Masks, workers: int) -> tuple[Integers, Integers]:
    """Pairs of a row and a worker in its mask, ordered by row if each has one worker."""
    if not (masks & (masks - np.uint64(1))).any():
        return np.arange(len(masks)), np.bitwise_count(masks - np.uint64(1)).astype(np.int64)
    held = masks[:, np.newaxis] >> np.arange(workers, dtype=np.uint64) & np.uint64(1)
    row, worker = np.nonzero(held)
    return row, worker
