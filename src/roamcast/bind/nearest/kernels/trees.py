"""Kernels for packed trees: entries sorted along a Hilbert curve, eight to a leaf, eight children to a node."""

from __future__ import annotations

import numpy as np

from roamcast.bind.nearest.kernels import inlined
from roamcast.bind.nearest.kernels.layout import FANOUT, FANOUT_BITS, FIRST_BOX, Floats, Int32s, Int64s, Rows
from roamcast.compiled import kernel

__all__ = [
    "append_entries",
    "build_boxes",
    "find_items",
    "hilbert_keys",
    "link_items",
    "list_items",
    "live_entries",
    "remove_entries",
    "unlink_items",
]

_BITS = 16
_EMPTY = np.inf


@kernel
def live_entries(tree: Rows, trees: Int32s, entry_item: Int32s, rows: Int32s) -> None:
    """Write the rows of the entries in use, one tree after another."""
    n = 0
    for t in trees:
        for k in range(tree[t].start, tree[t].start + tree[t].used):
            if entry_item[k] >= 0:
                rows[n] = k
                n += 1


@kernel
def hilbert_keys(group: Int32s, x: Floats, y: Floats, keys: Int64s) -> None:
    """Write keys that sort points by group, then along a Hilbert curve. Points of a group are consecutive."""
    begin = 0
    while begin < group.size:
        end = begin
        low_x = low_y = np.inf
        high_x = high_y = -np.inf
        while end < group.size and group[end] == group[begin]:
            low_x, high_x = min(low_x, x[end]), max(high_x, x[end])
            low_y, high_y = min(low_y, y[end]), max(high_y, y[end])
            end += 1
        # Halved, so that the widest possible extent does not overflow.
        wide = max(high_x / 2 - low_x / 2, high_y / 2 - low_y / 2)
        scale = (2**_BITS - 1) / wide if wide > 1e-290 else 0.0
        for i in range(begin, end):
            key = _hilbert_key(int((x[i] / 2 - low_x / 2) * scale), int((y[i] / 2 - low_y / 2) * scale))
            keys[i] = np.int64(group[begin]) << 2 * _BITS | key
        begin = end


@inlined
def _hilbert_key(x: int, y: int) -> int:
    key = 0
    side = 1 << _BITS - 1
    while side:
        right, upper = (x & side) != 0, (y & side) != 0
        key += side * side * ((3 * right) ^ upper)
        if not upper:
            if right:
                x, y = ~x, ~y
            x, y = y, x
        side >>= 1
    return key


@kernel
def build_boxes(
    tree: Rows, trees: Int32s, item: Int32s, x: Floats, y: Floats, z: Floats, reach: Floats, box: Rows
) -> None:
    """Compute the boxes of these trees from the columns of their entries."""
    for t in trees:
        row = tree[t]
        leaves = (row.capacity + FANOUT - 1) >> FANOUT_BITS
        for i in range(row.box, row.box + FIRST_BOX[row.depth] + leaves):
            b = box[i]
            b.low_x = b.low_y = b.low_z = _EMPTY
            b.high_x = b.high_y = b.high_z = -_EMPTY
        for k in range(row.used):
            s = row.start + k
            if item[s] >= 0:
                b = box[row.box + FIRST_BOX[row.depth] + (k >> FANOUT_BITS)]
                b.low_x, b.high_x = min(b.low_x, x[s] - reach[s]), max(b.high_x, x[s] + reach[s])
                b.low_y, b.high_y = min(b.low_y, y[s] - reach[s]), max(b.high_y, y[s] + reach[s])
                b.low_z, b.high_z = min(b.low_z, z[s] - reach[s]), max(b.high_z, z[s] + reach[s])
        nodes = (row.used + FANOUT - 1) >> FANOUT_BITS
        for depth in range(row.depth, 0, -1):
            for i in range(nodes):
                c = box[row.box + FIRST_BOX[depth] + i]
                b = box[row.box + FIRST_BOX[depth - 1] + (i >> FANOUT_BITS)]
                b.low_x, b.high_x = min(b.low_x, c.low_x), max(b.high_x, c.high_x)
                b.low_y, b.high_y = min(b.low_y, c.low_y), max(b.high_y, c.high_y)
                b.low_z, b.high_z = min(b.low_z, c.low_z), max(b.high_z, c.high_z)
            nodes = (nodes + FANOUT - 1) >> FANOUT_BITS


@kernel
def append_entries(item: Rows, tree: Rows, items: Int32s, rows: Int32s) -> None:
    """Allot entries at the ends of the trees of items, where there is capacity. Writes their rows.

    The caller fills the entries and grows the boxes.
    """
    for i in range(items.size):
        t = tree[item[items[i]].group]
        rows[i] = item[items[i]].entry = t.start + t.used
        t.used += 1
        t.live += 1
        t.churn += 1


@kernel
def remove_entries(item: Rows, tree: Rows, entry_item: Int32s, items: Int32s) -> None:
    """Remove the entries of those items that have one. Their contents stay; `entry` remembers the row."""
    for i in items:
        k = item[i].entry
        if k >= 0:
            entry_item[k] = -1
            t = tree[item[i].group]
            t.live -= 1
            t.churn += 1
            item[i].entry = ~k


@kernel
def link_items(item: Rows, head: Int32s, items: Int32s) -> None:
    """Insert items at the heads of their entities' lists."""
    for i in items:
        item[i].next = head[item[i].entity]
        head[item[i].entity] = i


@kernel
def unlink_items(item: Rows, head: Int32s, items: Int32s) -> None:
    """Remove items from their entities' lists."""
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
def find_items(item: Rows, head: Int32s, entities: Int32s, groups: Int32s, items: Int32s) -> None:
    """Write the item of each entity in a group, pair by pair, or -1."""
    for i in range(entities.size):
        at = head[entities[i]]
        while at >= 0 and item[at].group != groups[i]:
            at = item[at].next
        items[i] = at


@kernel
def list_items(item: Rows, head: Int32s, entities: Int32s, items: Int32s) -> int:
    """Write the items of these entities, as far as they fit. Returns how many there are."""
    n = 0
    for e in entities:
        at = head[e]
        while at >= 0:
            if n < items.size:
                items[n] = at
            n += 1
            at = item[at].next
    return n
