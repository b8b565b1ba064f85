"""A batch of moves: find the few watchers that must be looked at, look at them, say what changed."""

from __future__ import annotations

from math import sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

from roamcast.bind.nearest.kernels.holding import DOUBTFUL, OPEN, bind, chord_to, keep, look, stands
from roamcast.bind.nearest.kernels.layout import ENDLESS, FAN, FIRST, SHIFT, Integers, Row, Rows, Rule, World
from roamcast.bind.nearest.kernels.metric import chart, square, step
from roamcast.bind.nearest.kernels.search import after, choose, hold_in_boxes, leaf_end, leaf_start
from roamcast.compiled import kernel

__all__ = ["choose_any", "conclude", "fasten", "place", "settle", "walk"]

Floats = npt.NDArray[np.float64]

_NEAREST: Final = int(Rule.NEAREST)
_REMOTEOF: Final = int(Rule.REMOTEOF)
_EPS: Final = 1e-15  # relative error of a few operations
_ROUND: Final = 1e-13  # relative slack of comparisons


@kernel
def place(world: World, entities: Integers, rows: Rows) -> None:
    """Put spots where their entities are."""
    for i in range(entities.size):
        e = world.entity[entities[i]]
        rows[i].entity = entities[i]
        rows[i].x, rows[i].y, rows[i].z = chart(world.geographic, e.x, e.y)


@kernel
def walk(
    world: World, lane: int, lanes: int, entities: Integers, x: Floats, y: Floats, moved: Integers, marks: Integers
) -> tuple[int, int]:
    """Put a lane's entities where they are now. Notes moved sources (repeatedly) and watchers to look at; how many."""
    sources = watchers = 0
    for i in range(entities.size):
        if lanes > 1 and (entities[i] >> 6) % lanes != lane:
            continue
        e = world.entity[entities[i]]
        e.budget -= step(world.geographic, x[i] - e.x, y[i] - e.y) + e.budget * _EPS
        e.x, e.y = x[i], y[i]
        if e.budget > 0:
            continue
        budget = ENDLESS
        at_x, at_y, at_z = chart(world.geographic, e.x, e.y)
        w = e.watcher
        while w >= 0:
            if world.watchers[w].place >= 0:
                s = world.watcher_spot[world.watchers[w].place]
                slack = s.safe - sqrt(square(s, at_x, at_y, at_z))
                if slack > 0:
                    budget = min(budget, slack)
                elif not s.marked:
                    s.marked = 1
                    marks[watchers] = w
                    watchers += 1
            w = world.watchers[w].next
        if e.member >= 0:
            budget = -1.0
            moved[sources] = entities[i]
            sources += 1
        e.budget = budget
    return sources, watchers


@kernel
def settle(
    world: World,
    groups: Integers,
    first: Integers,
    members: Integers,
    begin: Integers,
    marks: Integers,
    was: Rows,
    found: Rows,
) -> int:
    """Look at every watcher that matters, group by group. Returns how many were found.

    The ranges from `first` are memberships of each group that have moved, come or gone; those from `begin` are marked
    watchers. `was` is room for where the memberships were.
    """
    n = 0
    for j in range(groups.size):
        tree = world.member_tree[groups[j]]
        for i in range(first[j], first[j + 1]):
            k = world.members[members[i]].place
            s = world.member_spot[k if k >= 0 else ~k]
            was[i] = s
            if k >= 0:
                e = world.entity[s.entity]
                s.x, s.y, s.z = chart(world.geographic, e.x, e.y)
                hold_in_boxes(tree, world.member_spot, world.member_box, k)
        start = n
        for i in range(begin[j], begin[j + 1]):
            found[n].watcher = world.watchers[marks[i]].place
            n += 1
        for i in range(first[j], first[j + 1]):
            k = world.members[members[i]].place
            n = _tell(world, groups[j], members[i], was[i], world.member_spot[k if k >= 0 else ~k], found, n)
        for i in range(start, n):
            f, k = found[i], found[i].watcher
            s = world.watcher_spot[k]
            f.watcher, f.entity, f.old = s.item, s.entity, _source(world, s)
            f.slack = look(world, groups[j], k)
            f.new = _source(world, s)
            s.marked = 0
    return n


@kernel
def _source(world: World, s: Row) -> int:
    return int(world.members[s.bound].entity) if s.bound >= 0 else -1


