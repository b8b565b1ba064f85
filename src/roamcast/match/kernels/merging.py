"""Adding subscriptions to categories, and merging categories when there are too many."""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.compiled import kernel
from roamcast.match.kernels.clustering import (
    NONE,
    has_room,
    join,
    leave,
    list_members,
)
from roamcast.match.kernels.correlating import (
    STALE,
    absorb,
    count_points,
    link_entry,
    mark_lines,
    mark_stale,
    refresh,
)
from roamcast.match.kernels.intrinsics import Scalar, i64
from roamcast.match.kernels.similarity import ClusterState, MergeSettings, most_similar, nearest
from roamcast.match.kernels.sorting import sort_numbers

__all__ = ["MIN_CAPACITY", "Progress", "add_rows"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

MIN_CAPACITY: Final = 8


class Progress(NamedTuple):
    """What `add_rows` has done so far.

    `total`: the categories, the rows, the category founded last, the one most similar to it (NONE if none is similar),
    and a number that no free category is below. `effort`: merges, rows that changed their category, and rows that
    changed their worker. `needed`: the terms and rows for which there was no room. `moved[:moved_count[0]]`: the rows
    that changed their worker; `targets` is scratch memory of the same length.
    """

    total: Integers
    effort: Integers
    needed: Integers
    moved: Integers
    moved_count: Integers
    targets: Integers


@kernel
def _capacity(state: ClusterState, settings: MergeSettings, rows: int) -> float:
    return max(float(MIN_CAPACITY), settings.max_relative_size * rows / (len(state.slots.size) - 1))


@kernel
def _add(state: ClusterState, settings: MergeSettings, row: int, progress: Progress) -> None:
    """Add a row to the most similar category, or found a new one for it."""
    slots, total = state.slots, progress.total
    total[1] += 1
    capacity = _capacity(state, settings, total[1])
    best, similarity = most_similar(state, settings, row, capacity)
    if best == NONE and settings.new_threshold <= 0:
        best = nearest(state, row, capacity)
    if best == NONE or similarity < settings.new_threshold:
        founded = total[4]
        while slots.size[founded] > 0:
            founded += 1
        # The worker of the most similar category, or the one with the fewest subscriptions.
        slots.worker[founded] = slots.held_rows.argmin() if best == NONE else slots.worker[best]
        slots.load[founded] = 0.0
        total[0] += 1
        total[2], total[3], total[4] = founded, best, founded
        best = founded
    join(state.rows, slots, state.counts, row, best)


@kernel
def _refresh(state: ClusterState, category: int) -> bool:
    return refresh(state.window, state.cache, state.rows, state.slots, state.scratch, category)


@kernel
def _choose(state: ClusterState, settings: MergeSettings, capacity: int) -> tuple[int, int]:
    """Choose two categories to merge, or one to distribute and NONE; twice NONE if correlation decides nothing.

    Of equal MergeJudgePara take the pair that correlates most, then the lowest numbers.
    """
    cache, slots = state.cache, state.slots
    if cache.state[1] != capacity:
        cache.state[1] = capacity
        for i in range(cache.state[0]):
            cache.quotient[cache.listed[i]] = STALE
    one, greatest, best = i64(NONE), -1.0, i64(0)
    last, least = i64(NONE), inf
    i = 0
    while i < cache.state[0]:
        category = i64(cache.listed[i])
        if cache.quotient[category] == STALE and not _refresh(state, category):
            continue  # another category is in its place now
        i += 1
        quotient = cache.quotient[category]
        if (quotient < least or (quotient == least and category < last)) and slots.held[slots.worker[category]] > 1:
            last, least = category, quotient
        if quotient < greatest or cache.partner[category] == NONE:
            continue
        # Categories grow while rows are added: a partner may not fit any more.
        if slots.size[category] + slots.size[cache.partner[category]] > capacity:
            _refresh(state, category)
            if cache.partner[category] == NONE:
                continue
        points = i64(cache.best[category])
        if quotient > greatest or points > best or (points == best and category < one):
            one, greatest, best = category, quotient, points
    if one != NONE and (greatest >= settings.merge or not settings.between):
        return one, i64(cache.partner[one])
    if settings.between and least < settings.merge:
        return last, i64(NONE)
    return i64(NONE), i64(NONE)


@kernel
def _merge_pair(state: ClusterState, one: int, other: int, progress: Progress) -> bool:
    """Merge the smaller category with the larger one. Returns False if there is no room."""
    rows, slots, window = state.rows, state.slots, state.window
    is_less = slots.size[one] < slots.size[other] or (slots.size[one] == slots.size[other] and one < other)
    source, target = (one, other) if is_less else (other, one)
    moves, size = slots.worker[source] != slots.worker[target], slots.size[source]
    if not _reserve(state, progress, slots.total[source], size):
        return False
    if moves:
        mark_lines(window, state.cache, rows, source)
    entry, correlates = i64(window.head[source]), window.head[source] != NONE
    window.head[source] = NONE
    while entry != NONE:
        following = i64(window.next[entry])
        link_entry(window, entry, target)
        entry = following
    row = i64(slots.head[source])
    while row != NONE:
        following = i64(rows.next[row])
        if rows.category[row] == source:
            leave(rows, slots, state.counts, row)
            join(rows, slots, state.counts, row, target)
            if moves:
                progress.moved[progress.moved_count[0]] = row
                progress.moved_count[0] += 1
        row = following
    if correlates and moves:
        mark_stale(state.cache, target)
    elif correlates:
        absorb(window, state.cache, rows, slots, state.scratch, source, target)
    slots.load[target] += slots.load[source]
    _free(state, progress, source, size, size if moves else 0)
    return True


@kernel
def _reserve(state: ClusterState, progress: Progress, terms: int, rows: int) -> bool:
    """Whether there is room to move this many terms and rows; if not, say so in `progress`."""
    if has_room(state.counts, terms) and progress.moved_count[0] + rows <= len(progress.moved):
        return True
    progress.needed[0], progress.needed[1] = terms, rows
    return False


@kernel
def _free(state: ClusterState, progress: Progress, category: int, relabelled: int, moved: int) -> None:
    """A category has lost all members: it is the only free one, because there was one too many."""
    state.slots.worker[category], state.slots.load[category] = NONE, 0.0
    progress.total[0] -= 1
    progress.total[4] = category
    progress.effort[0] += 1
    progress.effort[1] += relabelled
    progress.effort[2] += moved


@kernel
def _pick(state: ClusterState, count: int, category: int, worker: int, side: int, capacity: int) -> Scalar:
    """Return the category with room that has the most points; of equals the smallest, then the lowest.

    `side` 0: of `worker`; 1: of other workers; 2: of any. NONE if there is none.
    """
    slots, points = state.slots, state.scratch.points
    chosen, most = i64(NONE), i64(0)
    for i in range(count + len(slots.size)):
        if chosen != NONE and (i == count or (i > count and slots.size[chosen] == 1)):
            break  # those that follow have no points, or higher numbers
        each = i64(state.scratch.touched[i]) if i < count else i64(i - count)
        if slots.size[each] == 0 or slots.size[each] + 1 > capacity or each == category:
            continue
        if (side == 0 and slots.worker[each] != worker) or (side == 1 and slots.worker[each] == worker):
            continue
        if chosen == NONE or points[each] > most:
            chosen, most = each, i64(points[each])
        elif points[each] == most and (
            slots.size[each] < slots.size[chosen] or (slots.size[each] == slots.size[chosen] and each < chosen)
        ):
            chosen = each
    return chosen


@kernel
def _choose_target(state: ClusterState, category: int, row: int, capacity: int) -> Scalar:
    """Choose the category that a row moves to: on the side, its worker or others, with which it correlates more."""
    slots, scratch = state.slots, state.scratch
    worker = slots.worker[category]
    count = count_points(state.window, state.rows, scratch, category, row)
    own, others = 0, 0
    for touched in scratch.touched[:count]:
        if slots.worker[touched] == worker:
            own += scratch.points[touched]
        else:
            others += scratch.points[touched]
    chosen = i64(NONE)
    for side in range(0 if own >= others else 1, 3):
        if chosen == NONE:
            chosen = _pick(state, count, category, worker, side, capacity)
    for touched in scratch.touched[:count]:
        scratch.points[touched] = 0
    return chosen


@kernel
def _distribute(state: ClusterState, category: int, capacity: int, progress: Progress) -> bool:
    """Move each member of a category to another category. Returns False if there is no room."""
    rows, slots, window = state.rows, state.slots, state.window
    worker, size = slots.worker[category], slots.size[category]
    if not _reserve(state, progress, slots.total[category], size):
        return False
    members, targets = progress.moved[progress.moved_count[0] :], progress.targets
    list_members(rows, slots, category, members)
    sort_numbers(members, size)  # the order in which they joined is not stored
    for i in range(size):
        targets[i] = _choose_target(state, category, members[i], capacity)
        slots.size[targets[i]] += 1  # until all are chosen
    for target in targets[:size]:
        slots.size[target] -= 1
    mark_lines(window, state.cache, rows, category)
    for row in members[:size]:
        leave(rows, slots, state.counts, row)
    moved = 0
    for i in range(size):
        row = members[i]
        join(rows, slots, state.counts, row, targets[i])
        if slots.worker[targets[i]] != worker:
            members[moved] = row
            moved += 1
    entry, matches = i64(window.head[category]), window.row.shape[1]
    window.head[category] = NONE
    while entry != NONE:
        following, target = i64(window.next[entry]), i64(rows.category[window.row[entry // matches, entry % matches]])
        mark_stale(state.cache, target)
        link_entry(window, entry, target)
        entry = following
    progress.moved_count[0] += moved
    _free(state, progress, category, size, moved)
    return True


@kernel
def _merge(state: ClusterState, settings: MergeSettings, progress: Progress) -> bool:
    """Merge or distribute until there is one category less. Returns False if there is no room."""
    capacity = _capacity(state, settings, progress.total[1])
    one, other = i64(NONE), i64(NONE)
    if settings.correlation:
        one, other = _choose(state, settings, i64(capacity))
    if one != NONE and other == NONE:
        return _distribute(state, one, i64(capacity), progress)
    if one == NONE:
        one, other = progress.total[2], progress.total[3]
        if other == NONE:
            other = nearest(state, i64(state.slots.head[one]), capacity)
    return _merge_pair(state, one, other, progress)


@kernel
def add_rows(state: ClusterState, settings: MergeSettings, row: int, end: int, progress: Progress) -> int:
    """Add rows to categories, and merge categories whenever there are too many.

    Returns the first row that is not added. If `progress.needed` is not 0, that many terms or rows did not fit:
    the caller must make room and call again.
    """
    progress.needed[:] = 0
    while True:
        if progress.total[0] == len(state.slots.size):
            if not _merge(state, settings, progress):
                return row
        elif row == end or not _reserve(state, progress, state.rows.first[row + 1] - state.rows.first[row], i64(0)):
            return row
        else:
            _add(state, settings, row, progress)
            row += 1
