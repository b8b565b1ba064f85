"""One watcher at a time: does its binding stand, for how long, and which is the right one if not?"""

from __future__ import annotations

from math import sqrt
from typing import Final

import numpy as np

from roamcast.bind.nearest.kernels.layout import Row, Rule, World
from roamcast.bind.nearest.kernels.metric import beyond, chart, in_doubt, metres, shrink, square, stretch, within
from roamcast.bind.nearest.kernels.search import choose, hold_in_boxes, leaf_end, leaf_start, nearest, next_leaf
from roamcast.compiled import kernel

__all__ = ["DOUBTFUL", "OPEN", "bind", "chord_to", "keep", "look", "stands"]

DOUBTFUL: Final = -1.0  # in place of a safe distance: `space.distance` must decide
OPEN: Final = -2.0  # in place of a safe distance: to be chosen once all others are

_INF: Final = np.inf
_NEAREST: Final = int(Rule.NEAREST)
_NEAROF: Final = int(Rule.NEAROF)
_REMOTEOF: Final = int(Rule.REMOTEOF)
_EPS: Final = 1e-15  # relative error of a few operations
_WIDE: Final = 2.0  # beyond this many radii sources are not watched
_SHARE: Final = 0.8  # of the gap between the two nearest that is watched; the rest lets the other move unnoticed
_USED: Final = 0.8  # of a safe distance that the subscriber may use up; the rest lets its source move unnoticed
_WORTH: Final = 0.25  # an anchor moves without a search if it gains this part of the way that it moves


@kernel
def _safe_distance(geographic: bool, s: Row, bound: int, chord: float, near: float, far: float) -> float:
    """How far the subscriber may go from its anchor before its binding could change. May be negative, or NaN."""
    if bound < 0:
        return float(far if s.rule == _NEAREST else far - beyond(geographic, s.radius))
    safe = _INF if s.rule == _NEAREST else within(geographic, s.radius) - chord
    if s.rule <= _NEAROF:
        safe = min(safe, (shrink(geographic, far) - chord) / 2)
    elif s.rule == _REMOTEOF:
        safe = min(safe, (shrink(geographic, chord) - near) / 2, far - beyond(geographic, s.radius))
    return safe


@kernel
def keep(world: World, group: int, k: int, chord: float) -> None:
    """Note how near a source must come to matter to a watcher."""
    s = world.watcher_spot[k]
    s.reach = max(s.far, stretch(world.geographic, chord) if s.bound >= 0 else 0.0)
    if s.rule == _REMOTEOF or (s.bound < 0 and s.rule != _NEAREST):
        s.reach = max(s.reach, beyond(world.geographic, s.radius))
    hold_in_boxes(world.watcher_tree[group], world.watcher_spot, world.watcher_box, k)


@kernel
def stands(world: World, s: Row) -> bool:
    """Whether a watcher is still as safe as was noted, whatever its subscriber has used up of that."""
    if s.bound >= 0 and world.members[s.bound].place < 0:
        return False
    chord = chord_to(world, s.bound, s.x, s.y, s.z)
    return bool(_safe_distance(world.geographic, s, s.bound, chord, s.near, s.far) >= s.safe > 0)


@kernel
def chord_to(world: World, member: int, x: float, y: float, z: float) -> float:
    return sqrt(square(world.member_spot[world.members[member].place], x, y, z)) if member >= 0 else 0.0


@kernel
def _anchor(
    world: World, group: int, k: int, bound: int, x: float, y: float, z: float, near: float, far: float
) -> float:
    """Bind a watcher to a membership or none, seen from (x, y, z) from now on. Returns its safe distance or 0."""
    s = world.watcher_spot[k]
    s.x, s.y, s.z, s.bound, s.near, s.far = x, y, z, bound, near, far
    chord = chord_to(world, bound, x, y, z)
    safe = _safe_distance(world.geographic, s, bound, chord, near, far)
    s.safe = _USED * safe
    keep(world, group, k, chord)
    return float(s.safe) if s.safe > 0 else 0.0


