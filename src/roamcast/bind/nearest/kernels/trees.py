"""Kernels that lay out trees of spots: sorted along a Hilbert curve, eight to a leaf, eight children to a node."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from roamcast.bind.nearest.kernels.layout import FAN, FIRST, SHIFT, Integers, Rows
from roamcast.compiled import kernel

__all__ = ["append", "build", "chain", "curve_keys", "find", "gather", "link", "take_out", "unlink"]


Floats = npt.NDArray[np.float64]

_BITS = 16
_EMPTY = np.inf


@kernel
def gather(tree: Rows, which: Integers, spot: Rows, rows: Integers) -> None:
    """Note the spots in use of these trees, one tree after another."""
    n = 0
    for t in which:
        for k in range(tree[t].start, tree[t].start + tree[t].used):
            if spot[k].item >= 0:
                rows[n] = k
                n += 1


@kernel
def curve_keys(group: Integers, x: Floats, y: Floats, keys: npt.NDArray[np.int64]) -> None:
    """Note keys that sort points by group, then along a Hilbert curve. Points come one group after another."""
    begin = 0
    while begin < group.size:
        end = begin
        low_x = low_y = np.inf
        high_x = high_y = -np.inf
        while end < group.size and group[end] == group[begin]:
            low_x, high_x = min(low_x, x[end]), max(high_x, x[end])
            low_y, high_y = min(low_y, y[end]), max(high_y, y[end])
            end += 1
        # Halved, so that an extent as wide as the numbers go does not overflow.
        wide = max(high_x / 2 - low_x / 2, high_y / 2 - low_y / 2)
        scale = (2**_BITS - 1) / wide if wide > 1e-290 else 0.0
        for i in range(begin, end):
            along = _along_curve(int((x[i] / 2 - low_x / 2) * scale), int((y[i] / 2 - low_y / 2) * scale))
            keys[i] = np.int64(group[begin]) << 2 * _BITS | along
        begin = end


@kernel
def _along_curve(x: int, y: int) -> int:
    along = 0
    side = 1 << _BITS - 1
    while side:
        right, upper = (x & side) != 0, (y & side) != 0
        along += side * side * ((3 * right) ^ upper)
        if not upper:
            if right:
                x, y = ~x, ~y
            x, y = y, x
        side >>= 1
    return along


@kernel
def build(tree: Rows, which: Integers, spot: Rows, box: Rows) -> None:
    """The boxes of these trees, from their spots."""
    for t in which:
        row = tree[t]
        leaves = (row.room + FAN - 1) >> SHIFT
        for i in range(row.box, row.box + FIRST[row.depth] + leaves):
            b = box[i]
            b.low_x = b.low_y = b.low_z = _EMPTY
            b.high_x = b.high_y = b.high_z = -_EMPTY
        for k in range(row.used):
            s = spot[row.start + k]
            if s.item >= 0:
                b = box[row.box + FIRST[row.depth] + (k >> SHIFT)]
                b.low_x, b.high_x = min(b.low_x, s.x - s.reach), max(b.high_x, s.x + s.reach)
                b.low_y, b.high_y = min(b.low_y, s.y - s.reach), max(b.high_y, s.y + s.reach)
                b.low_z, b.high_z = min(b.low_z, s.z - s.reach), max(b.high_z, s.z + s.reach)
        nodes = (row.used + FAN - 1) >> SHIFT
        for depth in range(row.depth, 0, -1):
            for i in range(nodes):
                c, b = box[row.box + FIRST[depth] + i], box[row.box + FIRST[depth - 1] + (i >> SHIFT)]
                b.low_x, b.high_x = min(b.low_x, c.low_x), max(b.high_x, c.high_x)
                b.low_y, b.high_y = min(b.low_y, c.low_y), max(b.high_y, c.high_y)
                b.low_z, b.high_z = min(b.low_z, c.low_z), max(b.high_z, c.high_z)
            nodes = (nodes + FAN - 1) >> SHIFT


@kernel
def append(item: Rows, tree: Rows, spot: Rows, items: Integers, rows: Rows) -> None:
    """Put items behind the others of their trees, where there is room. The boxes do not hold them yet."""
    for i in range(items.size):
        t = tree[item[items[i]].tree]
        k = t.start + t.used
        spot[k] = rows[i]
        item[items[i]].place = k
        t.used += 1
        t.live += 1
        t.churn += 1


@kernel
def take_out(item: Rows, tree: Rows, spot: Rows, items: Integers) -> None:
    """The spots stay as they are, but nobody's; `place` remembers them."""
    for i in items:
        k = item[i].place
        if k >= 0:
            spot[k].item = -1
            t = tree[item[i].tree]
            t.live -= 1
            t.churn += 1
            item[i].place = ~k


@kernel
def link(item: Rows, head: Integers, items: Integers) -> None:
    """Put items before the chains of their entities."""
    for i in items:
        item[i].next = head[item[i].entity]
        head[item[i].entity] = i


@kernel
def unlink(item: Rows, head: Integers, items: Integers) -> None:
    for i in items:
        e = item[i].entity
        if head[e] == i:
            head[e] = item[i].next
        else:
            before = head[e]
            while item[before].next != i:
                before = item[before].next
            item[before].next = item[i].next


@kernel
def find(item: Rows, head: Integers, entities: Integers, trees: Integers, found: Integers) -> None:
    """Note the first item of each entity in a tree, or -1."""
    for i in range(entities.size):
        at = head[entities[i]]
        while at >= 0 and item[at].tree != trees[i]:
            at = item[at].next
        found[i] = at


@kernel
def chain(item: Rows, head: Integers, entities: Integers, found: Integers) -> int:
    """Note the items of these entities, as far as there is room. Returns how many there are."""
    n = 0
    for e in entities:
        at = head[e]
        while at >= 0:
            if n < found.size:
                found[n] = at
            n += 1
            at = item[at].next
    return n
