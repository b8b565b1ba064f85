"""A batch of moves, or of new subscriptions: accept moves, move entities, find the few subscriptions to check, check
them, report changes.
"""

from __future__ import annotations

from math import sqrt
from typing import Final

import numpy as np
import numpy.typing as npt

from roamcast.bind.nearest.kernels import inlined
from roamcast.bind.nearest.kernels.layout import (
    FANOUT,
    FANOUT_BITS,
    FIRST_BOX,
    UNLIMITED,
    Floats,
    Int32s,
    Int64s,
    Record,
    Rows,
    Rule,
    SearchArrays,
    long,
)
from roamcast.bind.nearest.kernels.safe_regions import (
    UNCERTAIN,
    UNDECIDED,
    bind,
    check,
    chord_to,
    is_still_safe,
    update_reach,
)
from roamcast.bind.nearest.kernels.search import (
    choose_within,
    grow_boxes,
    leaf_end,
    leaf_start,
    next_node,
    squared,
    step_chord,
    to_chart,
)
from roamcast.compiled import inline_kernel, kernel
from roamcast.model import BEFORE_ALL

__all__ = [
    "LAST_MOVE",
    "accept_moves",
    "bind_anyof",
    "bind_to",
    "chart_positions",
    "check_bindings",
    "collect_changes",
    "move_entities",
]

LAST_MOVE: Final = np.dtype(
    [
        ("time", "i8"),  # of the last position; BEFORE_ALL without one
        ("move", "i8"),  # the number of the last accepted move
    ]
)

_NEAREST: Final = int(Rule.NEAREST)
_REMOTEOF: Final = int(Rule.REMOTEOF)
_EPS: Final = 1e-15  # relative error of a few operations
_ROUND: Final = 1e-13  # relative slack of comparisons


@kernel
def accept_moves(
    last_moves: Rows, first_move: int, handles: Int32s, times: Int64s, rows: Int32s, is_first: npt.NDArray[np.bool_]
) -> int:
    """Find the last valid move of each entity in a batch. Moves older than the entity's position are ignored.

    Writes the row of each such move, and whether the entity had no position before. Accepted moves are numbered from
    `first_move`. Returns the number of entities that move.
    """
    n = 0
    for i in range(handles.size):
        last = last_moves[handles[i]]
        if times[i] < last.time:
            continue
        if last.move < first_move:
            is_first[n] = last.time == BEFORE_ALL
            last.move = first_move + n
            n += 1
        rows[last.move - first_move] = i
        last.time = times[i]
    return n


@kernel
def chart_positions(geographic: bool, entity: Rows, entities: Int32s, x: Floats, y: Floats, z: Floats) -> None:
    """Write the chart positions of entities."""
    for i in range(entities.size):
        e = entity[entities[i]]
        x[i], y[i], z[i] = to_chart(geographic, e.x, e.y)


@kernel
def move_entities(
    arrays: SearchArrays,
    lane: int,
    lanes: int,
    entities: Int32s,
    x: Floats,
    y: Floats,
    moved: Int32s,
    marks: Int32s,
) -> tuple[int, int]:
    """Set the positions of a lane's entities.

    Writes the sources that moved (perhaps repeatedly) to `moved` and the subscriptions to check to `marks`. Returns how
    many of each there are.
    """
    sources = subscriptions = 0
    for i in range(entities.size):
        if lanes > 1 and (entities[i] >> 6) % lanes != lane:
            continue
        e = arrays.entity[entities[i]]
        e.budget -= step_chord(arrays.geographic, x[i] - e.x, y[i] - e.y) + e.budget * _EPS
        e.x, e.y = x[i], y[i]
        if e.budget > 0:
            continue
        budget = UNLIMITED
        at_x, at_y, at_z = to_chart(arrays.geographic, e.x, e.y)
        subscription = e.subscription
        while subscription >= 0:
            item = arrays.subscriptions[subscription]
            if item.entry >= 0:
                s = arrays.subscription_entry[item.entry]
                slack = s.safe - sqrt(squared(s.x - at_x, s.y - at_y, s.z - at_z))
                if slack > 0:
                    budget = min(budget, slack)
                elif not s.marked:
                    s.marked = 1
                    marks[subscriptions] = subscription
                    subscriptions += 1
            subscription = item.next
        if e.member >= 0:
            budget = -1.0
            moved[sources] = entities[i]
            sources += 1
        e.budget = budget
    return sources, subscriptions


@kernel
def check_bindings(
    arrays: SearchArrays,
    groups: Int32s,
    first_member: Int64s,
    members: Int32s,
    first_mark: Int64s,
    marks: Int32s,
    previous: Rows,
    checked: Rows,
) -> int:
    """Check every subscription that a batch may affect, group by group. Returns how many rows of `checked` it wrote.

    `first_member` delimits the memberships of each group that moved, were added or removed; `first_mark` the marked
    subscriptions. `previous` is scratch space for the previous entries of the memberships.
    """
    n = long(0)
    for j in range(groups.size):
        group = long(groups[j])
        tree = arrays.member_tree[group]
        for i in range(first_member[j], first_member[j + 1]):
            k = arrays.members[members[i]].entry
            m = arrays.member_entry[k if k >= 0 else ~k]
            previous[i] = m
            if k >= 0:
                e = arrays.entity[m.entity]
                m.x, m.y, m.z = to_chart(arrays.geographic, e.x, e.y)
                grow_boxes(tree, arrays.member_box, long(k), m.x, m.y, m.z, m.reach)
        start = n
        for i in range(first_mark[j], first_mark[j + 1]):
            checked[n].entry = arrays.subscriptions[marks[i]].entry
            n += 1
        for i in range(first_member[j], first_member[j + 1]):
            k = arrays.members[members[i]].entry
            current = arrays.member_entry[k if k >= 0 else ~k]
            n = _mark_affected(arrays, group, long(members[i]), previous[i], current, checked, n)
        for i in range(start, n):
            c, entry = checked[i], long(checked[i].entry)
            s = arrays.subscription_entry[entry]
            c.subscription, c.entity, c.old = s.item, s.entity, _source_of(arrays, s)
            c.slack = check(arrays, group, entry)
            c.new = _source_of(arrays, s)
            s.marked = 0
    return n


