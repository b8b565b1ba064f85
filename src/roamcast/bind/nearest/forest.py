"""A forest: for each group one packed tree of spots, all of them in the same few arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from roamcast.bind.nearest.kernels.layout import BOX, FAN, FIRST, ITEM, TREE, Integers, Rows
from roamcast.bind.nearest.kernels.trees import append, build, chain, curve_keys, find, gather, link, take_out, unlink

__all__ = ["Forest", "Handles", "grown"]

_SPARE = 8  # an eighth of a tree's room is left for what comes
_PATIENCE = 2  # sorted again when half of it has changed


def grown(rows: Rows, size: int) -> Rows:
    """`rows`, or a copy at least `size` long; what is new is zero. Doubling makes growing cheap in the long run."""
    if size <= len(rows):
        return rows
    larger = np.zeros(max(size, 2 * len(rows)), rows.dtype)
    larger[: len(rows)] = rows
    return larger


class Handles:
    """Row numbers, given out densely and taken back."""

    def __init__(self) -> None:
        self.count = 0
        self._free: list[int] = []

    def take(self, count: int) -> Integers:
        split = max(len(self._free) - count, 0)
        again = np.array(self._free[split:], np.int32)
        del self._free[split:]
        new = np.arange(self.count, self.count + count - len(again), dtype=np.int32)
        self.count += len(new)
        return np.concatenate([again, new])

    def give_back(self, handles: Integers) -> None:
        self._free += handles.tolist()


class Forest:
    """Items of entities, each with a spot in the tree of its group.

    A spot that is changed in place must be brought into the boxes above it by who changes it; boxes only grow, until
    `tidy` sorts the tree again.
    """

    def __init__(self, spot: np.dtype[np.void]) -> None:
        self.item: Rows = np.zeros(0, ITEM)
        self.tree: Rows = np.zeros(0, TREE)
        self.spot: Rows = np.zeros(0, spot)
        self.box: Rows = np.zeros(0, BOX)
        self._handles = Handles()
        self._spots = 0  # given to trees
        self._boxes = 0
        self._gaps = 0  # spots of pieces that trees have outgrown

    @property
    def nbytes(self) -> int:
        return sum(rows.nbytes for rows in (self.item, self.tree, self.spot, self.box))

    @property
    def count(self) -> int:
        """One more than the highest item there ever was."""
        return self._handles.count

    def need_tree(self, tree: int) -> None:
        """Make sure that trees up to this one exist."""
        self.tree = grown(self.tree, tree + 1)

    def members_of(self, tree: int) -> Integers:
        """The items with a spot in this tree."""
        return self._spots_of(np.array([tree], np.int32))["item"].copy()

    def items_of(self, entities: Integers, head: Integers) -> Integers:
        """All items of these entities."""
        items = np.empty(chain(self.item, head, entities, entities[:0]), np.int32)
        chain(self.item, head, entities, items)
        return items

    def find(self, entities: Integers, trees: Integers, head: Integers) -> Integers:
        """The item of each of these entities in a tree, or -1."""
        items = np.empty(len(entities), np.int32)
        find(self.item, head, entities, trees, items)
        return items

    def take(self, entities: Integers, trees: Integers, head: Integers) -> Integers:
        """New items, without a spot."""
        items = self._handles.take(len(entities))
        self.item = grown(self.item, self._handles.count)
        self.item["entity"][items] = entities
        self.item["tree"][items] = trees
        self.item["place"][items] = -1
        link(self.item, head, items)
        return items

    def give_back(self, items: Integers, head: Integers) -> None:
        """These items are no more. Their spots were taken out before."""
        unlink(self.item, head, items)
        self.item["entity"][items] = -1
        self.item["place"][items] = -1
        self._handles.give_back(items)

    def put_in(self, items: Integers, rows: Rows, entity: Rows) -> None:
        """Give items spots. The boxes need not hold them before each has been changed in place."""
        rows["item"] = items
        trees = self.item["tree"][items]
        touched, counts = np.unique(trees, return_counts=True)
        full = touched[self.tree["used"][touched] + counts > self.tree["room"][touched]]
        if len(full):
            late = np.isin(trees, full)
            self._sort(full, rows[late], entity)
            items, rows = items[~late], rows[~late]
        append(self.item, self.tree, self.spot, items, rows)

    def take_out(self, items: Integers) -> None:
        """Take the spots away from those that have one."""
        take_out(self.item, self.tree, self.spot, items)

    def tidy(self, trees: Integers, entity: Rows) -> None:
        """Sort those of these trees that have changed much."""
        rows = self.tree[trees]
        worn = trees[rows["churn"] * _PATIENCE > rows["live"] + 8 * FAN]
        if len(worn):
            self._sort(np.unique(worn), self.spot[:0], entity)

    def _sort(self, trees: Integers, new: Rows, entity: Rows) -> None:
        """Lay trees out anew, `new` spots included."""
        pack = self._gaps > self._spots // 2
        if pack:
            trees = np.union1d(trees, np.flatnonzero(self.tree["room"])).astype(np.int32)
        rows = np.concatenate([self._spots_of(trees), new])
        group, who = self.item["tree"][rows["item"]], self.item["entity"][rows["item"]]
        if len(new):
            order = np.argsort(group, kind="stable")
            rows, group, who = rows[order], group[order], who[order]
        keys = np.empty(len(rows), np.int64)
        curve_keys(group, entity["x"][who], entity["y"][who], keys)
        rows = rows[np.argsort(keys, kind="stable")]
        count = np.bincount(np.searchsorted(trees, group), minlength=len(trees))
        if pack:
            self._clear()
        self._make_room(trees, count)
        start = np.repeat(self.tree["start"][trees] - (np.cumsum(count) - count), count)
        place = (start + np.arange(len(rows))).astype(np.int32)
        self.spot[place] = rows
        self.item["place"][rows["item"]] = place
        self.tree["used"][trees] = self.tree["live"][trees] = count
        self.tree["churn"][trees] = 0
        build(self.tree, trees, self.spot, self.box)

    def _spots_of(self, trees: Integers) -> Rows:
        rows = np.empty(int(self.tree["live"][trees].sum()), np.int32)
        gather(self.tree, trees, self.spot, rows)
        return self.spot[rows]

    def _clear(self) -> None:
        self.spot, self.box = self.spot[:0].copy(), self.box[:0].copy()
        self.tree["room"] = 0
        self._spots = self._boxes = self._gaps = 0

    def _make_room(self, trees: Integers, count: npt.NDArray[np.intp]) -> None:
        """New pieces for those of these trees whose piece does not hold `count` spots."""
        poor = count > self.tree["room"][trees]
        trees, count = trees[poor], count[poor]
        leaves = (count + count // _SPARE) // FAN + 1
        depth = np.searchsorted(FAN ** np.arange(len(FIRST)), leaves)
        boxes = FIRST[depth] + leaves
        self._gaps += int(self.tree["room"][trees].sum())
        self.tree["room"][trees] = FAN * leaves
        self.tree["depth"][trees] = depth
        self.tree["start"][trees] = self._spots + np.cumsum(FAN * leaves) - FAN * leaves
        self.tree["box"][trees] = self._boxes + np.cumsum(boxes) - boxes
        self._spots += FAN * int(leaves.sum())
        self._boxes += int(boxes.sum())
        self.spot = grown(self.spot, self._spots)
        self.box = grown(self.box, self._boxes)
