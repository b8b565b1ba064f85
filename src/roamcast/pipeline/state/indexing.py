"""The index of the match plan as part of the state: segments that follow the table of subscriptions."""

from __future__ import annotations

from functools import lru_cache, reduce
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.match.index.build import TermFrequency
from roamcast.match.index.index import Index
from roamcast.match.index.lsm import IndexStore, SegmentRef
from roamcast.match.index.moving import RegionBoxes
from roamcast.match.index.rows import IndexRows, index_rows
from roamcast.match.port import Subscriptions
from roamcast.match.routing.router import Router, RoutingTableRef, RoutingTables

__all__ = ["Indexed", "index_changes", "open_index", "open_router", "rows_to_index", "wanted_by", "with_handles"]

Integers: TypeAlias = npt.NDArray[np.int64]

_FURTHER: Final = ("circle", "area", "source", "on", "around")  # what is tested after box and terms


class Indexed(NamedTuple):
    """A stack of segments; the handles in it that are dead weight since the last change; and the next handle.

    A subscription is known to the index by its handle, which nothing else ever gets. One that a batch removes stays in
    the index for that batch's earlier events, and leaves it with the next change.
    """

    stack: tuple[SegmentRef, ...] = ()
    leaving: tuple[int, ...] = ()
    handles: int = 0


def open_index(folder: Path, stack: tuple[SegmentRef, ...]) -> Index:
    """Kept by a process from task to task while it stays the same. Its files are mapped, once for all of a host."""
    return _kept_index(folder, stack) if stack else Index([])  # which would take the place of another


@lru_cache(maxsize=2)
def _kept_index(folder: Path, stack: tuple[SegmentRef, ...]) -> Index:
    return IndexStore(folder).open(stack)


def open_router(folder: Path, routes: tuple[RoutingTableRef, ...]) -> Router:
    """As `open_index`."""
    return _kept_router(folder, routes) if routes else Router([])


@lru_cache(maxsize=1)
def _kept_router(folder: Path, routes: tuple[RoutingTableRef, ...]) -> Router:
    return RoutingTables(folder).open(routes)


def with_handles(rows: pa.Table, first: int) -> pa.Table:
    """Rows of SUBSCRIPTIONS: those that have no handle get the next ones."""
    handles = rows["handle"].combine_chunks()
    new = handles.is_null().to_numpy(zero_copy_only=False)
    given = np.where(new, first + np.cumsum(new) - 1, pc.fill_null(handles, 0).to_numpy(zero_copy_only=False))
    return rows.set_column(rows.schema.get_field_index("handle"), "handle", pa.array(given, pa.int64()))


def index_changes(
    layers: IndexStore, before: Indexed, rows: pa.Table, boxes: RegionBoxes, seen: TermFrequency | None = None
) -> Indexed:
    """The index after a batch that wrote these `rows` of SUBSCRIPTIONS, which have handles.

    `boxes` are those of moving regions that are new or have left theirs.
    """
    there = boxes.handle < before.handles
    stack = before.stack
    if there.any():
        stack = layers.replace_boxes(stack, boxes.handle[there], boxes.box[there], seen)
    if not rows.num_rows:
        return before._replace(stack=layers.compact(stack, seen)) if there.any() else before
    handles: Integers = rows["handle"].to_numpy()
    added = rows.filter(pa.array(handles >= before.handles))
    stack = layers.apply(stack, removed=before.leaving, added=rows_to_index(added, boxes), frequency=seen)
    leaving = tuple(handles[pc.is_valid(rows["removed_in"]).to_numpy()].tolist())
    return Indexed(layers.compact(stack, seen), leaving, max(before.handles, int(handles.max()) + 1))


def wanted_by(rows: pa.Table) -> Subscriptions:
    """Boxes and terms of rows of SUBSCRIPTIONS."""
    min_x, min_y, max_x, max_y = (rows[side].to_numpy() for side in ("min_x", "min_y", "max_x", "max_y"))
    terms = rows["terms"].combine_chunks()
    lists = terms if isinstance(terms, pa.ListArray) else pa.array([], pa.list_(pa.string()))
    return Subscriptions(min_x, min_y, max_x, max_y, lists)


def rows_to_index(rows: pa.Table, boxes: RegionBoxes) -> IndexRows:
    """Rows of SUBSCRIPTIONS; those of moving regions with the boxes that are told."""
    further = reduce(pc.or_, (pc.is_valid(rows[name]) for name in _FURTHER)).to_numpy()
    added = index_rows(rows["handle"].to_numpy(), wanted_by(rows), further)
    _, row, box = np.intersect1d(added.handle, boxes.handle, assume_unique=True, return_indices=True)
    added.box[row] = boxes.box[box]
    return added
