"""Distances, and searches of the trees for sources.

A *chord* is a straight line in the chart: the plane itself, or for geographic space the auxiliary sphere of reduced
latitudes. Chords are a metric and bound distances in metres from both sides. In geographic space the metres of
Lambert's formula lie between (1 - f) times the arc over the chord and that arc; in the plane they equal the chord, up
to rounding.
"""

from __future__ import annotations

from math import atan, atan2, cos, hypot, inf, pi, radians, sin, sqrt, tan
from typing import Final

from roamcast.bind.nearest.kernels import inlined
from roamcast.bind.nearest.kernels.layout import FANOUT, FANOUT_BITS, FIRST_BOX, Record, Rows, Rule, SearchArrays, long
from roamcast.compiled import inline_kernel

__all__ = [
    "choose_within",
    "chord_beyond",
    "chord_within",
    "grow_boxes",
    "is_uncertain",
    "leaf_end",
    "leaf_start",
    "longer_chord",
    "metres",
    "nearest",
    "next_leaf",
    "next_node",
    "shorter_chord",
    "squared",
    "step_chord",
    "to_chart",
]

_REMOTEOF: Final = int(Rule.REMOTEOF)
_ROUND: Final = 1e-13  # relative slack of planar comparisons
_TINY: Final = 1e-140  # absolute slack of planar comparisons: squares of smaller numbers underflow

# WGS84, as in `roamcast.space`.
_RADIUS: Final = 6_378_137.0
_FLATTENING: Final = 1 / 298.257223563
_SLOP: Final = 1e-3  # metres; far above the rounding errors of the chart
_DOUBT: Final = 1e-6  # metres by which `metres` may differ from `space.distance` …
_DOUBT_FROM: Final = 1.8e7  # … up to this distance; near the antipode rounding errors may grow to kilometres


@inline_kernel
def to_chart(geographic: bool, x: float, y: float) -> tuple[float, float, float]:
    if not geographic:
        return x, y, 0.0
    t = (1 - _FLATTENING) * tan(radians(y))
    flat = _RADIUS / sqrt(1 + t * t)
    return flat * cos(radians(x)), flat * sin(radians(x)), flat * t


@inline_kernel
def metres(geographic: bool, x1: float, y1: float, x2: float, y2: float) -> float:
    """The distance of two points, as `space.distance` computes it."""
    if not geographic:
        return hypot(x2 - x1, y2 - y1)
    b1, b2 = atan((1 - _FLATTENING) * tan(radians(y1))), atan((1 - _FLATTENING) * tan(radians(y2)))
    half_turn = sin(radians(x2 - x1) / 2) ** 2
    sin2_p, sin2_q = sin((b1 + b2) / 2) ** 2, sin((b2 - b1) / 2) ** 2
    sin2 = sin2_q * (1 - half_turn) + (1 - sin2_p) * half_turn
    cos2 = (1 - sin2_q) * (1 - half_turn) + sin2_p * half_turn
    angle = 2 * atan2(sqrt(sin2), sqrt(cos2))
    far = (angle - sin(angle)) * (sin2_p * (1 - sin2_q) / cos2 if cos2 != 0 else 0.0)
    near = (angle + sin(angle)) * ((1 - sin2_p) * sin2_q / sin2 if sin2 != 0 else 0.0)
    return _RADIUS * (angle - _FLATTENING / 2 * (far + near))


@inline_kernel
def chord_within(geographic: bool, length: float) -> float:
    """Chords up to this are certainly not longer than `length` metres."""
    if not geographic:
        return length * (1 - _ROUND) - _TINY
    arc = length / _RADIUS
    return 2 * _RADIUS * sin(arc / 2) - _SLOP if arc < pi else inf


@inline_kernel
def chord_beyond(geographic: bool, length: float) -> float:
    """Chords over this are certainly longer than `length` metres."""
    if not geographic:
        return length * (1 + _ROUND) + _TINY
    arc = length / (1 - _FLATTENING) / _RADIUS
    return 2 * _RADIUS * sin(arc / 2) + _SLOP if arc < pi else inf


