"""Categories of subscriptions: how similar, who joins, who leaves, who is absorbed."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.compiled import kernel
from roamcast.match.kernels.cells import hash_cell
from roamcast.match.kernels.scalars import Whole, u64

__all__ = ["NOBODY", "Counts", "Members", "Reading", "Slots", "absorb", "admit", "join", "leave", "members", "regrow"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int32]

NOBODY: Final = -1
LEAST_ROOM: Final = 8


class Members(NamedTuple):
    """Subscriptions by row: row i has the terms term[first[i]:first[i + 1]].

    `category` is NOBODY for those that are gone; `next` leads from member to member of a category, past such as have
    left it.
    """

    box: Floats
    first: Integers
    term: Keys
    category: Numbers
    next: Numbers


class Slots(NamedTuple):
    """Categories by number; one of size 0 is free. `total` is the sum of the frequencies of its `distinct` terms."""

    size: Integers
    total: Integers
    distinct: Integers
    box: Floats
    head: Numbers
    tail: Numbers


class Counts(NamedTuple):
    """A hash table: how often a term occurs in a category. `used[0]` of its slots are taken, some by zeros."""

    term: Keys
    category: Numbers
    often: Numbers
    used: Integers


class Reading(NamedTuple):
    """How similarity is understood; see `categories.Parameters`."""

    alpha: float
    new_threshold: float
    frequencies: bool
    least_area: float
    largest: float


@kernel
def _at(counts: Counts, term: Whole, category: int) -> Whole:
    """The slot of a term in a category, or the empty one where it would be."""
    mask = len(counts.often) - 1
    slot = hash_cell(u64(term) + u64(category) * u64(0x9E3779B97F4A7C15)) & mask
    while counts.category[slot] != NOBODY and (counts.term[slot] != term or counts.category[slot] != category):
        slot = (slot + 1) & mask
    return slot


@kernel
def _add(counts: Counts, slots: Slots, term: Whole, category: int, count: int) -> None:
    slot = _at(counts, term, category)
    if counts.category[slot] == NOBODY:
        counts.term[slot], counts.category[slot], counts.often[slot] = term, category, 0
        counts.used[0] += 1
    before = counts.often[slot]
    counts.often[slot] = before + count
    slots.total[category] += count
    slots.distinct[category] += (before + count > 0) - (before > 0)


@kernel
def join(members: Members, slots: Slots, counts: Counts, row: int, category: int) -> None:
    """A row that is in no category becomes a member. `counts` must have room for its terms."""
    box, mine = slots.box[category], members.box[row]
    if slots.size[category] == 0:
        box[0], box[1], box[2], box[3] = mine[0], mine[1], mine[2], mine[3]
        slots.head[category] = row
    else:
        box[0], box[1] = min(box[0], mine[0]), min(box[1], mine[1])
        box[2], box[3] = max(box[2], mine[2]), max(box[3], mine[3])
        members.next[slots.tail[category]] = row
    slots.tail[category], members.next[row], members.category[row] = row, NOBODY, category
    slots.size[category] += 1
    for at in range(members.first[row], members.first[row + 1]):
        _add(counts, slots, members.term[at], category, 1)


@kernel
def leave(members: Members, slots: Slots, counts: Counts, row: int) -> None:
    """A member is gone. The box of its category stays as it is."""
    category = members.category[row]
    for at in range(members.first[row], members.first[row + 1]):
        _add(counts, slots, members.term[at], category, -1)
    slots.size[category] -= 1
    members.category[row] = NOBODY


@kernel
def _area(min_x: float, min_y: float, max_x: float, max_y: float) -> float:
    return (max_x - min_x) * (max_y - min_y)


@kernel
def _keys_in(members: Members, slots: Slots, counts: Counts, row: int, category: int, frequencies: bool) -> float:
    """KeySim."""
    found = 0
    for at in range(members.first[row], members.first[row + 1]):
        often = int(counts.often[_at(counts, members.term[at], category)])
        found += often if frequencies else int(often > 0)
    if found == 0:
        return 0.0
    whole = slots.total[category] if frequencies else slots.distinct[category]
    return found / int(whole)


@kernel
def admit(
    members: Members, slots: Slots, counts: Counts, reading: Reading, row: int, end: int, told: Integers, sim: Floats
) -> int:
    """Rows join the category that is most similar, until one founds its own; returns the row after that.

    `told` has the number of live categories and of live rows; and, if a category was founded, which, and the one it is
    most similar to that has room: of several the one that would grow least, then the lowest; NOBODY if none has room.
    `sim[0]` says how similar. At least one slot is free.
    """
    told[2] = NOBODY
    while row < end:
        best, best_sim, best_growth = NOBODY, -1.0, 0.0
        room = max(LEAST_ROOM, reading.largest * (told[1] + 1) / (len(slots.size) - 1))
        mine, free = members.box[row], NOBODY
        for category in range(len(slots.size)):
            if slots.size[category] == 0:
                free = category if free == NOBODY else free
                continue
            if slots.size[category] + 1 > room:
                continue
            box = slots.box[category]
            area = _area(box[0], box[1], box[2], box[3])
            joined = _area(min(box[0], mine[0]), min(box[1], mine[1]), max(box[2], mine[2]), max(box[3], mine[3]))
            growth = joined - area
            keys = _keys_in(members, slots, counts, row, category, reading.frequencies)
            s = reading.alpha * keys / ((1 - reading.alpha) * (1 + growth / max(area, reading.least_area)))
            if s > best_sim or (s == best_sim and growth < best_growth):
                best, best_sim, best_growth = category, s, growth
        told[1] += 1
        if best != NOBODY and best_sim >= reading.new_threshold:
            join(members, slots, counts, row, best)
            row += 1
        else:
            join(members, slots, counts, row, free)
            told[0] += 1
            told[2], told[3], sim[0] = free, best, max(best_sim, 0.0)
            return row + 1
    return row


@kernel
def absorb(members: Members, slots: Slots, counts: Counts, source: int, target: int) -> None:
    """All members of one category become members of another. `counts` must have room for their terms."""
    row = slots.head[source]
    while row != NOBODY:
        after = members.next[row]
        if members.category[row] == source:
            leave(members, slots, counts, row)
            join(members, slots, counts, row, target)
        row = after


@kernel
def members(rows: Members, slots: Slots, category: int, found: Numbers) -> int:
    """The rows of a category, in the order in which they joined; returns how many."""
    row, count = slots.head[category], 0
    while row != NOBODY and slots.size[category] > 0:
        if rows.category[row] == category:
            found[count] = row
            count += 1
        row = rows.next[row]
    return count


@kernel
def regrow(old: Counts, new: Counts) -> None:
    """What is counted goes to another table, which is empty."""
    for slot in range(len(old.often)):
        if old.category[slot] != NOBODY and old.often[slot] > 0:
            at = _at(new, old.term[slot], old.category[slot])
            new.term[at], new.category[at], new.often[at] = old.term[slot], old.category[slot], old.often[slot]
            new.used[0] += 1
