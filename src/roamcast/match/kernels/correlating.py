"""The correlation of categories: how often they are matched by the same events of a window.

The correlation of a category with all others is counted from the events that it has in the window, and only when it is
needed. So memory grows with the window and with the number of categories, not with its square.
"""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.compiled import inline_kernel, kernel
from roamcast.match.kernels.clustering import NONE, CategorySlots, MemberRows, TermCounts, leave
from roamcast.match.kernels.intrinsics import i64

__all__ = [
    "STALE",
    "CorrelationCache",
    "Points",
    "WindowLists",
    "absorb",
    "count_points",
    "leave_categories",
    "link_entry",
    "mark_lines",
    "mark_stale",
    "refresh",
    "replace_lines",
]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]

STALE: Final = -1.0


class WindowLists(NamedTuple):
    """The matches of the last events: a line of `row` for each event, padded with NONE.

    Entries, numbered line by line, are in a doubly linked list for each category. Entries of removed rows are in none.
    """

    row: Integers
    next: Numbers
    previous: Numbers
    head: Numbers


class CorrelationCache(NamedTuple):
    """By category: MergeJudgePara (`quotient`; STALE if it must be computed again), and the category that it correlates
    most with (`partner`) of those on its worker that fit together with it, and how much (`best`).

    `listed` are the categories that may correlate with others; `place` is where a category is in it, or NONE. `state`
    has their number, and the capacity for which partners are valid.
    """

    quotient: Floats
    best: Numbers
    partner: Numbers
    listed: Numbers
    place: Numbers
    state: Integers


class Points(NamedTuple):
    """Scratch memory: points by category, all 0 between uses, and the categories that have some."""

    points: Numbers
    touched: Numbers


@inline_kernel
def mark_stale(cache: CorrelationCache, category: int) -> None:
    """Compute the correlation of a category again before its next use."""
    cache.quotient[category] = STALE
    if cache.place[category] == NONE:
        cache.listed[cache.state[0]], cache.place[category] = category, cache.state[0]
        cache.state[0] += 1


@kernel
def _drop(cache: CorrelationCache, category: int) -> None:
    """Take a category out of `listed`."""
    cache.state[0] -= 1
    last, place = cache.listed[cache.state[0]], cache.place[category]
    cache.listed[place], cache.place[last] = last, place
    cache.place[category] = NONE


@inline_kernel
def mark_lines(window: WindowLists, cache: CorrelationCache, rows: MemberRows, category: int) -> None:
    """Mark a category and all that it has events in common with."""
    entry, matches = i64(window.head[category]), window.row.shape[1]
    while entry != NONE:
        for row in window.row[entry // matches]:
            if row != NONE and rows.category[row] != NONE:
                mark_stale(cache, i64(rows.category[row]))
        entry = i64(window.next[entry])


@inline_kernel
def link_entry(window: WindowLists, entry: int, category: int) -> None:
    following = window.head[category]
    window.head[category], window.next[entry], window.previous[entry] = entry, following, NONE
    if following != NONE:
        window.previous[following] = entry


@kernel
def _unlink_entry(window: WindowLists, entry: int, category: int) -> None:
    before, after = window.previous[entry], window.next[entry]
    if before == NONE:
        window.head[category] = after
    else:
        window.next[before] = after
    if after != NONE:
        window.previous[after] = before


@kernel
def replace_lines(window: WindowLists, cache: CorrelationCache, rows: MemberRows, first: int, lines: Integers) -> None:
    """Replace the lines of old events by those of new ones, from line `first` on and around."""
    events, matches = window.row.shape
    for number in range(len(lines)):
        line = (first + number) % events
        for column in range(matches):
            row = window.row[line, column]
            if row != NONE and rows.category[row] != NONE:
                mark_stale(cache, i64(rows.category[row]))
                _unlink_entry(window, line * matches + column, i64(rows.category[row]))
        for column in range(matches):
            row = lines[number, column]
            window.row[line, column] = row
            if row != NONE and rows.category[row] != NONE:
                mark_stale(cache, i64(rows.category[row]))
                link_entry(window, line * matches + column, i64(rows.category[row]))


@kernel
def leave_categories(
    rows: MemberRows,
    slots: CategorySlots,
    counts: TermCounts,
    window: WindowLists,
    cache: CorrelationCache,
    leaving: Integers,
) -> None:
    """Remove rows from their categories and from the correlation."""
    matches = window.row.shape[1]
    for row in leaving:
        category = i64(rows.category[row])
        mark_lines(window, cache, rows, category)
        entry = i64(window.head[category])
        while entry != NONE:
            following = i64(window.next[entry])
            if window.row[entry // matches, entry % matches] == row:
                _unlink_entry(window, entry, category)
            entry = following
        leave(rows, slots, counts, row)
    cache.state[1] = NONE  # categories are smaller now: others may fit


@inline_kernel
def count_points(window: WindowLists, rows: MemberRows, scratch: Points, category: int, only: int) -> int:
    """Count the correlation of a category, or of `only` one of its rows, with each other category.

    Returns how many categories are touched. The caller must set their points to 0 again.
    """
    entry, matches, count = i64(window.head[category]), window.row.shape[1], 0
    while entry != NONE:
        line = entry // matches
        if only == NONE or window.row[line, entry % matches] == only:
            for row in window.row[line]:
                other = i64(NONE) if row == NONE else i64(rows.category[row])
                if other != NONE and other != category:
                    if scratch.points[other] == 0:
                        scratch.touched[count] = other
                        count += 1
                    scratch.points[other] += 1
        entry = i64(window.next[entry])
    return count


@inline_kernel
def refresh(
    window: WindowLists,
    cache: CorrelationCache,
    rows: MemberRows,
    slots: CategorySlots,
    scratch: Points,
    category: int,
) -> bool:
    """Compute the correlation of a category again; return whether it has any. If not, it is not `listed` any more."""
    count = count_points(window, rows, scratch, category, i64(NONE))
    own, others, best, partner = 0, 0, 0, i64(NONE)
    for touched in scratch.touched[:count]:
        other, points = i64(touched), i64(scratch.points[touched])
        scratch.points[other] = 0
        if slots.worker[other] != slots.worker[category]:
            others += points
            continue
        own += points
        fits = slots.size[other] + slots.size[category] <= cache.state[1]
        if fits and (points > best or (points == best and other < partner)):
            best, partner = points, other
    if count == 0:
        _drop(cache, category)
        return False
    cache.quotient[category] = own / others if others else inf
    cache.best[category], cache.partner[category] = best, partner
    return True


@inline_kernel
def absorb(
    window: WindowLists,
    cache: CorrelationCache,
    rows: MemberRows,
    slots: CategorySlots,
    scratch: Points,
    source: int,
    target: int,
) -> None:
    """Update the partners of other categories after `source` was merged with `target`, on the same worker.

    Like `mark_lines`, but categories with other partners are not computed again.
    """
    count = count_points(window, rows, scratch, target, i64(NONE))
    for touched in scratch.touched[:count]:
        other, points = i64(touched), i64(scratch.points[touched])
        scratch.points[other] = 0
        if slots.worker[other] != slots.worker[target] or cache.quotient[other] == STALE:
            continue
        partner, best = i64(cache.partner[other]), i64(cache.best[other])
        fits = slots.size[other] + slots.size[target] <= cache.state[1]
        if fits and (points > best or (points == best and target < partner)):
            cache.best[other], cache.partner[other] = points, target
        elif partner == source or (partner == target and not fits):
            mark_stale(cache, other)
    mark_stale(cache, source)
    mark_stale(cache, target)