@inlined
def longer_chord(geographic: bool, chord: float) -> float:
    """Chords over this are certainly longer in metres than `chord`."""
    return chord / (1 - _FLATTENING) + _SLOP if geographic else chord * (1 + _ROUND) + _TINY


@inlined
def shorter_chord(geographic: bool, chord: float) -> float:
    """Chords under this are certainly shorter in metres than `chord`."""
    return chord * (1 - _FLATTENING) - _SLOP if geographic else chord * (1 - _ROUND) - _TINY


@inlined
def is_uncertain(geographic: bool, a: float, b: float) -> bool:
    """Whether only `space.distance` can tell which of two distances in metres is less."""
    return geographic and (abs(a - b) <= _DOUBT or max(a, b) > _DOUBT_FROM)


@inlined
def squared(dx: float, dy: float, dz: float) -> float:
    return dx * dx + dy * dy + dz * dz


@inlined
def step_chord(geographic: bool, dx: float, dy: float) -> float:
    """An upper bound of the chord of a step by these coordinates, wherever it starts."""
    if not geographic:
        return sqrt(dx * dx + dy * dy)
    turn = min(abs(dx), 360 - abs(dx))
    return _RADIUS * radians(hypot(turn, dy / (1 - _FLATTENING))) * (1 + _ROUND)


@inlined
def _squared_gap(b: Record, x: float, y: float, z: float) -> float:
    """The squared chord to a box, 0 inside."""
    dx = max(b.low_x - x, x - b.high_x, 0.0)
    dy = max(b.low_y - y, y - b.high_y, 0.0)
    dz = max(b.low_z - z, z - b.high_z, 0.0)
    return float(dx * dx + dy * dy + dz * dz)


@inline_kernel
def grow_boxes(tree: Record, box: Rows, k: int, x: float, y: float, z: float, reach: float) -> None:
    """Grow the boxes above entry `k`, which is at (x, y, z), to contain it."""
    i = (k - tree.start) >> FANOUT_BITS
    low_x, low_y, low_z = x - reach, y - reach, z - reach
    high_x, high_y, high_z = x + reach, y + reach, z + reach
    for depth in range(tree.depth, -1, -1):
        b = box[tree.box + FIRST_BOX[depth] + i]
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
        i >>= FANOUT_BITS
        tree.churn += depth == tree.depth


@inlined
def next_node(depth: int, i: int) -> tuple[int, int]:
    """The node after node `i` of this depth and its subtree, in depth-first order. Depth 0 is the end."""
    i += 1
    while depth > 0 and i & (FANOUT - 1) == 0:
        depth, i = depth - 1, i >> FANOUT_BITS
    return depth, i


@inlined
def leaf_start(tree: Record, leaf: int) -> int:
    return int(tree.start + (leaf << FANOUT_BITS))


@inlined
def leaf_end(tree: Record, leaf: int) -> int:
    return int(tree.start + min(tree.used, (leaf + 1) << FANOUT_BITS))


@inline_kernel
def next_leaf(tree: Record, box: Rows, leaf: int, x: float, y: float, z: float, limit: float) -> int:
    """The first leaf after this one (-1: the first of all) that may have an entry within the limit; -1 at the end."""
    depth, i = 0, 0
    if leaf >= 0:
        depth, i = next_node(tree.depth, leaf)
    if tree.live == 0 or (leaf >= 0 and depth == 0):
        return -1
    while True:
        b = box[tree.box + FIRST_BOX[depth] + i]
        unused = depth == tree.depth and i << FANOUT_BITS >= tree.used
        if unused or b.low_x > b.high_x or _squared_gap(b, x, y, z) > limit * limit:
            depth, i = next_node(depth, i)
            if depth == 0:
                return -1
        elif depth == tree.depth:
            return i
        else:
            depth, i = depth + 1, i << FANOUT_BITS


