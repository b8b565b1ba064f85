"""Categories of subscriptions: similarity, joining, leaving and merging."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.compiled import inline_kernel, kernel
from roamcast.match.kernels.cells import hash_key
from roamcast.match.kernels.intrinsics import Scalar, i64, u64

__all__ = [
    "MIN_CAPACITY",
    "NONE",
    "CategorySlots",
    "MemberRows",
    "SimilaritySettings",
    "TermCounts",
    "add_rows",
    "join_categories",
    "leave_categories",
    "list_members",
    "merge_categories",
    "rehash_counts",
]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int32]

NONE: Final = -1
"""No row, or no category."""
MIN_CAPACITY: Final = 8


class MemberRows(NamedTuple):
    """Subscriptions: row i has the terms term[first[i]:first[i + 1]].

    `category` is NONE for removed rows. `next` links the members of a category; the list may still contain rows that
    have left it.
    """

    box: Floats
    first: Integers
    term: Keys
    category: Numbers
    next: Numbers


class CategorySlots(NamedTuple):
    """Categories by number; one of size 0 is free. `total` is the sum of the frequencies of its `distinct` terms."""

    size: Integers
    total: Integers
    distinct: Integers
    box: Floats
    head: Numbers
    tail: Numbers


class TermCounts(NamedTuple):
    """A hash table of how often a term occurs in a category. `used[0]` slots are taken, some of them with count 0."""

    term: Keys
    category: Numbers
    frequency: Numbers
    used: Integers


class SimilaritySettings(NamedTuple):
    """How similarity is computed; see `categories.CategoryParameters`."""

    alpha: float
    new_threshold: float
    frequencies: bool
    least_area: float
    max_relative_size: float


@kernel
def _slot_of(counts: TermCounts, term: Scalar, category: int) -> Scalar:
    """Return the slot of a term in a category, or the empty slot where it would be."""
    mask = len(counts.frequency) - 1
    slot = hash_key(term + u64(category) * u64(0x9E3779B97F4A7C15)) & mask
    while counts.category[slot] != NONE and (counts.term[slot] != term or counts.category[slot] != category):
        slot = (slot + 1) & mask
    return slot


@kernel
def _add_count(counts: TermCounts, slots: CategorySlots, term: Scalar, category: int, change: int) -> None:
    slot = _slot_of(counts, term, category)
    if counts.category[slot] == NONE:
        counts.term[slot], counts.category[slot], counts.frequency[slot] = term, category, 0
        counts.used[0] += 1
    before = counts.frequency[slot]
    counts.frequency[slot] = before + change
    slots.total[category] += change
    slots.distinct[category] += (before + change > 0) - (before > 0)


@inline_kernel
def _join(rows: MemberRows, slots: CategorySlots, counts: TermCounts, row: int, category: int) -> None:
    box, row_box = slots.box[category], rows.box[row]
    if slots.size[category] == 0:
        box[0], box[1], box[2], box[3] = row_box[0], row_box[1], row_box[2], row_box[3]
        slots.head[category] = row
    else:
        box[0], box[1] = min(box[0], row_box[0]), min(box[1], row_box[1])
        box[2], box[3] = max(box[2], row_box[2]), max(box[3], row_box[3])
        rows.next[slots.tail[category]] = row
    slots.tail[category], rows.next[row], rows.category[row] = row, NONE, category
    slots.size[category] += 1
    for at in range(rows.first[row], rows.first[row + 1]):
        _add_count(counts, slots, rows.term[at], category, i64(1))


@inline_kernel
def _leave(rows: MemberRows, slots: CategorySlots, counts: TermCounts, row: int) -> None:
    category = i64(rows.category[row])
    for at in range(rows.first[row], rows.first[row + 1]):
        _add_count(counts, slots, rows.term[at], category, i64(-1))
    slots.size[category] -= 1
    rows.category[row] = NONE


@kernel
def join_categories(
    rows: MemberRows, slots: CategorySlots, counts: TermCounts, joining: Integers, category: Integers
) -> None:
    """Add rows that have no category to the categories beside them. `counts` must have room for their terms."""
    for i in range(len(joining)):
        _join(rows, slots, counts, joining[i], category[i])


@kernel
def leave_categories(rows: MemberRows, slots: CategorySlots, counts: TermCounts, leaving: Integers) -> None:
    """Remove rows from their categories. The boxes of the categories do not shrink."""
    for row in leaving:
        _leave(rows, slots, counts, row)


@kernel
def _area(min_x: float, min_y: float, max_x: float, max_y: float) -> float:
    return (max_x - min_x) * (max_y - min_y)


@kernel
def _key_similarity(
    rows: MemberRows, slots: CategorySlots, counts: TermCounts, row: int, category: int, frequencies: bool
) -> float:
    """KeySim of the paper."""
    shared = 0
    for at in range(rows.first[row], rows.first[row + 1]):
        count = int(counts.frequency[_slot_of(counts, rows.term[at], category)])
        shared += count if frequencies else int(count > 0)
    if shared == 0:
        return 0.0
    whole = slots.total[category] if frequencies else slots.distinct[category]
    return shared / int(whole)


@kernel
def add_rows(
    rows: MemberRows,
    slots: CategorySlots,
    counts: TermCounts,
    settings: SimilaritySettings,
    row: int,
    end: int,
    status: Integers,
    similarity: Floats,
) -> int:
    """Add rows to their most similar categories until one founds a new category; return the row after that one.

    `status` holds the number of categories and of rows; then, if a category was founded, its number and that of the
    most similar category with free capacity (of equals the one whose box would grow least, then the lowest; NONE if all
    are full), with `similarity[0]`. At least one slot must be free.
    """
    status[2] = NONE
    while row < end:
        best, best_sim, best_growth = i64(NONE), -1.0, 0.0
        capacity = max(MIN_CAPACITY, settings.max_relative_size * (status[1] + 1) / (len(slots.size) - 1))
        row_box, free = rows.box[row], i64(NONE)
        for category in range(len(slots.size)):
            if slots.size[category] == 0:
                free = category if free == NONE else free
                continue
            if slots.size[category] + 1 > capacity:
                continue
            box = slots.box[category]
            area = _area(box[0], box[1], box[2], box[3])
            union = _area(
                min(box[0], row_box[0]), min(box[1], row_box[1]), max(box[2], row_box[2]), max(box[3], row_box[3])
            )
            growth = union - area
            keys = _key_similarity(rows, slots, counts, row, category, settings.frequencies)
            sim = settings.alpha * keys / ((1 - settings.alpha) * (1 + growth / max(area, settings.least_area)))
            if sim > best_sim or (sim == best_sim and growth < best_growth):
                best, best_sim, best_growth = category, sim, growth
        status[1] += 1
        founds = best == NONE or best_sim < settings.new_threshold
        _join(rows, slots, counts, row, free if founds else best)
        row += 1
        if founds:
            status[0] += 1
            status[2], status[3], similarity[0] = free, best, max(best_sim, 0.0)
            return row
    return row


@kernel
def merge_categories(rows: MemberRows, slots: CategorySlots, counts: TermCounts, source: int, target: int) -> None:
    """Move all members of one category to another. `counts` must have room for their terms."""
    row = i64(slots.head[source])
    while row != NONE:
        next_row = i64(rows.next[row])
        if rows.category[row] == source:
            _leave(rows, slots, counts, row)
            _join(rows, slots, counts, row, target)
        row = next_row


@kernel
def list_members(rows: MemberRows, slots: CategorySlots, category: int, members: Numbers) -> int:
    """Write the rows of a category in the order in which they joined; return how many there are."""
    row, count = slots.head[category], 0
    while row != NONE and slots.size[category] > 0:
        if rows.category[row] == category:
            members[count] = row
            count += 1
        row = rows.next[row]
    return count


@kernel
def rehash_counts(old: TermCounts, new: TermCounts) -> None:
    """Copy the counts above 0 to another, empty table."""
    for slot in range(len(old.frequency)):
        if old.category[slot] != NONE and old.frequency[slot] > 0:
            at = _slot_of(new, old.term[slot], i64(old.category[slot]))
            new.term[at], new.category[at], new.frequency[at] = old.term[slot], old.category[slot], old.frequency[slot]
            new.used[0] += 1
