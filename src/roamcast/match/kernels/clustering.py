"""Categories of subscriptions: their members, and how often terms occur in them."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.compiled import inline_kernel, kernel
from roamcast.match.kernels.cells import hash_key
from roamcast.match.kernels.intrinsics import Scalar, i64, u64

__all__ = [
    "BLOCK",
    "NONE",
    "CategorySlots",
    "MemberRows",
    "TermCounts",
    "block_of",
    "block_range",
    "category_of",
    "frequency_of",
    "has_room",
    "join",
    "join_categories",
    "leave",
    "list_members",
    "rehash_counts",
]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int32]

NONE: Final = -1
"""No row, category, worker, entry or block."""
BLOCK: Final = 16
"""Entries of a block of TermCounts."""
_HEAD: Final = -2  # instead of a category
_ONE: Final = 1 << 32  # the frequency 1 in an entry


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
    """Categories by number; one of size 0 is free. `total` is the sum of the frequencies of its `distinct` terms.

    By worker: how many categories it has (`held`), and how many members they have (`held_rows`).
    """

    size: Integers
    total: Integers
    distinct: Integers
    box: Floats
    head: Numbers
    tail: Numbers
    worker: Integers
    load: Floats
    held: Integers
    held_rows: Integers


class TermCounts(NamedTuple):
    """How often a term occurs in a category.

    An `entry` is a category in the low half, and the frequency of a term in it, above 0, in the high half. The entries
    of a term are in a list of blocks, of which only the first may have free places. A hash table with the key (`term`,
    `category`) says where the entry is (`at`); NONE if there is none any more. With _HEAD as category it says where the
    entries of the term end in its first block. `used` has the number of slots and of blocks that were ever used, and
    the first free block.
    """

    term: Keys
    category: Numbers
    at: Numbers
    entry: Integers
    next_block: Numbers
    used: Integers


@kernel
def _slot_of(counts: TermCounts, term: Scalar, category: int) -> Scalar:
    """Return the slot of a term in a category, or the empty slot where it would be."""
    mask = len(counts.at) - 1
    slot = hash_key(term + u64(category) * u64(0x9E3779B97F4A7C15)) & mask
    while counts.category[slot] != NONE and (counts.term[slot] != term or counts.category[slot] != category):
        slot = (slot + 1) & mask
    return slot


@kernel
def _claim_slot(counts: TermCounts, term: Scalar, category: int) -> Scalar:
    slot = _slot_of(counts, term, category)
    if counts.category[slot] == NONE:
        counts.term[slot], counts.category[slot] = term, category
        counts.used[0] += 1
    return slot


@inline_kernel
def category_of(entry: int) -> int:
    return entry & 0xFFFFFFFF


@inline_kernel
def frequency_of(entry: int) -> int:
    return entry >> 32


@inline_kernel
def has_room(counts: TermCounts, terms: int) -> bool:
    """Whether this many terms can be added to categories. The hash table stays half empty."""
    slots = counts.used[0] + 2 * terms + 1
    return bool(2 * slots <= len(counts.at) and counts.used[1] + terms <= len(counts.next_block))


@inline_kernel
def block_of(counts: TermCounts, term: Scalar) -> Scalar:
    """Return where the entries of a term end in its first block; NONE if it has none."""
    return i64(counts.at[_slot_of(counts, term, i64(_HEAD))])


@inline_kernel
def block_range(counts: TermCounts, end: int) -> tuple[int, int]:
    """Return where the entries of a block begin that end here, and where those of the next block end, or NONE."""
    block = (end - 1) // BLOCK
    following = i64(counts.next_block[block])
    return block * BLOCK, i64(NONE) if following == NONE else (following + 1) * BLOCK


@kernel
def _count_up(counts: TermCounts, slots: CategorySlots, term: Scalar, category: int) -> None:
    slots.total[category] += 1
    slot = _claim_slot(counts, term, category)
    if counts.at[slot] != NONE:
        counts.entry[counts.at[slot]] += _ONE
        return
    slots.distinct[category] += 1
    head = _claim_slot(counts, term, i64(_HEAD))
    end = i64(counts.at[head])
    if end == NONE or end % BLOCK == 0:
        block = counts.used[2]
        if block == NONE:
            block = counts.used[1]
            counts.used[1] += 1
        else:
            counts.used[2] = counts.next_block[block]
        counts.next_block[block] = NONE if end == NONE else (end - 1) // BLOCK
        end = block * BLOCK
    counts.entry[end] = _ONE + category
    counts.at[slot], counts.at[head] = end, end + 1


@kernel
def _count_down(counts: TermCounts, slots: CategorySlots, term: Scalar, category: int) -> None:
    slots.total[category] -= 1
    slot = _slot_of(counts, term, category)
    at = i64(counts.at[slot])
    counts.entry[at] -= _ONE
    if counts.entry[at] >= _ONE:
        return
    slots.distinct[category] -= 1
    counts.at[slot] = NONE
    head = _slot_of(counts, term, i64(_HEAD))
    last = i64(counts.at[head]) - 1
    if at != last:  # the last entry takes its place
        counts.entry[at] = counts.entry[last]
        counts.at[_slot_of(counts, term, category_of(counts.entry[last]))] = at
    counts.at[head] = last
    if last % BLOCK == 0:  # the block is empty
        block = last // BLOCK
        following = i64(counts.next_block[block])
        counts.at[head] = NONE if following == NONE else (following + 1) * BLOCK
        counts.next_block[block], counts.used[2] = counts.used[2], block


@inline_kernel
def join(rows: MemberRows, slots: CategorySlots, counts: TermCounts, row: int, category: int) -> None:
    """Add a row that has no category to one. `counts` must have room for its terms."""
    box, row_box = slots.box[category], rows.box[row]
    if slots.size[category] == 0:
        box[0], box[1], box[2], box[3] = row_box[0], row_box[1], row_box[2], row_box[3]
        slots.head[category] = row
        slots.held[slots.worker[category]] += 1
    else:
        box[0], box[1] = min(box[0], row_box[0]), min(box[1], row_box[1])
        box[2], box[3] = max(box[2], row_box[2]), max(box[3], row_box[3])
        rows.next[slots.tail[category]] = row
    slots.tail[category], rows.next[row], rows.category[row] = row, NONE, category
    slots.size[category] += 1
    slots.held_rows[slots.worker[category]] += 1
    for at in range(rows.first[row], rows.first[row + 1]):
        _count_up(counts, slots, rows.term[at], category)


@inline_kernel
def leave(rows: MemberRows, slots: CategorySlots, counts: TermCounts, row: int) -> None:
    """Remove a row from its category. The box of the category does not shrink."""
    category = i64(rows.category[row])
    for at in range(rows.first[row], rows.first[row + 1]):
        _count_down(counts, slots, rows.term[at], category)
    slots.size[category] -= 1
    slots.held_rows[slots.worker[category]] -= 1
    if slots.size[category] == 0:
        slots.held[slots.worker[category]] -= 1
    rows.category[row] = NONE


@kernel
def join_categories(
    rows: MemberRows, slots: CategorySlots, counts: TermCounts, joining: Integers, category: Integers
) -> None:
    """Add rows that have no category to the categories beside them. `counts` must have room for their terms."""
    for i in range(len(joining)):
        join(rows, slots, counts, joining[i], category[i])


@kernel
def list_members(rows: MemberRows, slots: CategorySlots, category: int, members: Integers) -> int:
    """Write the rows of a category in the order in which they joined; return how many there are."""
    row, count = i64(slots.head[category]), 0
    while row != NONE and slots.size[category] > 0:
        if rows.category[row] == category:
            members[count] = row
            count += 1
        row = i64(rows.next[row])
    return count


@kernel
def rehash_counts(old: TermCounts, new: TermCounts) -> None:
    """Copy the slots with entries to another, empty hash table. Blocks stay where they are."""
    for slot in range(len(old.at)):
        if old.category[slot] != NONE and old.at[slot] != NONE:
            at = _claim_slot(new, old.term[slot], i64(old.category[slot]))
            new.at[at] = old.at[slot]
