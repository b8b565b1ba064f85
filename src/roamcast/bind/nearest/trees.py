"""Packed spatial trees, one for each group, all in the same few arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from roamcast.bind.nearest.arrays import MIN_ROWS, HandleAllocator, grow
from roamcast.bind.nearest.kernels.layout import BOX, FANOUT, FIRST_BOX, ITEM, TREE, Int32s, Rows
from roamcast.bind.nearest.kernels.trees import (
    append_entries,
    build_boxes,
    find_items,
    hilbert_keys,
    link_items,
    list_items,
    live_entries,
    remove_entries,
    unlink_items,
)

__all__ = ["PackedTrees"]

_SPARE = 8  # an eighth of a tree's capacity is spare
_MAX_CHURN = 2  # a tree is sorted again when one in two entries has changed


class PackedTrees:
    """Items of entities, each with an optional entry in the tree of its group.

    `head` parameters are the column of an array of entities with the first item of each. A caller that changes an entry
    in place must grow the boxes above it. Boxes only grow, until `sort_worn` sorts the tree again.
    """

    def __init__(self, entry: np.dtype[np.void]) -> None:
        self.item: Rows = np.zeros(0, ITEM)
        self.tree: Rows = np.zeros(0, TREE)
        self.entry: Rows = np.zeros(MIN_ROWS, entry)
        self.box: Rows = np.zeros(0, BOX)
        self._handles = HandleAllocator()
        self._allotted_entries = 0
        self._allotted_boxes = 0
        self._abandoned = 0  # entries in pieces that trees have outgrown

    @property
    def nbytes(self) -> int:
        return sum(rows.nbytes for rows in (self.item, self.tree, self.entry, self.box))

    @property
    def count(self) -> int:
        """One more than the highest item ever added."""
        return self._handles.count

    def add_tree(self, tree: int) -> None:
        """Make sure that the trees up to this one exist."""
        self.tree = grow(self.tree, tree + 1)

    def members_of(self, tree: int) -> Int32s:
        """The items with an entry in this tree."""
        return self._entries_of(np.array([tree], np.int32))["item"].copy()

    def items_of(self, entities: Int32s, head: Int32s) -> Int32s:
        """All items of these entities."""
        items = np.empty(list_items(self.item, head, entities, entities[:0]), np.int32)
        list_items(self.item, head, entities, items)
        return items

    def find(self, entities: Int32s, groups: Int32s, head: Int32s) -> Int32s:
        """The item of each of these entities in a group, pair by pair, or -1."""
        items = np.empty(len(entities), np.int32)
        find_items(self.item, head, np.ascontiguousarray(entities), np.ascontiguousarray(groups), items)
        return items

    def add(self, entities: Int32s, groups: Int32s, head: Int32s) -> Int32s:
        """Add items without entries. Returns their handles."""
        items = self._handles.allocate(len(entities))
        self.item = grow(self.item, self._handles.count)
        self.item["entity"][items] = entities
        self.item["group"][items] = groups
        self.item["entry"][items] = -1
        link_items(self.item, head, items)
        return items

    def remove(self, items: Int32s, head: Int32s) -> None:
        """Remove items whose entries were removed before."""
        unlink_items(self.item, head, items)
        self.item["entity"][items] = -1
        self.item["entry"][items] = -1
        self._handles.release(items)

    def add_entries(self, items: Int32s, rows: Rows, entity: Rows) -> None:
        """Give items entries in their trees. The caller grows the boxes when it sets their positions."""
        rows["item"] = items
        trees = self.item["group"][items]
        touched, counts = np.unique(trees, return_counts=True)
        full = touched[self.tree["used"][touched] + counts > self.tree["capacity"][touched]]
        if len(full):
            to_sort = np.isin(trees, full)
            self._sort(full, rows[to_sort], entity)
            items, rows = items[~to_sort], rows[~to_sort]
        entries = np.empty(len(items), np.int32)
        append_entries(self.item, self.tree, items, entries)
        self.entry[entries] = rows

    def remove_entries(self, items: Int32s) -> None:
        """Remove the entries of those items that have one."""
        remove_entries(self.item, self.tree, self.entry["item"], items)

    def sort_worn(self, trees: Int32s, entity: Rows) -> None:
        """Sort those of these trees that have changed much."""
        rows = self.tree[trees]
        worn = trees[rows["churn"] * _MAX_CHURN > rows["live"] + 8 * FANOUT]
        if len(worn):
            self._sort(np.unique(worn), self.entry[:0], entity)

    def _sort(self, trees: Int32s, new: Rows, entity: Rows) -> None:
        """Sort the entries of trees, with new ones, along a Hilbert curve, and compute their boxes."""
        compact = self._abandoned > self._allotted_entries // 2
        if compact:
            trees = np.union1d(trees, np.flatnonzero(self.tree["capacity"])).astype(np.int32)
        rows = np.concatenate([self._entries_of(trees), new])
        group, who = self.item["group"][rows["item"]], self.item["entity"][rows["item"]]
        if len(new):
            order = np.argsort(group, kind="stable")
            rows, group, who = rows[order], group[order], who[order]
        keys = np.empty(len(rows), np.int64)
        hilbert_keys(group, entity["x"][who], entity["y"][who], keys)
        rows = rows[np.argsort(keys, kind="stable")]
        count = np.bincount(np.searchsorted(trees, group), minlength=len(trees))
        if compact:
            self._clear()
        self._reserve(trees, count)
        start = np.repeat(self.tree["start"][trees] - (np.cumsum(count) - count), count)
        entries = (start + np.arange(len(rows))).astype(np.int32)
        self.entry[entries] = rows
        self.item["entry"][rows["item"]] = entries
        self.tree["used"][trees] = self.tree["live"][trees] = count
        self.tree["churn"][trees] = 0
        item, x, y, z, reach = (self.entry[name] for name in ("item", "x", "y", "z", "reach"))
        build_boxes(self.tree, trees, item, x, y, z, reach, self.box)

    def _entries_of(self, trees: Int32s) -> Rows:
        rows = np.empty(int(self.tree["live"][trees].sum()), np.int32)
        live_entries(self.tree, trees, self.entry["item"], rows)
        return self.entry[rows]

    def _clear(self) -> None:
        self.entry, self.box = self.entry[:MIN_ROWS].copy(), self.box[:0].copy()
        self.tree["capacity"] = 0
        self._allotted_entries = self._allotted_boxes = self._abandoned = 0

    def _reserve(self, trees: Int32s, count: npt.NDArray[np.intp]) -> None:
        """Allot new pieces to those of these trees whose capacity is less than `count` entries."""
        small = count > self.tree["capacity"][trees]
        trees, count = trees[small], count[small]
        leaves = (count + count // _SPARE) // FANOUT + 1
        depth = np.searchsorted(FANOUT ** np.arange(len(FIRST_BOX)), leaves)
        boxes = FIRST_BOX[depth] + leaves
        self._abandoned += int(self.tree["capacity"][trees].sum())
        self.tree["capacity"][trees] = FANOUT * leaves
        self.tree["depth"][trees] = depth
        self.tree["start"][trees] = self._allotted_entries + np.cumsum(FANOUT * leaves) - FANOUT * leaves
        self.tree["box"][trees] = self._allotted_boxes + np.cumsum(boxes) - boxes
        self._allotted_entries += FANOUT * int(leaves.sum())
        self._allotted_boxes += int(boxes.sum())
        self.entry = grow(self.entry, self._allotted_entries)
        self.box = grow(self.box, self._allotted_boxes)