@inline_kernel
def _leaf_near(tree: Record, box: Rows, x: float, y: float, z: float) -> int:
    """A leaf that is likely to have entries near the point."""
    i = 0
    for depth in range(1, tree.depth + 1):
        first, least = i << FANOUT_BITS, inf
        last = first + FANOUT
        if depth == tree.depth:
            last = min(last, (tree.used + FANOUT - 1) >> FANOUT_BITS)
        i = first
        for child in range(first, last):
            gap = _squared_gap(box[tree.box + FIRST_BOX[depth] + child], x, y, z)
            if gap < least:
                i, least = child, gap
    return i


@inline_kernel
def nearest(
    arrays: SearchArrays, subscriber: int, group: int, x: float, y: float, z: float
) -> tuple[int, float, float, float, float]:
    """The nearest membership, its metres and chord, the least chord of the others, and the least metres of a rival.

    A rival is a source at another point than the nearest that might be as near.
    """
    tree = arrays.member_tree[group]
    best, source, length, chord, other, rival = -1, -1, inf, inf, inf, inf
    close = limit = inf
    first = leaf = _leaf_near(tree, arrays.member_box, x, y, z) if tree.live else -1
    here = arrays.entity[subscriber]
    while leaf >= 0:
        for k in range(leaf_start(tree, leaf), leaf_end(tree, leaf)):
            m = arrays.member_entry[k]
            c = squared(m.x - x, m.y - y, m.z - z)
            if c > limit * limit or m.item < 0 or m.item == best:
                continue
            c = sqrt(c)
            if c <= close:
                e = m.entity
                there, leader = arrays.entity[e], arrays.entity[source]
                d = metres(arrays.geographic, here.x, here.y, there.x, there.y)
                same_point = best >= 0 and there.x == leader.x and there.y == leader.y
                if best < 0 or d < length or (d == length and arrays.label[e] < arrays.label[source]):
                    if not same_point:
                        rival = min(rival, length)
                    best, source, length, chord, c = m.item, e, d, c, chord
                    close = chord_beyond(arrays.geographic, d)
                elif not same_point:
                    rival = min(rival, d)
            other = min(other, c)
            limit = max(close, other)
        if first >= 0:
            first = leaf = -1
        leaf = next_leaf(tree, arrays.member_box, leaf, x, y, z, limit)
    return best, length, chord, other, rival


@inline_kernel
def choose_within(arrays: SearchArrays, group: int, k: int, x: float, y: float, z: float) -> tuple[int, bool]:
    """The membership for the subscription in entry `k` (REMOTEOF or ANYOF), and whether the choice is uncertain.

    Its subscriber is at (x, y, z).
    """
    tree, s = arrays.member_tree[group], arrays.subscription_entry[k]
    radius, remote, here = s.radius, s.rule == _REMOTEOF, arrays.entity[s.entity]
    best, source, merit, rival, uncertain = -1, -1, -inf, -inf, False
    inside, outside = chord_within(arrays.geographic, radius), chord_beyond(arrays.geographic, radius)
    leaf = next_leaf(tree, arrays.member_box, long(-1), x, y, z, outside)
    while leaf >= 0:
        for j in range(leaf_start(tree, leaf), leaf_end(tree, leaf)):
            m = arrays.member_entry[j]
            c = squared(m.x - x, m.y - y, m.z - z)
            if m.item < 0 or c > outside * outside:
                continue
            e = m.entity
            there, leader = arrays.entity[e], arrays.entity[source]
            length = metres(arrays.geographic, here.x, here.y, there.x, there.y)
            if sqrt(c) > inside:
                uncertain |= is_uncertain(arrays.geographic, length, radius)
                if length > radius:
                    continue
            value = length if remote else float(arrays.bindings[e])
            same_point = best >= 0 and there.x == leader.x and there.y == leader.y
            if best < 0 or value > merit or (value == merit and arrays.label[e] < arrays.label[source]):
                if not same_point:
                    rival = max(rival, merit)
                best, source, merit = m.item, e, value
            elif not same_point:
                rival = max(rival, value)
        leaf = next_leaf(tree, arrays.member_box, leaf, x, y, z, outside)
    if remote and rival >= 0 and is_uncertain(arrays.geographic, merit, rival):
        uncertain = True
    return best, uncertain
