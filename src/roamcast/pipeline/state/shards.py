"""The physical plans of matching: one index that every worker maps, or a share of it for each worker.

Both give the same letters. Which worker holds a subscription is decided by its place on a curve (see
`match.partitioners.curve`); the shares themselves are the truth of it, and the router follows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial, reduce
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.match.index.build import TermFrequency
from roamcast.match.index.lsm import IndexStore, SegmentRef
from roamcast.match.index.moving import RegionBoxes
from roamcast.match.index.rows import IndexRows, concatenate_rows, select_rows
from roamcast.match.partitioners.cuts import Cuts
from roamcast.match.partitioners.hilbert import curve_keys_of_rows
from roamcast.match.routing.partitioner import MAX_WORKERS
from roamcast.match.routing.router import RoutingTableRef, RoutingTables, new_secret
from roamcast.pipeline.schemas import SUBSCRIPTIONS
from roamcast.pipeline.state.indexing import Indexed, index_changes, rows_to_index
from roamcast.pipeline.state.parts import Part, PartFolder

__all__ = ["PLANS", "Arranger", "Partition", "Plan", "Share", "Told", "shares_for"]

Integers: TypeAlias = npt.NDArray[np.int64]

Plan: TypeAlias = Literal["auto", "replicated", "partitioned"]
PLANS: Final[tuple[Plan, ...]] = ("auto", "replicated", "partitioned")
Told: TypeAlias = Callable[[Integers], pa.Table]
"""The rows of SUBSCRIPTIONS with these handles."""

_STALE: Final = 0.25  # of all subscriptions: when so many are gone or elsewhere the router is built anew


class Share(NamedTuple):
    """What one worker needs: its index, and its rows of the table of subscriptions (and perhaps some of others)."""

    stack: tuple[SegmentRef, ...] = ()
    rows: tuple[Part, ...] = ()


class Partition(NamedTuple):
    """The shares of all workers. `planned` are the cuts that the next batch begins with; rows move then.

    The `secret` is the router's: who knows it can make routing slow.
    """

    shares: tuple[Share, ...]
    cuts: Cuts
    secret: str
    routes: tuple[RoutingTableRef, ...] = ()
    stale: int = 0
    planned: Cuts | None = None

    @property
    def layers(self) -> Iterator[SegmentRef]:
        return (layer for share in self.shares for layer in share.stack)

    @property
    def live(self) -> int:
        return sum(layer.live for layer in self.layers)

    def to_json(self) -> dict[str, Any]:
        shares = [
            {"stack": [layer._asdict() for layer in share.stack], "rows": [part._asdict() for part in share.rows]}
            for share in self.shares
        ]
        return {
            "shares": shares, "cuts": self.cuts._asdict(), "secret": self.secret,
            "routes": [each._asdict() for each in self.routes],
            "stale": self.stale, "planned": self.planned._asdict() if self.planned else None,
        }  # fmt: skip

    @classmethod
    def from_json(cls, content: Mapping[str, Any] | None) -> Partition | None:
        """Raises KeyError, TypeError or ValueError for what is none."""
        if content is None:
            return None
        shares = (
            Share(tuple(SegmentRef(**layer) for layer in share["stack"]), tuple(Part(**part) for part in share["rows"]))
            for share in content["shares"]
        )
        cuts, planned = (
            None if each is None else Cuts(tuple(each["at"]), tuple(each["owner"]))
            for each in (content["cuts"], content["planned"])
        )
        if cuts is None:
            raise ValueError("a partition without cuts")
        routes = tuple(RoutingTableRef(**each) for each in content["routes"])
        return cls(tuple(shares), cuts, content["secret"], routes, content["stale"], planned)


def shares_for(plan: Plan, asked: int, before: Partition | None, *, cores: int, is_large: bool) -> int:
    """How many a pipeline begins with; 0 for the replicated plan, which is the faster one where the index fits.

    If none are `asked` for: as many as `before`, at first as many as there are cores. These are those of the executors
    that have come by then, perhaps another number each time, and with another number all is arranged anew.
    """
    if plan == "replicated" or (plan == "auto" and not is_large):
        return 0
    known = len(before.shares) if before else min(max(2, cores), MAX_WORKERS)
    return asked or known


class Arranger:
    """Takes the index of a state from batch to batch, in whichever plan.

    The same state and batch give the same, but for a new secret where shares are made.
    """

    def __init__(self, layers: IndexStore, tables: RoutingTables, parts: PartFolder) -> None:
        self._layers = layers
        self._tables = tables
        self._parts = parts

    def arranged(
        self, before: Indexed, partition: Partition | None, workers: int, told: Told
    ) -> tuple[Indexed, Partition | None]:
        """For so many workers, 0 for the replicated plan; and with the moves that were planned."""
        if partition is not None and len(partition.shares) == workers:
            planned = partition.planned
            return before, partition if planned is None else self._moved(partition, planned, told)
        if partition is None and not workers:
            return before, None
        rows = self._all_rows(before, partition)
        if not workers:
            return before._replace(stack=self._layers.apply((), added=rows)), None
        place = np.empty(0) if rows is None else curve_keys_of_rows(rows)
        cuts = Cuts.even(workers, place)
        empty = Partition((Share(),) * workers, cuts, new_secret())
        if rows is None:
            return before._replace(stack=()), empty
        return before._replace(stack=()), self._with(empty, rows, cuts.workers_of(place), told(rows.handle))

    def changed(
        self, before: Indexed, partition: Partition | None, rows: pa.Table, boxes: RegionBoxes, seen: TermFrequency
    ) -> tuple[Indexed, Partition | None]:
        """As `index_changes` has it."""
        if partition is None:
            return index_changes(self._layers, before, rows, boxes, seen), None
        there = boxes.handle < before.handles
        if there.any():
            partition = self._reboxed(partition, RegionBoxes(boxes.handle[there], boxes.box[there]), seen)
        if rows.num_rows:
            handles: Integers = rows["handle"].to_numpy()
            added = rows_to_index(rows.filter(pa.array(handles >= before.handles)), boxes)
            place = curve_keys_of_rows(added)
            if not partition.live and len(place) >= len(partition.cuts.at):  # the first say where wishes are
                partition = partition._replace(cuts=Cuts.even(len(partition.shares), place))
            worker = partition.cuts.workers_of(place)
            partition = self._with(partition, added, worker, rows, before.leaving, seen)
            leaving = tuple(handles[pc.is_valid(rows["removed_in"]).to_numpy()].tolist())
            before = before._replace(leaving=leaving, handles=max(before.handles, int(handles.max()) + 1))
        return before, self._fresh(partition, seen)

    def _moved(self, partition: Partition, cuts: Cuts, told: Told) -> Partition:
        """Where it is to be: only what moves is written anew."""
        found = []
        for number, share in enumerate(partition.shares):
            rows = self._layers.rows(share.stack)
            if rows is not None:
                worker = cuts.workers_of(curve_keys_of_rows(rows))
                away = np.flatnonzero(worker != number)
                found.append((select_rows(rows, away), worker[away]))
        partition = partition._replace(cuts=cuts, planned=None)
        if not found:
            return partition
        moving, workers = (
            reduce(concatenate_rows, (rows for rows, _ in found)),
            np.concatenate([worker for _, worker in found]),
        )
        return self._with(partition, moving, workers, told(moving.handle), moving.handle)

    def _with(
        self,
        partition: Partition,
        added: IndexRows,
        worker: Integers,
        told: pa.Table,
        gone: npt.ArrayLike = (),
        seen: TermFrequency | None = None,
    ) -> Partition:
        """Without those who are `gone`; then each of `added` with the worker beside it. A share is told of them, and of
        all others that `told` has: they may be its."""
        handles = told["handle"].to_numpy()
        elsewhere, shares = np.isin(handles, added.handle), []
        for number, share in enumerate(partition.shares):
            mine = select_rows(added, np.flatnonzero(worker == number))
            stack = self._layers.compact(
                self._layers.apply(share.stack, removed=gone, added=mine, frequency=seen), seen
            )
            some = told.filter(pa.array(~elsewhere | np.isin(handles, mine.handle)))
            rows = self._parts.push(SUBSCRIPTIONS, share.rows, some, partial(self._not_in, stack))
            shares.append(Share(stack, rows))
        return partition._replace(
            shares=tuple(shares),
            routes=self._tables.push(partition.routes, added, worker, partition.secret, seen),
            stale=partition.stale + np.size(gone),
        )

    def _not_in(self, stack: tuple[SegmentRef, ...], rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Those that a share need not know."""
        held = self._layers.rows(stack)
        return np.isin(rows["handle"].to_numpy(), () if held is None else held.handle, invert=True)

    def _reboxed(self, partition: Partition, boxes: RegionBoxes, seen: TermFrequency) -> Partition:
        """Regions that have moved stay with their workers."""
        shares, routes = [], partition.routes
        for number, share in enumerate(partition.shares):
            stack = self._layers.replace_boxes(share.stack, boxes.handle, boxes.box, seen) if share.stack else ()
            moved = self._layers.rows(stack, boxes.handle)
            if moved is not None:
                worker = np.full(len(moved.handle), number)
                routes = self._tables.push(routes, moved, worker, partition.secret, seen)
            shares.append(share._replace(stack=self._layers.compact(stack, seen)))
        return partition._replace(shares=tuple(shares), routes=routes, stale=partition.stale + len(boxes.handle))

    def _fresh(self, partition: Partition, seen: TermFrequency) -> Partition:
        """With a router that does not remember too many who are gone."""
        if partition.stale <= _STALE * partition.live + 1024:
            return partition
        routes: tuple[RoutingTableRef, ...] = ()
        for number, share in enumerate(partition.shares):
            rows = self._layers.rows(share.stack)
            if rows is not None:
                worker = np.full(len(rows.handle), number)
                routes = self._tables.push(routes, rows, worker, partition.secret, seen)
        return partition._replace(routes=routes, stale=0)

    def _all_rows(self, indexed: Indexed, partition: Partition | None) -> IndexRows | None:
        stacks = [share.stack for share in partition.shares] if partition else [indexed.stack]
        found = [rows for stack in stacks if (rows := self._layers.rows(stack)) is not None]
        return reduce(concatenate_rows, found) if found else None