@inlined
def _source_of(arrays: SearchArrays, s: Record) -> int:
    return long(arrays.members[s.bound].entity) if s.bound >= 0 else long(-1)


@inline_kernel
def _mark_affected(
    arrays: SearchArrays, group: int, member: int, previous: Record, current: Record, checked: Rows, n: int
) -> int:
    """Mark the subscriptions that may be affected by the move of a membership. Returns the new length of `checked`."""
    moved = sqrt(squared(previous.x - current.x, previous.y - current.y, previous.z - current.z)) * (1 + _ROUND)
    root = arrays.subscription_box[arrays.subscription_tree[group].box]
    # A long move is searched at both of its ends, a short one at once, with the length of the move as a margin.
    steps = 1 if moved * FANOUT <= max(root.high_x - root.low_x, root.high_y - root.low_y) else 2
    for step in range(steps):
        at, margin = current, moved
        if steps == 2:
            margin = 0.0
            if step == 0:
                at = previous
        n = _mark_near(arrays, group, member, at, margin, current, checked, n)
    return n


@inline_kernel
def _mark_near(
    arrays: SearchArrays, group: int, member: int, at: Record, margin: float, current: Record, checked: Rows, n: int
) -> int:
    """Mark subscriptions within reach (plus `margin`) of `at` that the membership affects, which is at `current`."""
    tree = arrays.subscription_tree[group]
    depth, i = 0, 0
    while tree.live:
        b = arrays.subscription_box[tree.box + FIRST_BOX[depth] + i]
        if (
            (depth == tree.depth and i << FANOUT_BITS >= tree.used)
            or at.x < b.low_x - margin
            or at.x > b.high_x + margin
            or at.y < b.low_y - margin
            or at.y > b.high_y + margin
            or at.z < b.low_z - margin
            or at.z > b.high_z + margin
        ):
            depth, i = next_node(depth, i)
        elif depth < tree.depth:
            depth, i = depth + 1, i << FANOUT_BITS
            continue
        else:
            for k in range(leaf_start(tree, i), leaf_end(tree, i)):
                s = arrays.subscription_entry[k]
                c = squared(s.x - current.x, s.y - current.y, s.z - current.z)
                if s.bound == member or (s.far >= 0 and c <= s.reach * s.reach and _note_source(s, sqrt(c))):
                    if s.marked or s.item < 0:
                        continue
                    if is_still_safe(arrays, s):
                        update_reach(arrays, group, k, chord_to(arrays, long(s.bound), s.x, s.y, s.z))
                    else:
                        s.marked = 1
                        checked[n].entry = k
                        n += 1
            depth, i = next_node(depth, i)
        if depth == 0:
            break
    return n


@inline_kernel
def _note_source(s: Record, chord: float) -> bool:
    """Take account of another source at this chord from a subscription's anchor. Returns whether it can matter."""
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
def collect_changes(arrays: SearchArrays, checked: Rows, rows: Int32s) -> int:
    """Count the bindings that changed, and update budgets.

    Writes the rows of `checked` whose binding changed or is still to be chosen. Returns how many.
    """
    n = 0
    for i in range(checked.size):
        c = checked[i]
        is_open = c.slack == UNCERTAIN or c.slack == UNDECIDED
        if not is_open:
            e = arrays.entity[c.entity]
            e.budget = min(e.budget, c.slack)
        if is_open or c.new != c.old:
            rows[n] = i
            n += 1
        if c.new != c.old:
            if c.old >= 0:
                arrays.bindings[c.old] -= 1
            if c.new >= 0:
                arrays.bindings[c.new] += 1
    return n


@kernel
def bind_to(arrays: SearchArrays, subscription: int, bound: int) -> None:
    """Bind a subscription without a binding to a membership, or leave it without."""
    item = arrays.subscriptions[subscription]
    e = arrays.entity[item.entity]
    x, y, z = to_chart(arrays.geographic, e.x, e.y)
    e.budget = min(e.budget, bind(arrays, long(item.group), long(item.entry), bound, x, y, z))
    if bound >= 0:
        arrays.bindings[arrays.members[bound].entity] += 1


@kernel
def bind_anyof(arrays: SearchArrays, subscriptions: Int32s) -> int:
    """Bind subscriptions with ANYOF in turn. Stops at the first uncertain one; returns how many were bound."""
    for i in range(subscriptions.size):
        item = arrays.subscriptions[subscriptions[i]]
        e = arrays.entity[item.entity]
        x, y, z = to_chart(arrays.geographic, e.x, e.y)
        bound, uncertain = choose_within(arrays, long(item.group), long(item.entry), x, y, z)
        if uncertain:
            return i
        bind_to(arrays, long(subscriptions[i]), bound)
    return int(subscriptions.size)