@kernel
def _others(world: World, group: int, bound: int, x: float, y: float, z: float, radius: float) -> tuple[float, float]:
    """Of the chords to the other memberships the greatest that may be within the radius and the least beyond it."""
    tree, low, high = world.member_tree[group], within(world.geographic, radius), beyond(world.geographic, radius)
    near, far = -_INF, _WIDE * high
    leaf = next_leaf(tree, world.member_box, -1, x, y, z, far)
    while leaf >= 0:
        for k in range(leaf_start(tree, leaf), leaf_end(tree, leaf)):
            s = world.member_spot[k]
            if s.item >= 0 and s.item != bound:
                c = sqrt(square(s, x, y, z))
                if c <= high:
                    near = max(near, c)
                if c >= low:
                    far = min(far, c)
        leaf = next_leaf(tree, world.member_box, leaf, x, y, z, max(high, far))
    return near, far


@kernel
def _bind_near(
    world: World, group: int, k: int, bound: int, x: float, y: float, z: float, chord: float, other: float
) -> float:
    """Bind to the nearest, or to none, given its chord and the least chord of the others."""
    s = world.watcher_spot[k]
    out = beyond(world.geographic, s.radius) if s.rule != _NEAREST else _INF
    if bound < 0:
        far = min(chord, other) if s.rule == _NEAREST else min(chord, other, _WIDE * out)
    else:
        far = min(other, _WIDE * out)
        far = chord + _SHARE * (far - chord) if chord < far < _INF else far
    return _anchor(world, group, k, bound, x, y, z, -_INF, far)


@kernel
def bind(world: World, group: int, k: int, bound: int, x: float, y: float, z: float) -> float:
    """Bind a watcher to what was chosen for it."""
    s = world.watcher_spot[k]
    if bound < 0 or s.rule <= _NEAROF:
        best, _, chord, other, _ = nearest(world, s.entity, group, x, y, z)
        if best != bound:
            chord = other = min(chord, other)
        return _bind_near(world, group, k, bound, x, y, z, chord, other)
    near, far = -_INF, -1.0
    if s.rule == _REMOTEOF:
        near, far = _others(world, group, bound, x, y, z, s.radius)
    return _anchor(world, group, k, bound, x, y, z, near, far)


@kernel
def _evaluate(world: World, group: int, k: int, x: float, y: float, z: float) -> float:
    """Choose a source anew. Returns the safe distance, or why there is no choice yet."""
    s = world.watcher_spot[k]
    world.watcher_tree[group].searched += 1
    doubt = False
    if s.rule <= _NEAROF:
        best, length, chord, other, rival = nearest(world, s.entity, group, x, y, z)
        doubt = rival < _INF and in_doubt(world.geographic, length, rival)
        if s.rule == _NEAROF and best >= 0:
            doubt |= chord > within(world.geographic, s.radius) and in_doubt(world.geographic, length, s.radius)
            if length > s.radius:
                best = -1
        if not doubt:
            return _bind_near(world, group, k, best, x, y, z, chord, other)
    elif s.rule == _REMOTEOF:
        best, doubt = choose(world, group, k, x, y, z)
        if not doubt:
            return bind(world, group, k, best, x, y, z)
    elif s.bound >= 0 and world.members[s.bound].place >= 0:
        length = metres(world.geographic, world.entity[s.entity], world.entity[world.members[s.bound].entity])
        doubt = chord_to(world, s.bound, x, y, z) > within(world.geographic, s.radius)
        doubt &= in_doubt(world.geographic, length, s.radius)
        if length <= s.radius and not doubt:
            return bind(world, group, k, s.bound, x, y, z)
    s.bound, s.far = -1, -1.0
    return DOUBTFUL if doubt else OPEN


@kernel
def look(world: World, group: int, k: int) -> float:
    """See whether a watcher's binding stands; rebind it if not. Returns as `_evaluate`, less the way already gone."""
    s = world.watcher_spot[k]
    x, y, z = chart(world.geographic, world.entity[s.entity].x, world.entity[s.entity].y)
    if s.bound < 0 or world.members[s.bound].place >= 0:
        gone = sqrt(square(s, x, y, z))
        chord = chord_to(world, s.bound, s.x, s.y, s.z)
        safe = _safe_distance(world.geographic, s, s.bound, chord, s.near, s.far)
        if gone < safe:
            s.safe = gone + _USED * (safe - gone)
            keep(world, group, k, chord)
            return float(s.safe - gone)
        near, far = (s.near + gone) * (1 + _EPS), s.far * (1 - _EPS) - gone * (1 + _EPS)
        chord = chord_to(world, s.bound, x, y, z)
        if _safe_distance(world.geographic, s, s.bound, chord, near, far) > _WORTH * gone:
            return _anchor(world, group, k, s.bound, x, y, z, near, far)
    return _evaluate(world, group, k, x, y, z)
