"""The physical plans of matching: one index that every worker maps, or a share of it for each worker.

Both give the same letters. Which worker holds a subscription is decided by its place on a curve (see
`match.partitioners.curve`); the shares themselves are the truth of it, and the router follows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.match.build import Rows, Seen
from roamcast.match.choosing import chosen_rows, joined
from roamcast.match.layers import Layer, Layers
from roamcast.match.moving import Moved
from roamcast.match.partitioners.curve import cut_evenly, places_of
from roamcast.match.partitioners.sharing import shared_out
from roamcast.match.router import Routes, Tables
from roamcast.pipeline.indexing import Indexed, index_changes, rows_to_index
from roamcast.pipeline.parts import Ended, Part, PartFolder
from roamcast.pipeline.schemas import SUBSCRIPTIONS

__all__ = ["PLANS", "Arranger", "Cuts", "Partition", "Plan", "Share"]

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]

Plan: TypeAlias = Literal["auto", "replicated", "partitioned"]
PLANS: Final[tuple[Plan, ...]] = ("auto", "replicated", "partitioned")

_STRETCHES: Final = 64  # of the curve, for each worker
_STALE: Final = 0.25  # of all subscriptions: when so many are gone the router is built anew


class Cuts(NamedTuple):
    """Stretch i of the curve ends at at[i] and is owner[i]'s."""

    at: tuple[float, ...]
    owner: tuple[int, ...]

    @classmethod
    def even(cls, workers: int, place: Floats) -> Cuts:
        count = _STRETCHES * workers if workers > 1 else 1
        at = np.arange(1, count) / count
        at = cut_evenly(at, place, np.ones(len(place))) if len(place) else at
        return cls(tuple(at.tolist()), tuple((np.arange(count) * workers // count).tolist()))

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Cuts:
        return cls(tuple(content["at"]), tuple(content["owner"]))

    def workers_of(self, place: Floats) -> Integers:
        found: Integers = np.array(self.owner, np.int64)[np.searchsorted(np.array(self.at), place)]
        return found


class Share(NamedTuple):
    """What one worker needs: its index, and its rows of the table of subscriptions (and perhaps some of others)."""

    stack: tuple[Layer, ...] = ()
    rows: tuple[Part, ...] = ()


class Partition(NamedTuple):
    """The shares of all workers. `planned` are the cuts that the next batch begins with; rows move then."""

    shares: tuple[Share, ...]
    cuts: Cuts
    routes: tuple[Routes, ...] = ()
    stale: int = 0
    planned: Cuts | None = None

    @property
    def layers(self) -> Iterator[Layer]:
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
            "shares": shares, "cuts": self.cuts._asdict(), "routes": [each._asdict() for each in self.routes],
            "stale": self.stale, "planned": self.planned._asdict() if self.planned else None,
        }  # fmt: skip

    @classmethod
    def from_json(cls, content: Mapping[str, Any] | None) -> Partition | None:
        """Raises KeyError or TypeError for what is none."""
        if content is None:
            return None
        shares = (
            Share(tuple(Layer(**layer) for layer in share["stack"]), tuple(Part(**part) for part in share["rows"]))
            for share in content["shares"]
        )
        cuts, planned = (
            each and Cuts(tuple(each["at"]), tuple(each["owner"])) for each in (content["cuts"], content["planned"])
        )
        return cls(tuple(shares), cuts, tuple(Routes(**each) for each in content["routes"]), content["stale"], planned)


class Arranger:
    """Takes the index of a state from batch to batch, in whichever plan. The same state and batch give the same."""

    def __init__(self, layers: Layers, tables: Tables, parts: PartFolder) -> None:
        self._layers = layers
        self._tables = tables
        self._parts = parts

    def arranged(
        self, before: Indexed, partition: Partition | None, workers: int, table: Callable[[], pa.Table]
    ) -> tuple[Indexed, Partition | None]:
        """For so many workers, 0 for the replicated plan; and with the moves that were planned. `table` has all
        subscriptions of the state."""
        have = len(partition.shares) if partition else 0
        if have == workers and (partition is None or partition.planned is None):
            return before, partition
        stacks = [share.stack for share in partition.shares] if partition else [before.stack]
        rows = _all_rows(self._layers, stacks)
        if not workers:
            stack = self._layers.change((), added=rows) if rows else ()
            return before._replace(stack=stack), None
        places = places_of(rows.handle, rows.box, np.zeros(len(rows.handle), np.uint64)) if rows else np.empty(0)
        planned = partition.planned if partition and have == workers else None
        cuts = planned or Cuts.even(workers, places)
        empty = Partition((Share(),) * workers, cuts)
        if rows is None:
            return before._replace(stack=()), empty
        return before._replace(stack=()), self._filled(empty, rows, cuts.workers_of(places), table())

    def changed(
        self, before: Indexed, partition: Partition | None, rows: pa.Table, boxes: Moved, seen: Seen, ended: Ended
    ) -> tuple[Indexed, Partition | None]:
        """As `index_changes` has it."""
        if partition is None:
            return index_changes(self._layers, before, rows, boxes, seen), None
        there = boxes.handle < before.handles
        if not rows.num_rows and not there.any():
            return before, partition
        handles: Integers = rows["handle"].to_numpy()
        new = handles >= before.handles
        added = rows_to_index(rows.filter(pa.array(new)), boxes)
        place = places_of(added.handle, added.box, np.zeros(len(added.handle), np.uint64))
        worker = partition.cuts.workers_of(place)
        shares, routes = [], partition.routes
        for number, share in enumerate(partition.shares):
            mine = np.flatnonzero(worker == number)
            stack = share.stack
            if there.any() and stack:
                stack = self._layers.rebox(stack, boxes.handle[there], boxes.box[there], seen)
                moved = self._layers.rows(stack, boxes.handle[there])
                if moved is not None:
                    routes = self._tables.push(routes, moved, np.full(len(moved.handle), number), seen)
            gone = before.leaving if rows.num_rows else ()
            stack = self._layers.change(stack, gone=gone, added=chosen_rows(added, mine), seen=seen)
            told = rows.filter(pa.array(~new | np.isin(handles, added.handle[mine])))
            shares.append(
                Share(self._layers.merge(stack, seen), self._parts.push(SUBSCRIPTIONS, share.rows, told, ended))
            )
        routes = self._tables.push(routes, added, worker, seen)
        partition = partition._replace(
            shares=tuple(shares), routes=routes, stale=partition.stale + len(before.leaving) * bool(rows.num_rows)
        )
        leaving, count = before.leaving, before.handles
        if rows.num_rows:
            leaving = tuple(handles[pc.is_valid(rows["removed_in"]).to_numpy()].tolist())
            count = max(count, int(handles.max()) + 1)
        return before._replace(leaving=leaving, handles=count), self._fresh(partition, seen)

    def planned(self, partition: Partition, event: Integers, handle: Integers, box: Floats) -> Partition:
        """With the cuts for the next batch, by the matches of this one: pairs of an event and a subscription."""
        if len(partition.shares) < 2 or not len(event):
            return partition
        place = places_of(handle, box, np.zeros(len(handle), np.uint64))
        load = 1 + 1 / np.bincount(event)[event]
        at = cut_evenly(np.array(partition.cuts.at), place, load)
        stretch = np.searchsorted(at, place)
        owner = shared_out(
            np.array(partition.cuts.owner), len(partition.shares), event.astype(np.float64), stretch, load
        )
        planned = Cuts(tuple(at.tolist()), tuple(owner.tolist()))
        return partition if planned == partition.cuts else partition._replace(planned=planned)

    def _filled(self, empty: Partition, rows: Rows, worker: Integers, table: pa.Table) -> Partition:
        handles = table["handle"].to_numpy()
        shares = []
        for number in range(len(empty.shares)):
            mine = chosen_rows(rows, np.flatnonzero(worker == number))
            told = table.filter(pa.array(np.isin(handles, mine.handle)))
            stack = self._layers.change((), added=mine)
            shares.append(Share(stack, self._parts.push(SUBSCRIPTIONS, (), told)))
        return empty._replace(shares=tuple(shares), routes=self._tables.push((), rows, worker))

    def _fresh(self, partition: Partition, seen: Seen) -> Partition:
        """With a router that does not remember too many who are gone."""
        if partition.stale <= _STALE * partition.live + 1024:
            return partition
        routes: tuple[Routes, ...] = ()
        for number, share in enumerate(partition.shares):
            rows = self._layers.rows(share.stack)
            if rows is not None:
                routes = self._tables.push(routes, rows, np.full(len(rows.handle), number), seen)
        return partition._replace(routes=routes, stale=0)


def _all_rows(layers: Layers, stacks: list[tuple[Layer, ...]]) -> Rows | None:
    together: Rows | None = None
    for stack in stacks:
        rows = layers.rows(stack)
        if rows is not None:
            together = rows if together is None else joined(together, rows)
    return together
