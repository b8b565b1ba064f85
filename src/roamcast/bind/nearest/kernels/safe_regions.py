"""One subscription at a time: whether its binding is still right, for how long, and which source to bind it to.

Each subscription that is not suspended has a *safe region*: a disc around its anchor, the point where its
subscriber was last checked. While the subscriber stays inside and no source crosses certain limits, its binding cannot
change.
"""

from __future__ import annotations

from math import inf, sqrt
from typing import Final

from roamcast.bind.nearest.kernels.layout import Record, Rule, SearchArrays, long
from roamcast.bind.nearest.kernels.search import (
    choose_within,
    chord_beyond,
    chord_within,
    grow_boxes,
    is_uncertain,
    leaf_end,
    leaf_start,
    longer_chord,
    metres,
    nearest,
    next_leaf,
    shorter_chord,
    squared,
    to_chart,
)
from roamcast.compiled import inline_kernel

__all__ = ["UNCERTAIN", "UNDECIDED", "bind", "check", "chord_to", "is_still_safe", "update_reach"]

UNCERTAIN: Final = -1.0  # instead of a safe distance: `space.distance` must decide
UNDECIDED: Final = -2.0  # instead of a safe distance: ANYOF chooses after all others

_NEAREST: Final = int(Rule.NEAREST)
_NEAROF: Final = int(Rule.NEAROF)
_REMOTEOF: Final = int(Rule.REMOTEOF)
_EPS: Final = 1e-15  # relative error of a few operations
_WIDE: Final = 2.0  # sources beyond this many radii are not watched
_SHARE: Final = 0.8  # watched part of the gap between the two nearest; the rest lets the other move unnoticed
_USED: Final = 0.8  # part of a safe distance for the subscriber; the rest lets its source move unnoticed
_WORTH: Final = 0.25  # an anchor moves without a search if this gains at least this part of the distance moved


@inline_kernel
def _safe_distance(geographic: bool, s: Record, bound: int, chord: float, near: float, far: float) -> float:
    """How far the subscriber may move from its anchor before its binding could change. May be negative or NaN."""
    if bound < 0:
        return float(far if s.rule == _NEAREST else far - chord_beyond(geographic, s.radius))
    safe = inf if s.rule == _NEAREST else chord_within(geographic, s.radius) - chord
    if s.rule <= _NEAROF:
        safe = min(safe, (shorter_chord(geographic, far) - chord) / 2)
    elif s.rule == _REMOTEOF:
        safe = min(safe, (shorter_chord(geographic, chord) - near) / 2, far - chord_beyond(geographic, s.radius))
    return safe


@inline_kernel
def update_reach(arrays: SearchArrays, group: int, k: int, chord: float) -> None:
    """Set how near a source must come to affect the subscription in entry `k`, bound at this chord."""
    s = arrays.subscription_entry[k]
    s.reach = max(s.far, longer_chord(arrays.geographic, chord) if s.bound >= 0 else 0.0)
    if s.rule == _REMOTEOF or (s.bound < 0 and s.rule != _NEAREST):
        s.reach = max(s.reach, chord_beyond(arrays.geographic, s.radius))
    grow_boxes(arrays.subscription_tree[group], arrays.subscription_box, k, s.x, s.y, s.z, s.reach)


@inline_kernel
def is_still_safe(arrays: SearchArrays, s: Record) -> bool:
    """Whether the safe region of a subscription is still at least as large as recorded."""
    if s.bound >= 0 and arrays.members[s.bound].entry < 0:
        return False
    chord = chord_to(arrays, long(s.bound), s.x, s.y, s.z)
    return bool(_safe_distance(arrays.geographic, s, long(s.bound), chord, s.near, s.far) >= s.safe > 0)


@inline_kernel
def chord_to(arrays: SearchArrays, member: int, x: float, y: float, z: float) -> float:
    """The chord from a point to a member; 0 for none."""
    if member < 0:
        return 0.0
    m = arrays.member_entry[arrays.members[member].entry]
    return sqrt(squared(m.x - x, m.y - y, m.z - z))


@inline_kernel
def _set_anchor(
    arrays: SearchArrays, group: int, k: int, bound: int, x: float, y: float, z: float, near: float, far: float
) -> float:
    """Bind a subscription to a membership or none, with its anchor at (x, y, z). Returns its safe distance or 0."""
    s = arrays.subscription_entry[k]
    s.x, s.y, s.z, s.bound, s.near, s.far = x, y, z, bound, near, far
    chord = chord_to(arrays, bound, x, y, z)
    safe = _safe_distance(arrays.geographic, s, bound, chord, near, far)
    s.safe = _USED * safe
    update_reach(arrays, group, k, chord)
    return float(s.safe) if s.safe > 0 else 0.0


