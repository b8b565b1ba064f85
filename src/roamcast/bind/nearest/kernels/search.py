"""Searching the trees: what is near, and the choice among all that is within a radius."""

from __future__ import annotations

from math import sqrt
from typing import Final

import numpy as np

from roamcast.bind.nearest.kernels.layout import FAN, FIRST, SHIFT, Row, Rows, Rule, World
from roamcast.bind.nearest.kernels.metric import beyond, in_doubt, metres, square, within
from roamcast.compiled import kernel

__all__ = ["after", "choose", "hold_in_boxes", "leaf_end", "leaf_start", "nearest", "next_leaf"]

_INF: Final = np.inf
_REMOTEOF: Final = int(Rule.REMOTEOF)


@kernel
def _gap(b: Row, x: float, y: float, z: float) -> float:
    """The square of the chord to a box, 0 inside."""
    dx = max(b.low_x - x, x - b.high_x, 0.0)
    dy = max(b.low_y - y, y - b.high_y, 0.0)
    dz = max(b.low_z - z, z - b.high_z, 0.0)
    return float(dx * dx + dy * dy + dz * dz)


@kernel
def hold_in_boxes(tree: Row, spot: Rows, box: Rows, k: int) -> None:
    """Let the boxes above a spot grow to hold it."""
    s = spot[k]
    i = (k - tree.start) >> SHIFT
    low_x, low_y, low_z = s.x - s.reach, s.y - s.reach, s.z - s.reach
    high_x, high_y, high_z = s.x + s.reach, s.y + s.reach, s.z + s.reach
    for depth in range(tree.depth, -1, -1):
        b = box[tree.box + FIRST[depth] + i]
        if (
            b.low_x <= low_x
            and b.low_y <= low_y
            and b.low_z <= low_z
            and high_x <= b.high_x
            and high_y <= b.high_y
            and high_z <= b.high_z
        ):
            return
        b.low_x, b.high_x = min(b.low_x, low_x), max(b.high_x, high_x)
        b.low_y, b.high_y = min(b.low_y, low_y), max(b.high_y, high_y)
        b.low_z, b.high_z = min(b.low_z, low_z), max(b.high_z, high_z)
        i >>= SHIFT
        tree.churn += depth == tree.depth


@kernel
def after(depth: int, i: int) -> tuple[int, int]:
    """The node that follows when a node is left without going into it; depth 0 is the end."""
    i += 1
    while depth > 0 and i & (FAN - 1) == 0:
        depth, i = depth - 1, i >> SHIFT
    return depth, i


@kernel
def leaf_start(tree: Row, leaf: int) -> int:
    return int(tree.start + (leaf << SHIFT))


@kernel
def leaf_end(tree: Row, leaf: int) -> int:
    return int(tree.start + min(tree.used, (leaf + 1) << SHIFT))


@kernel
def next_leaf(tree: Row, box: Rows, leaf: int, x: float, y: float, z: float, limit: float) -> int:
    """The first leaf after this one (-1: of all) that may hold something within the limit; -1 at the end."""
    depth, i = (0, 0) if leaf < 0 else after(tree.depth, leaf)
    if tree.live == 0 or (leaf >= 0 and depth == 0):
        return -1
    while True:
        b = box[tree.box + FIRST[depth] + i]
        unused = depth == tree.depth and i << SHIFT >= tree.used
        if unused or b.low_x > b.high_x or _gap(b, x, y, z) > limit * limit:
            depth, i = after(depth, i)
            if depth == 0:
                return -1
        elif depth == tree.depth:
            return i
        else:
            depth, i = depth + 1, i << SHIFT


@kernel
def _leaf_near(tree: Row, box: Rows, x: float, y: float, z: float) -> int:
    """A leaf that is likely to hold something near."""
    i = 0
    for depth in range(1, tree.depth + 1):
        first, least = i << SHIFT, _INF
        last = first + FAN
        if depth == tree.depth:
            last = min(last, (tree.used + FAN - 1) >> SHIFT)
        i = first
        for child in range(first, last):
            away = _gap(box[tree.box + FIRST[depth] + child], x, y, z)
            if away < least:
                i, least = child, away
    return i


@kernel
def nearest(world: World, who: int, group: int, x: float, y: float, z: float) -> tuple[int, float, float, float, float]:
    """The nearest membership, its metres and chord, the least chord of the others, the least metres of a rival.

    A rival is a source at another point than the nearest that might be as near.
    """
    tree = world.member_tree[group]
    best, source, length, chord, other, rival = -1, -1, _INF, _INF, _INF, _INF
    close = limit = _INF
    first = leaf = _leaf_near(tree, world.member_box, x, y, z) if tree.live else -1
    while leaf >= 0:
        for k in range(leaf_start(tree, leaf), leaf_end(tree, leaf)):
            s = world.member_spot[k]
            c = square(s, x, y, z)
            if c > limit * limit or s.item < 0 or s.item == best:
                continue
            c = sqrt(c)
            if c <= close:
                e = s.entity
                m = metres(world.geographic, world.entity[who], world.entity[e])
                twin = best >= 0 and _same_point(world.entity[e], world.entity[source])
                if best < 0 or m < length or (m == length and world.label[e] < world.label[source]):
                    if not twin:
                        rival = min(rival, length)
                    best, source, length, chord, c, close = s.item, e, m, c, chord, beyond(world.geographic, m)
                elif not twin:
                    rival = min(rival, m)
            other = min(other, c)
            limit = max(close, other)
        if first >= 0:
            first = leaf = -1
        leaf = next_leaf(tree, world.member_box, leaf, x, y, z, limit)
    return best, length, chord, other, rival


@kernel
def choose(world: World, group: int, watcher: int, x: float, y: float, z: float) -> tuple[int, bool]:
    """The farthest membership within the radius, or the one with most bindings; and whether that is in doubt."""
    tree, w = world.member_tree[group], world.watcher_spot[watcher]
    radius, remote, who = w.radius, w.rule == _REMOTEOF, world.entity[w.entity]
    best, source, merit, rival, doubt = -1, -1, -_INF, -_INF, False
    inside, outside = within(world.geographic, radius), beyond(world.geographic, radius)
    leaf = next_leaf(tree, world.member_box, -1, x, y, z, outside)
    while leaf >= 0:
        for k in range(leaf_start(tree, leaf), leaf_end(tree, leaf)):
            s = world.member_spot[k]
            c = square(s, x, y, z)
            if s.item < 0 or c > outside * outside:
                continue
            e = s.entity
            length = metres(world.geographic, who, world.entity[e])
            if sqrt(c) > inside:
                doubt |= in_doubt(world.geographic, length, radius)
                if length > radius:
                    continue
            m = length if remote else float(world.bindings[e])
            twin = best >= 0 and _same_point(world.entity[e], world.entity[source])
            if best < 0 or m > merit or (m == merit and world.label[e] < world.label[source]):
                if not twin:
                    rival = max(rival, merit)
                best, source, merit = s.item, e, m
            elif not twin:
                rival = max(rival, m)
        leaf = next_leaf(tree, world.member_box, leaf, x, y, z, outside)
    return best, doubt or (remote and rival >= 0 and in_doubt(world.geographic, merit, rival))


@kernel
def _same_point(a: Row, b: Row) -> bool:
    return bool(a.x == b.x and a.y == b.y)
