"""The arrays of a segment, and the kernels that build its postings.

A box lies in a few cells of its level and has a posting in each, under one of its terms. A posting is two words. The
first holds the extent of the box within the cell: begin and end in x, then in y, 16 bits each. Boxes that cross the
antimeridian, and boxes of the world level, cover the whole width. The second holds the signature of the subscription's
terms and the index of its predicate, 32 bits each.

The postings of a cell are ordered by a hash of their term, which has eight times as many values as the cell has terms.
A bitmap says which values occur; the number of set bits before a value says where its postings begin. So the bitmap is
both a filter that fits into the cache and the way to the postings. Terms with the same hash value share a run of
postings; the predicate tells them apart.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.compiled import inline_kernel, kernel
from roamcast.match.kernels.cells import cell_number, clamp_longitude, pack_cell, subcell
from roamcast.match.kernels.intrinsics import Scalar, count_ones, i64, u32, u64

__all__ = [
    "LAST_TERM",
    "SegmentArrays",
    "bit_number",
    "choose_terms",
    "count_words",
    "mix_term",
    "number_bits",
    "post_boxes",
    "signature_bit",
    "write_postings",
    "write_predicates",
]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int32]
Truths = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint32]

LAST_TERM: Final = 1 << 31
_MULTIPLIER: Final = u64(0x9E3779B97F4A7C15)
_WHOLE_CELL: Final = 0xFFFF0000  # from the first subcell to the last


class SegmentArrays(NamedTuple):
    """The content of a segment, in memory as in its file.

    Rows are subscriptions, in an order that suits the search; `handle` identifies them. Terms are numbered from 1. The
    *predicate* of a row is what the search needs in one place, in consecutive elements of `predicate`: twice the row
    number, plus one if the row is residual; then its terms, first the one it is posted under (0 if it has none), with
    LAST_TERM added to the last. The dictionary is `text` to `seed` (see `dictionary`), the grid is `scale` to
    `slot_cell` (see `grid`), the postings are `cell_first` to `posting`.
    """

    handle: Integers
    box: Floats  # by row: min_x, min_y, max_x, max_y
    predicate: Words
    has_termless: Truths  # one element: whether any row has no terms
    text: npt.NDArray[np.uint8]
    text_first: Words
    text_slots: Words
    seed: Keys
    scale: Floats  # by level
    wraps: Truths
    curve_scale: Floats  # one element: search events in the order of the Z-order curve at this scale
    table_first: Integers  # by level: where its hash table of cells begins; the size of each is a power of two
    slot_key: Keys
    slot_cell: Numbers  # the number of the cell, or -1
    cell_first: Words  # by cell: its first word of `bitmap`
    bitmap: Keys
    rank: Words  # by word: the number of bits set before it
    start: Words  # by set bit: its first posting
    posting: Keys


@inline_kernel
def mix_term(term: Scalar) -> Scalar:
    """Hash a term's number."""
    h = u64(term + 1) * _MULTIPLIER
    return (h ^ (h >> u64(29))) * _MULTIPLIER


@inline_kernel
def bit_number(mixed: Scalar, words: Scalar) -> Scalar:
    """Return the bit of a mixed term in the bitmap of a cell with `words` words."""
    word = ((mixed >> u64(32)) * u64(words)) >> u64(32)
    return i64(word << u64(6)) | i64((mixed >> u64(8)) & u64(63))


@inline_kernel
def signature_bit(mixed: Scalar) -> Scalar:
    return u32(1) << u32((mixed >> u64(18)) & u64(31))


@kernel
def choose_terms(first: Integers, term: Words, weight: Integers, chosen: Numbers, signature: Words) -> None:
    """Move the term with the least weight to the front of each row, the first of equals; choose 0 if there is none."""
    for row in range(len(chosen)):
        chosen[row], signature[row] = 0, 0
        begin = first[row]
        best = begin
        for at in range(begin, first[row + 1]):
            signature[row] |= signature_bit(mix_term(i64(term[at])))
            if weight[i64(term[at])] < weight[i64(term[best])]:
                best = at
        if begin < first[row + 1]:
            term[begin], term[best] = term[best], term[begin]
            chosen[row] = term[begin]