@inline_kernel
def _other_chords(
    arrays: SearchArrays, group: int, bound: int, x: float, y: float, z: float, radius: float
) -> tuple[float, float]:
    """Of the other memberships, the greatest chord that may be within the radius and the least beyond it."""
    tree = arrays.member_tree[group]
    low, high = chord_within(arrays.geographic, radius), chord_beyond(arrays.geographic, radius)
    near, far = -inf, _WIDE * high
    leaf = next_leaf(tree, arrays.member_box, long(-1), x, y, z, far)
    while leaf >= 0:
        for k in range(leaf_start(tree, leaf), leaf_end(tree, leaf)):
            m = arrays.member_entry[k]
            if m.item >= 0 and m.item != bound:
                c = sqrt(squared(m.x - x, m.y - y, m.z - z))
                if c <= high:
                    near = max(near, c)
                if c >= low:
                    far = min(far, c)
        leaf = next_leaf(tree, arrays.member_box, leaf, x, y, z, max(high, far))
    return near, far


@inline_kernel
def _bind_nearest(
    arrays: SearchArrays, group: int, k: int, bound: int, x: float, y: float, z: float, chord: float, other: float
) -> float:
    """Bind to the nearest source or none, given its chord and the least chord of the others."""
    s = arrays.subscription_entry[k]
    outside = chord_beyond(arrays.geographic, s.radius) if s.rule != _NEAREST else inf
    if bound < 0:
        far = min(chord, other) if s.rule == _NEAREST else min(chord, other, _WIDE * outside)
    else:
        far = min(other, _WIDE * outside)
        far = chord + _SHARE * (far - chord) if chord < far < inf else far
    return _set_anchor(arrays, group, k, bound, x, y, z, -inf, far)


@inline_kernel
def bind(arrays: SearchArrays, group: int, k: int, bound: int, x: float, y: float, z: float) -> float:
    """Bind the subscription in entry `k` to the chosen membership or none. Returns its safe distance."""
    s = arrays.subscription_entry[k]
    if bound < 0 or s.rule <= _NEAROF:
        best, _, chord, other, _ = nearest(arrays, long(s.entity), group, x, y, z)
        if best != bound:
            chord = other = min(chord, other)
        return _bind_nearest(arrays, group, k, bound, x, y, z, chord, other)
    near, far = -inf, -1.0
    if s.rule == _REMOTEOF:
        near, far = _other_chords(arrays, group, bound, x, y, z, s.radius)
    return _set_anchor(arrays, group, k, bound, x, y, z, near, far)


@inline_kernel
def _search(arrays: SearchArrays, group: int, k: int, x: float, y: float, z: float) -> float:
    """Search for a source and bind to it. Returns the safe distance, or why there is no choice yet."""
    s = arrays.subscription_entry[k]
    arrays.subscription_tree[group].searches += 1
    uncertain = False
    if s.rule <= _NEAROF:
        best, length, chord, other, rival = nearest(arrays, long(s.entity), group, x, y, z)
        uncertain = rival < inf and is_uncertain(arrays.geographic, length, rival)
        if s.rule == _NEAROF and best >= 0:
            if chord > chord_within(arrays.geographic, s.radius) and is_uncertain(arrays.geographic, length, s.radius):
                uncertain = True
            if length > s.radius:
                best = -1
        if not uncertain:
            return _bind_nearest(arrays, group, k, best, x, y, z, chord, other)
    elif s.rule == _REMOTEOF:
        best, uncertain = choose_within(arrays, group, k, x, y, z)
        if not uncertain:
            return bind(arrays, group, k, best, x, y, z)
    elif s.bound >= 0 and arrays.members[s.bound].entry >= 0:
        here, there = arrays.entity[s.entity], arrays.entity[arrays.members[s.bound].entity]
        length = metres(arrays.geographic, here.x, here.y, there.x, there.y)
        chord = chord_to(arrays, long(s.bound), x, y, z)
        if chord > chord_within(arrays.geographic, s.radius) and is_uncertain(arrays.geographic, length, s.radius):
            uncertain = True
        if length <= s.radius and not uncertain:
            return bind(arrays, group, k, long(s.bound), x, y, z)
    s.bound, s.far = -1, -1.0
    return UNCERTAIN if uncertain else UNDECIDED


@inline_kernel
def check(arrays: SearchArrays, group: int, k: int) -> float:
    """Check the binding of the subscription in entry `k`, and rebind it if necessary.

    Returns how far the subscriber may move from where it is now, or why there is no choice yet.
    """
    s = arrays.subscription_entry[k]
    bound = long(s.bound)
    x, y, z = to_chart(arrays.geographic, arrays.entity[s.entity].x, arrays.entity[s.entity].y)
    if bound < 0 or arrays.members[bound].entry >= 0:
        moved = sqrt(squared(s.x - x, s.y - y, s.z - z))
        chord = chord_to(arrays, bound, s.x, s.y, s.z)
        safe = _safe_distance(arrays.geographic, s, bound, chord, s.near, s.far)
        if moved < safe:
            s.safe = moved + _USED * (safe - moved)
            update_reach(arrays, group, k, chord)
            return float(s.safe - moved)
        near, far = (s.near + moved) * (1 + _EPS), s.far * (1 - _EPS) - moved * (1 + _EPS)
        chord = chord_to(arrays, bound, x, y, z)
        if _safe_distance(arrays.geographic, s, bound, chord, near, far) > _WORTH * moved:
            return _set_anchor(arrays, group, k, bound, x, y, z, near, far)
    return _search(arrays, group, k, x, y, z)
