"""The index as part of the state: a value that names its files, in either physical plan.

If the index is replicated, every worker maps all of it. If it is partitioned, each worker has a shard. Both give the
same letters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.match.index.index import Index
from roamcast.match.index.lsm import IndexStore, SegmentRef
from roamcast.match.index.moving import RegionBoxes
from roamcast.match.index.rows import IndexRows, index_rows
from roamcast.match.port import Subscriptions
from roamcast.match.routing.partitioner import MAX_WORKERS
from roamcast.match.routing.router import Router, RoutingTableRef, RoutingTables
from roamcast.pipeline.state.partitioning import PartitioningState
from roamcast.pipeline.state.parts import Part

__all__ = [
    "PLANS", "IndexState", "PhysicalPlan", "Shard", "ShardedIndex", "assign_handles", "boxes_and_terms",
    "choose_shard_count", "open_index", "open_router", "rows_for_index",
]  # fmt: skip

PhysicalPlan: TypeAlias = Literal["auto", "replicated", "partitioned"]
PLANS: Final[tuple[PhysicalPlan, ...]] = ("auto", "replicated", "partitioned")

_FURTHER: Final = ("circle", "area", "source", "on", "moving_radius")  # what is tested after box and terms


class Shard(NamedTuple):
    """What one worker needs: its index, and at least its rows of the table of subscriptions."""

    stack: tuple[SegmentRef, ...] = ()
    rows: tuple[Part, ...] = ()


class ShardedIndex(NamedTuple):
    """The shards of all workers.

    `partitioning` is the state of the policy that decides which shards hold a subscription. `routes` are the routing
    tables, `stale` counts their outdated entries. `moved` counts subscriptions that went to other shards. `secret`
    seeds the hashes of routing, so that an attacker cannot choose terms that collide.
    """

    shards: tuple[Shard, ...]
    partitioning: PartitioningState
    secret: str
    routes: tuple[RoutingTableRef, ...] = ()
    stale: int = 0
    moved: int = 0

    @property
    def segments(self) -> Iterator[SegmentRef]:
        return (segment for shard in self.shards for segment in shard.stack)

    @property
    def live(self) -> int:
        return sum(segment.live for segment in self.segments)

    def to_json(self) -> dict[str, Any]:
        return {
            "shards": [
                {
                    "stack": [segment._asdict() for segment in shard.stack],
                    "rows": [part._asdict() for part in shard.rows],
                }
                for shard in self.shards
            ],
            "partitioning": self.partitioning.to_json(),
            "secret": self.secret,
            "routes": [table._asdict() for table in self.routes],
            "stale": self.stale,
            "moved": self.moved,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> ShardedIndex:
        """Raises KeyError, TypeError or ValueError if `content` is not an encoded sharded index."""
        shards = (
            Shard(
                tuple(SegmentRef(**segment) for segment in shard["stack"]),
                tuple(Part(**part) for part in shard["rows"]),
            )
            for shard in content["shards"]
        )
        return cls(
            tuple(shards),
            PartitioningState.from_json(content["partitioning"]),
            content["secret"],
            tuple(RoutingTableRef(**table) for table in content["routes"]),
            content["stale"],
            content["moved"],
        )


class IndexState(NamedTuple):
    """The index after a batch: a stack of segments or, if it is partitioned, the shards.

    The index knows a subscription by its handle, which is never used again. A subscription that a batch removes stays
    in the index for earlier events of that batch. It is among the handles `removed`, which leave the index with the
    next change. One that forwarded events may still match is among those that are `leaving`.
    """

    stack: tuple[SegmentRef, ...] = ()
    removed: tuple[int, ...] = ()
    leaving: tuple[int, ...] = ()
    next_handle: int = 0
    sharded: ShardedIndex | None = None

    @property
    def segments(self) -> tuple[SegmentRef, ...]:
        """The segments of all workers."""
        return (*self.stack, *(self.sharded.segments if self.sharded else ()))

    def to_json(self) -> dict[str, Any]:
        return {
            "stack": [segment._asdict() for segment in self.stack],
            "removed": list(self.removed),
            "leaving": list(self.leaving),
            "next_handle": self.next_handle,
            "sharded": self.sharded.to_json() if self.sharded else None,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> IndexState:
        """Raises KeyError, TypeError or ValueError if `content` is not an encoded index state."""
        sharded = content["sharded"]
        return cls(
            tuple(SegmentRef(**segment) for segment in content["stack"]),
            tuple(content["removed"]),
            tuple(content["leaving"]),
            content["next_handle"],
            None if sharded is None else ShardedIndex.from_json(sharded),
        )


def choose_shard_count(
    plan: PhysicalPlan, requested: int, before: ShardedIndex | None, *, cores: int, is_large: bool
) -> int:
    """The number of shards of a starting pipeline; 0 if the index is replicated, which is faster where it fits.

    If none is `requested`: as many as `before`, or as many as there are cores. Spark reports the cores of the executors
    that have registered so far, which may differ from start to start; another number of shards means that the whole
    index is written again.
    """
    if plan == "replicated" or (plan == "auto" and not is_large):
        return 0
    return requested or (len(before.shards) if before else min(max(2, cores), MAX_WORKERS))


def open_index(folder: Path, stack: tuple[SegmentRef, ...]) -> Index:
    """Open an index. A process keeps it from task to task; its files are mapped, once for all processes of a host."""
    return _open_index(folder, stack) if stack else Index([])  # an empty index must not displace another


@lru_cache(maxsize=2)
def _open_index(folder: Path, stack: tuple[SegmentRef, ...]) -> Index:
    return IndexStore(folder).open(stack)


def open_router(folder: Path, routes: tuple[RoutingTableRef, ...]) -> Router:
    """Open a router, as `open_index` does an index."""
    return _open_router(folder, routes) if routes else Router([])


@lru_cache(maxsize=1)
def _open_router(folder: Path, routes: tuple[RoutingTableRef, ...]) -> Router:
    return RoutingTables(folder).open(routes)


def assign_handles(rows: pa.Table, first: int) -> pa.Table:
    """Give the rows of SUBSCRIPTIONS that have no handle the next ones, from `first` on."""
    handles = rows["handle"].combine_chunks()
    new: npt.NDArray[np.bool_] = handles.is_null().to_numpy(zero_copy_only=False)
    assigned = np.where(new, first + np.cumsum(new) - 1, pc.fill_null(handles, 0).to_numpy(zero_copy_only=False))
    return rows.set_column(rows.schema.get_field_index("handle"), "handle", pa.array(assigned, pa.int64()))


def boxes_and_terms(rows: pa.Table) -> Subscriptions:
    """Boxes and terms of rows of SUBSCRIPTIONS."""
    min_x, min_y, max_x, max_y = (rows[side].to_numpy() for side in ("min_x", "min_y", "max_x", "max_y"))
    terms = rows["terms"].combine_chunks()
    lists = terms if isinstance(terms, pa.ListArray) else pa.array([], pa.list_(pa.string()))
    return Subscriptions(min_x, min_y, max_x, max_y, lists)


def rows_for_index(rows: pa.Table, boxes: RegionBoxes) -> IndexRows:
    """Rows of SUBSCRIPTIONS as the index takes them. Moving regions get their boxes from `boxes`."""
    further = reduce(pc.or_, (pc.is_valid(rows[name]) for name in _FURTHER)).to_numpy()
    added = index_rows(rows["handle"].to_numpy(), boxes_and_terms(rows), further)
    _, row, box = np.intersect1d(added.handle, boxes.handle, assume_unique=True, return_indices=True)
    added.box[row] = boxes.box[box]
    return added
