"""The match context: what a task needs to match the events of a batch, and how it gets it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from roamcast.errors import CorruptionError
from roamcast.match.index.index import Index
from roamcast.match.index.lsm import SegmentRef
from roamcast.match.index.moving import CircleTest
from roamcast.match.index.segments import file_name
from roamcast.match.partitioners.one_by_one import OneByOne
from roamcast.match.routing.router import Router, RoutingTableRef
from roamcast.pipeline.schemas import BINDINGS, MEMBERS, SUBSCRIPTIONS
from roamcast.pipeline.state.index_state import Shard, ShardedIndex, open_index, open_router
from roamcast.pipeline.state.lookups import TableLookup
from roamcast.pipeline.state.moving_regions import MovingRegionFiles
from roamcast.pipeline.state.partitioning import PartitioningState
from roamcast.pipeline.state.parts import Part
from roamcast.pipeline.state.state_server import StateFetcher
from roamcast.pipeline.tasks.one_by_one import open_one_by_one

__all__ = ["MatchContext", "OpenContext"]


class MatchContext(NamedTuple):
    """The files that the events of a batch are matched with. It is the same in the driver and in tasks.

    `initial_sources` are pairs (home, source) whose events are all needed as JSON, not only the newest. Tasks on
    other hosts use the `fetcher`. A partitioned index is in `sharded`; `for_routing` and `for_shard` give the
    contexts of its tasks, with what these need of the `partitioning`. With `units`, shards do not search an index but
    compare one by one, in about this many units (see `match.partitioners.one_by_one`).
    """

    folder: Path
    batch: int
    subscriptions: tuple[Part, ...] = ()
    bindings: tuple[Part, ...] = ()
    stack: tuple[SegmentRef, ...] = ()
    moving: tuple[MovingRegionFiles, ...] = ()
    initial_sources: frozenset[tuple[str, str]] = frozenset()
    routes: tuple[RoutingTableRef, ...] = ()
    sharded: ShardedIndex | None = None
    partitioning: PartitioningState | None = None
    units: int = 0
    fetcher: StateFetcher | None = None

    def for_bindings(self) -> MatchContext:
        """Without the index: only bindings match."""
        return self._replace(subscriptions=(), stack=(), moving=(), sharded=None, units=0)

    def for_routing(self) -> MatchContext:
        """With the routing tables and nothing else."""
        if self.sharded is None:
            return self.for_bindings()._replace(bindings=())
        routes, partitioning = self.sharded.routes, self.sharded.partitioning._replace(tables={})
        return self.for_bindings()._replace(bindings=(), routes=routes, partitioning=partitioning)

    def for_shard(self, shard: Shard) -> MatchContext:
        """With the index of one shard, and what its load is counted by."""
        partitioning, units = None, 0
        if self.sharded is not None:
            units = -(-self.units // len(self.sharded.shards))
            tables = {name: parts for name, parts in self.sharded.partitioning.tables.items() if name == MEMBERS.name}
            partitioning = self.sharded.partitioning._replace(tables=tables)
        return self._replace(
            subscriptions=shard.rows, bindings=(), stack=shard.stack, sharded=None, partitioning=partitioning,
            units=units,
        )  # fmt: skip

    @property
    def files(self) -> Iterator[str]:
        """The names of all files under the folder."""
        tables = self.partitioning.tables.values() if self.partitioning else ()
        parts = (*self.subscriptions, *self.bindings, *(part for table in tables for part in table))
        yield from (f"parts/{part.name}" for part in parts)
        segments = (name for segment in self.stack for name in (segment.segment, segment.tombstones))
        moving = (name for files in self.moving for name in files.names)
        routes = (table.table for table in self.routes)
        yield from (f"segments/{file_name(name)}" for name in (*segments, *moving, *routes) if name)

    def open(self) -> OpenContext:
        """Open all files. On another host than the driver's, fetch them into the cache first."""
        if self.fetcher is None:
            return self._open()
        files = list(self.files)
        cached = self._replace(folder=self.fetcher.fetch(files))
        try:
            return cached._open()
        except CorruptionError:  # in the cache: files are verified when they are fetched
            self.fetcher.discard(files)
            self.fetcher.fetch(files)
            return cached._open()

    def open_subscriptions(self) -> TableLookup:
        return TableLookup(self.folder / "parts", SUBSCRIPTIONS.name, self.subscriptions)

    def open_bindings(self) -> TableLookup:
        return TableLookup(self.folder / "parts", BINDINGS.name, self.bindings)

    def open_members(self) -> TableLookup:
        """The categories of subscriptions, if the partitioner has some."""
        tables = self.partitioning.tables if self.partitioning else {}
        return TableLookup(self.folder / "parts", MEMBERS.name, tables.get(MEMBERS.name, ()))

    def _open(self) -> OpenContext:
        segments = self.folder / "segments"
        return OpenContext(
            self._open_matcher(segments),
            tuple(files.open(segments) for files in self.moving),
            self.open_subscriptions(),
            self.open_bindings(),
            open_router(segments, self.routes),
            self.open_members(),
        )

    def _open_matcher(self, segments: Path) -> Index | OneByOne:
        if not self.units or self.partitioning is None:
            return open_index(segments, self.stack)
        members = self.partitioning.tables.get(MEMBERS.name, ())
        return open_one_by_one(self.folder, self.stack, self.partitioning.partitioner, self.units, members)


@dataclass(frozen=True, slots=True)
class OpenContext:
    """The files of a context, opened."""

    index: Index | OneByOne
    moving: tuple[CircleTest, ...]
    subscriptions: TableLookup
    bindings: TableLookup
    router: Router
    members: TableLookup
