"""Boxes to postings: a box lies in a few cells of its level, and is posted in each under one of its terms.

A posting is two words. The first says where in the cell the box begins and ends in x, and the same in y, in 16 bits
each; the second has the signature of the subscription's terms and the place of its wish, in 32 bits each. Of boxes that
cross the antimeridian, and in the world, the whole width of the cell is taken. The postings of a cell are ordered by a
hash of the term, one of eight times as many values as the cell has terms. A bit for each value says whether any posting
has it; counting bits says where these begin: at once a filter that fits the cache and the way to the postings. Terms
that share a value share the postings; which is meant says the wish, whose first term is the one it is posted under.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from roamcast.compiled import kernel
from roamcast.match.index.layout import LAST
from roamcast.match.kernels.cells import cell, pack, parts, round_world
from roamcast.match.kernels.scalars import Whole, i64, u32, u64

__all__ = [
    "bit_of",
    "choose_terms",
    "count_words",
    "fill",
    "mark_bits",
    "mixed",
    "post",
    "signature_bit",
    "write_wishes",
]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int32]
Truths = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint32]

_MULTIPLIER: Final = u64(0x9E3779B97F4A7C15)
_FULL: Final = 0xFFFF0000  # from the first part of a cell to the last


@kernel
def mixed(term: int) -> Whole:
    """A term's number, stirred: what its bits are taken from."""
    h = u64(term + 1) * _MULTIPLIER
    return (h ^ (h >> u64(29))) * _MULTIPLIER


@kernel
def bit_of(stirred: int, words: int) -> Whole:
    """Which of the bits of a cell with so many words stands for a term."""
    h = u64(stirred)
    word = ((h >> u64(32)) * u64(words)) >> u64(32)
    return i64(word << u64(6)) | i64((h >> u64(8)) & u64(63))


@kernel
def signature_bit(stirred: int) -> Whole:
    return u32(1) << u32((u64(stirred) >> u64(18)) & u64(31))


@kernel
def choose_terms(first: Integers, term: Words, weight: Integers, chosen: Numbers, signature: Words) -> None:
    """Bring the term of least weight to the front of each row, the first of equals; 0 is chosen where there is none."""
    for row in range(len(chosen)):
        chosen[row], signature[row] = 0, 0
        begin = first[row]
        best = begin
        for at in range(begin, first[row + 1]):
            signature[row] |= signature_bit(mixed(i64(term[at])))
            if weight[i64(term[at])] < weight[i64(term[best])]:
                best = at
        if begin < first[row + 1]:
            term[begin], term[best] = term[best], term[begin]
            chosen[row] = term[begin]


@kernel
def post(box: Floats, rows: Numbers, scale: float, wraps: bool, key: Keys, row_of: Numbers, extent: Words) -> int:
    """Write a posting for each cell of a level that a box of `rows` lies in; returns how many there are.

    Boxes hold something; where `wraps` they cross the antimeridian. If the arrays are empty it only counts.
    """
    count = 0
    for row in rows:
        if scale == 0.0:
            if len(key):
                key[count], row_of[count] = 0, row
                extent[count, 0] = extent[count, 1] = _FULL
            count += 1
            continue
        west, east = box[row, 0] * scale, box[row, 2] * scale
        south, north = box[row, 1] * scale, box[row, 3] * scale
        if not wraps:
            count = _post(west, east, south, north, False, row, count, key, row_of, extent)
            continue
        first, last = -180.0 * scale, 180.0 * scale
        west, east = round_world(box[row, 0]) * scale, round_world(box[row, 2]) * scale
        if cell(east) >= cell(west):
            count = _post(first, last, south, north, True, row, count, key, row_of, extent)
        else:
            count = _post(west, last, south, north, True, row, count, key, row_of, extent)
            count = _post(first, east, south, north, True, row, count, key, row_of, extent)
    return count