@kernel
def _tell(world: World, group: int, member: int, was: Row, now: Row, found: Rows, n: int) -> int:
    """Mark the watchers to which it matters that a membership has gone from one place to another."""
    way = sqrt(square(was, now.x, now.y, now.z)) * (1 + _ROUND)
    root = world.watcher_box[world.watcher_tree[group].box]
    if way * FAN <= max(root.high_x - root.low_x, root.high_y - root.low_y):
        return _stab(world, group, member, now, way, now, found, n)
    n = _stab(world, group, member, was, 0.0, now, found, n)
    return _stab(world, group, member, now, 0.0, now, found, n)


@kernel
def _stab(world: World, group: int, member: int, at: Row, extra: float, now: Row, found: Rows, n: int) -> int:
    """Mark those that reach to `extra` from `at` and are bound to this membership, or reach `now` where it is now."""
    tree = world.watcher_tree[group]
    depth, i = 0, 0
    while tree.live:
        b = world.watcher_box[tree.box + FIRST[depth] + i]
        if (
            (depth == tree.depth and i << SHIFT >= tree.used)
            or at.x < b.low_x - extra
            or at.x > b.high_x + extra
            or at.y < b.low_y - extra
            or at.y > b.high_y + extra
            or at.z < b.low_z - extra
            or at.z > b.high_z + extra
        ):
            depth, i = after(depth, i)
        elif depth < tree.depth:
            depth, i = depth + 1, i << SHIFT
            continue
        else:
            for k in range(leaf_start(tree, i), leaf_end(tree, i)):
                s = world.watcher_spot[k]
                c = square(s, now.x, now.y, now.z)
                if s.bound == member or (s.far >= 0 and c <= s.reach * s.reach and _meet(s, sqrt(c))):
                    if s.marked or s.item < 0:
                        continue
                    if stands(world, s):
                        keep(world, group, k, chord_to(world, s.bound, s.x, s.y, s.z))
                    else:
                        s.marked = 1
                        found[n].watcher = k
                        n += 1
            depth, i = after(depth, i)
        if depth == 0:
            break
    return n


@kernel
def _meet(s: Row, chord: float) -> bool:
    """Note that another source is now so far from a watcher's anchor. Returns whether that can matter."""
    if s.rule == _REMOTEOF and s.bound >= 0:
        if chord < s.near and s.safe > 0:
            return False
        if chord > s.radius:
            s.far = min(s.far, chord)
        else:
            s.near = max(s.near, chord)
    else:
        s.far = -1.0 if s.rule == _NEAREST and s.bound < 0 else min(s.far, chord)
    return True


@kernel
def conclude(world: World, found: Rows, rows: Integers) -> int:
    """Count what `settle` changed. Notes the rows whose binding changed, or has yet to be chosen; how many."""
    n = 0
    for i in range(found.size):
        f = found[i]
        undecided = f.slack == DOUBTFUL or f.slack == OPEN
        if not undecided:
            e = world.entity[f.entity]
            e.budget = min(e.budget, f.slack)
        if undecided or f.new != f.old:
            rows[n] = i
            n += 1
        if f.new != f.old:
            if f.old >= 0:
                world.bindings[f.old] -= 1
            if f.new >= 0:
                world.bindings[f.new] += 1
    return n


@kernel
def fasten(world: World, w: int, bound: int) -> None:
    """Bind a watcher that has none to a membership, or leave it without."""
    e = world.entity[world.watchers[w].entity]
    x, y, z = chart(world.geographic, e.x, e.y)
    e.budget = min(e.budget, bind(world, world.watchers[w].tree, world.watchers[w].place, bound, x, y, z))
    if bound >= 0:
        world.bindings[world.members[bound].entity] += 1


@kernel
def choose_any(world: World, watchers: Integers) -> int:
    """Bind watchers one after another by ANYOF. Stops at the first that is in doubt; returns how many were bound."""
    for i in range(watchers.size):
        w = world.watchers[watchers[i]]
        x, y, z = chart(world.geographic, world.entity[w.entity].x, world.entity[w.entity].y)
        bound, doubt = choose(world, w.tree, w.place, x, y, z)
        if doubt:
            return i
        fasten(world, watchers[i], bound)
    return watchers.size