@kernel
def post_boxes(box: Floats, rows: Numbers, scale: float, wraps: bool, key: Keys, row_of: Numbers, extent: Words) -> int:
    """Write a posting for each cell of a level that a box of `rows` touches; return how many there are.

    Boxes are not empty; if `wraps` they cross the antimeridian. Only counts if the output arrays are empty.
    """
    count = i64(0)
    for row in rows:
        if scale == 0.0:
            if len(key):
                key[count], row_of[count] = 0, row
                extent[count, 0] = extent[count, 1] = _WHOLE_CELL
            count += 1
            continue
        # A box that crosses has two parts: from its west side to the antimeridian, and on from there to its east side.
        parts, west, east = 1, box[row, 0] * scale, box[row, 2] * scale
        if wraps:
            west, east = clamp_longitude(box[row, 0]) * scale, clamp_longitude(box[row, 2]) * scale
            if cell_number(east) >= cell_number(west):
                west, east = -180.0 * scale, 180.0 * scale
            else:
                parts = 2
        south, north = box[row, 1] * scale, box[row, 3] * scale
        for part in range(parts):
            from_x = -180.0 * scale if part == 1 else west
            to_x = 180.0 * scale if part + 1 < parts else east
            count = _post_box(from_x, to_x, south, north, wraps, row, count, key, row_of, extent)
    return int(count)


@kernel
def _post_box(
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
) -> Scalar:
    x0, x1, y0, y1 = cell_number(west), cell_number(east), cell_number(south), cell_number(north)
    if not len(key):
        return count + (x1 - x0 + 1) * (y1 - y0 + 1)
    for x in range(x0, x1 + 1):
        low_x = subcell(west, x) if x == x0 and not full_x else 0
        high_x = subcell(east, x) if x == x1 and not full_x else 65535
        for y in range(y0, y1 + 1):
            low_y = subcell(south, y) if y == y0 else 0
            high_y = subcell(north, y) if y == y1 else 65535
            key[count], row_of[count] = pack_cell(x, y), row
            extent[count, 0], extent[count, 1] = low_x | high_x << 16, low_y | high_y << 16
            count += 1
    return count


@kernel
def count_words(
    order: Numbers, cell_of: Keys, row_of: Numbers, chosen: Numbers, last_cell: Numbers, words: Integers
) -> None:
    """Count the bitmap words that each cell needs. `order` sorts postings by cell; `last_cell` is -1 for each term."""
    words[:] = 0
    for posting in order:
        c, t = i64(cell_of[posting]), chosen[row_of[posting]]
        if last_cell[t] != c:
            last_cell[t] = c
            words[c] += 1
    for c in range(len(words)):
        words[c] = (words[c] + 7) // 8


@kernel
def number_bits(cell_of: Keys, row_of: Numbers, chosen: Numbers, cell_first: Integers, bit: Keys) -> None:
    """Write the bit of each posting, counted over the bitmaps of all cells."""
    for posting in range(len(bit)):
        c = i64(cell_of[posting])
        first = cell_first[c]
        mixed = mix_term(i64(chosen[row_of[posting]]))
        bit[posting] = first * 64 + bit_number(mixed, cell_first[c + 1] - first)


@kernel
def write_postings(
    order: Numbers,
    bit: Keys,
    row_of: Numbers,
    extent: Words,
    signature: Words,
    bitmap: Keys,
    rank: Words,
    start: Words,
    posting: Keys,
    predicate_size: Numbers,
    predicate_at: Integers,
    rows: Numbers,
) -> tuple[Scalar, Scalar]:
    """Write postings in the order of their bits; return how many bits are set and how many rows have postings.

    Predicates are laid out in the order in which their rows appear here, so that what is near in the plane is near in
    memory; `rows` receives the rows in that order. `predicate_at` is -1 for each row, and stays so without postings.
    """
    bits, count, size = 0, 0, 0
    for at in range(len(order)):
        p = order[at]
        b = i64(bit[p])
        if at == 0 or bit[order[at - 1]] != bit[p]:
            bitmap[b >> 6] |= u64(1) << u64(b & 63)
            start[bits] = at
            bits += 1
        row = row_of[p]
        if predicate_at[row] < 0:
            rows[count], predicate_at[row] = row, size
            count, size = count + 1, size + predicate_size[row]
        posting[at, 0] = u64(extent[p, 0]) | u64(extent[p, 1]) << u64(32)
        posting[at, 1] = u64(signature[row]) | u64(predicate_at[row]) << u64(32)
    start[bits] = len(order)
    before = 0
    for w in range(len(bitmap)):
        rank[w] = before
        before += count_ones(bitmap[w])
    return bits, count


@kernel
def write_predicates(rows: Numbers, first: Integers, term: Words, residual: Truths, predicate: Words) -> None:
    """Write the predicates of rows, in their order."""
    at = 0
    for number in range(len(rows)):
        row = rows[number]
        predicate[at] = 2 * number + (1 if residual[row] else 0)
        predicate[at + 1] = 0
        for k in range(first[row], first[row + 1]):
            predicate[at + 1 + k - first[row]] = term[k]
        at += 1 + max(first[row + 1] - first[row], 1)
        predicate[at - 1] |= u32(LAST_TERM)