@kernel
def _post(
    west: float,
    east: float,
    south: float,
    north: float,
    full_x: bool,
    row: int,
    count: int,
    key: Keys,
    row_of: Numbers,
    extent: Words,
) -> Whole:
    x0, x1, y0, y1 = cell(west), cell(east), cell(south), cell(north)
    if not len(key):
        return count + (x1 - x0 + 1) * (y1 - y0 + 1)
    for x in range(x0, x1 + 1):
        low_x = parts(west, x) if x == x0 and not full_x else 0
        high_x = parts(east, x) if x == x1 and not full_x else 65535
        for y in range(y0, y1 + 1):
            low_y = parts(south, y) if y == y0 else 0
            high_y = parts(north, y) if y == y1 else 65535
            key[count], row_of[count] = pack(x, y), row
            extent[count, 0], extent[count, 1] = low_x | high_x << 16, low_y | high_y << 16
            count += 1
    return count


@kernel
def count_words(
    order: Numbers, cell_of: Keys, row_of: Numbers, chosen: Numbers, seen: Numbers, words: Integers
) -> None:
    """For each cell the words of 64 bits it needs. `order` goes by cell; `seen` has -1 for each term."""
    words[:] = 0
    for posting in order:
        c, t = i64(cell_of[posting]), chosen[row_of[posting]]
        if seen[t] != c:
            seen[t] = c
            words[c] += 1
    for c in range(len(words)):
        words[c] = (words[c] + 7) // 8


@kernel
def mark_bits(cell_of: Keys, row_of: Numbers, chosen: Numbers, cell_first: Integers, bit: Keys) -> None:
    """The bit of each posting, counted over all words."""
    for posting in range(len(bit)):
        c = i64(cell_of[posting])
        first = cell_first[c]
        bit[posting] = first * 64 + bit_of(mixed(chosen[row_of[posting]]), cell_first[c + 1] - first)


@kernel
def fill(
    order: Numbers,
    bit: Keys,
    row_of: Numbers,
    extent: Words,
    signature: Words,
    word: Keys,
    rank: Words,
    start: Words,
    posting: Keys,
    wish_size: Numbers,
    wish_at: Integers,
    rows: Numbers,
) -> tuple[Whole, Whole]:
    """Lay postings out in the order of their bits; returns how many bits are set, and how many rows have postings.

    `start[k]` is where the postings of the k-th set bit begin, `rank[w]` how many bits are set before word w. Wishes
    are laid out in the order in which their rows appear, so that what is near in the plane is near in memory: `rows`
    gets the rows in that order. `wish_at` has -1 for each row, and keeps it for those without postings.
    """
    bits, count, size = 0, 0, 0
    for at in range(len(order)):
        p = order[at]
        b = i64(bit[p])
        if at == 0 or bit[order[at - 1]] != bit[p]:
            word[b >> 6] |= u64(1) << u64(b & 63)
            start[bits] = at
            bits += 1
        row = row_of[p]
        if wish_at[row] < 0:
            rows[count], wish_at[row] = row, size
            count, size = count + 1, size + wish_size[row]
        posting[at, 0] = u64(extent[p, 0]) | u64(extent[p, 1]) << u64(32)
        posting[at, 1] = u64(signature[row]) | u64(wish_at[row]) << u64(32)
    start[bits] = len(order)
    before = 0
    for w in range(len(word)):
        rank[w] = before
        before += _ones(word[w])
    return bits, count


@kernel
def write_wishes(rows: Numbers, first: Integers, term: Words, residual: Truths, wish: Words) -> None:
    """The wishes of rows, one after another."""
    at = 0
    for number in range(len(rows)):
        row = rows[number]
        wish[at] = 2 * number + (1 if residual[row] else 0)
        wish[at + 1] = 0
        for k in range(first[row], first[row + 1]):
            wish[at + 1 + k - first[row]] = term[k]
        at += 1 + max(first[row + 1] - first[row], 1)
        wish[at - 1] |= u32(LAST)


@kernel
def _ones(word: int) -> Whole:
    w, count = u64(word), 0
    while w:
        w &= w - u64(1)
        count += 1
    return count
