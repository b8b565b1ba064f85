"""Search one segment for the candidates of a batch of events.

A search mostly waits for memory. So events go through it in blocks, in one simple loop after another; each loop
prefetches many addresses that do not depend on each other.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from roamcast.compiled import kernel
from roamcast.match.kernels.cells import NO_CELL, cell_number, clamp_longitude, hash_key, pack_cell, subcell
from roamcast.match.kernels.intrinsics import Scalar, count_ones, i64, prefetch, u8, u32, u64
from roamcast.match.kernels.postings import LAST_TERM, SegmentArrays, bit_number, mix_term, signature_bit

__all__ = ["BLOCK", "MAX_LISTED", "SearchBatch", "SearchScratch", "list_postings", "search"]

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint32]

BLOCK: Final = 256  # events
MAX_LISTED: Final = 4096
"""Postings of one event that `list_postings` lists at most."""
_HITS: Final = 4096
_AHEAD: Final = 12  # events
_HALF: Final = u64(32)
_SIXTEEN: Final = u64(16)
_LOWER: Final = u64(0x0000FFFF0000FFFF)
_LOWER_HALF: Final = u64(0xFFFFFFFF)
_SIGNS: Final = u64(0x8000000080000000)
_FEW: Final = 32  # terms that are compared one by one; an event with more is a block of its own


class SearchBatch(NamedTuple):
    """Events to search for, in this order; event e has the terms number[code[first[e]:first[e + 1]]].

    The number -1 stands for terms that no subscription of the segment has.
    """

    order: Numbers
    x: Floats
    y: Floats
    first: Integers
    code: Numbers
    number: Numbers


class SearchScratch(NamedTuple):
    """Working memory for one block. Allocated once for a batch and a segment, and passed from call to call."""

    event: Numbers
    term_first: Integers  # by event of the block, into `term`
    signature: Words
    term: Numbers
    slot: Numbers  # by term: the event of the block that has it
    mixed: Keys  # by term
    last_cell: Integers  # by level: the x and y of the last cell, its first word and its number of words
    subcell: Words  # by event and level: where in its cell the event is
    tag: Integers  # by run: index into `subcell`, and in the upper half index into `term`
    run: Integers  # by run: its bit, later its first posting
    end: Integers  # by run
    hit: Numbers  # by hit: twice the index into `term`, plus one if the box must be tested
    predicate: Integers  # by hit
    stamp: Numbers  # by term of the segment: which event with many terms was the last to have it, see `_next_block`

    @classmethod
    def of(cls, segment: SegmentArrays, longest: int) -> Self:
        """Allocate for events with at most `longest` terms."""
        terms = BLOCK * (min(longest, _FEW) + 1) + longest + 1
        runs = terms * len(segment.scale)
        last_cell = np.full((len(segment.scale), 4), NO_CELL, np.int64)
        return cls(
            np.empty(BLOCK, np.int32), np.empty(BLOCK + 1, np.int64), np.empty(BLOCK, np.uint32),
            np.empty(terms, np.int32), np.empty(terms, np.int32), np.empty(terms, np.uint64), last_cell,
            np.empty(BLOCK * len(segment.scale), np.uint32), np.empty(runs, np.int64),
            np.empty(runs, np.int64), np.empty(runs, np.int64),
            np.empty(_HITS, np.int32), np.empty(_HITS, np.int64), np.zeros(len(segment.text_first), np.int32),
        )  # fmt: skip


@kernel
def search(
    segment: SegmentArrays,
    dead: Bytes,
    batch: SearchBatch,
    begin: int,
    scratch: SearchScratch,
    out_event: Numbers,
    out_value: Integers,
) -> tuple[int, int, int]:
    """Find the candidates of the events order[begin:] until all are done or the output is full.

    Writes events and, beside them, twice the handle, plus one for a residual row. `dead` has a bit for each row, or is
    empty. Returns where to continue, the number of candidates written and the number of postings scanned. If events are
    left and nothing was written, the output is too small.
    """
    written, scanned = 0, 0
    while begin < len(batch.order):
        next_begin, events = _next_block(batch, begin, segment.has_termless[0], scratch)
        runs = _find_runs(segment, batch, events, scratch)
        scanned += _locate_runs(segment, runs, scratch)
        total, q, p = written, i64(0), i64(0)
        while q < runs:
            q, p, hits = _collect_hits(segment, q, p, runs, scratch)
            hits = _filter_hits(segment, dead, batch, hits, next_begin, scratch)
            if hits > len(out_event) - total:
                return begin, written, scanned - _remaining_postings(q, p, runs, scratch)
            for k in range(hits):
                row = i64(segment.predicate[scratch.predicate[k]])
                out_event[total] = scratch.event[scratch.slot[scratch.hit[k] >> 1]]
                out_value[total] = 2 * segment.handle[row >> 1] + (row & 1)
                total += 1
        begin, written = next_begin, total
    return begin, written, scanned


@kernel
def list_postings(
    segment: SegmentArrays,
    batch: SearchBatch,
    begin: int,
    scratch: SearchScratch,
    left: Integers,
    step: Integers,
    out_event: Numbers,
    out_handle: Integers,
    out_count: Integers,
) -> tuple[int, int]:
    """List the postings that `search` scans, dead rows included, until all events are done or the output is full.

    Of an event with more than MAX_LISTED postings, some are listed; each counts for several, as `out_count` says.
    `left` and `step` are working memory for a block. Returns where to continue and the number of postings listed. The
    output must have room for a block.
    """
    written = 0
    while begin < len(batch.order):
        next_begin, events = _next_block(batch, begin, segment.has_termless[0], scratch)
        if events * MAX_LISTED > len(out_event) - written:
            return begin, written
        runs = _find_runs(segment, batch, events, scratch)
        _locate_runs(segment, runs, scratch)
        left[:] = 0
        for q in range(runs):
            left[scratch.slot[scratch.tag[q] >> 32]] += scratch.end[q] - scratch.run[q]
        for slot in range(events):
            step[slot] = (left[slot] + MAX_LISTED - 1) // MAX_LISTED
        for q in range(runs):
            slot = scratch.slot[scratch.tag[q] >> 32]
            for p in range(scratch.run[q], scratch.end[q]):
                if left[slot] % step[slot] == 0:
                    row = i64(segment.predicate[i64(segment.posting[p, 1] >> _HALF)]) >> 1
                    out_event[written], out_handle[written] = scratch.event[slot], segment.handle[row]
                    out_count[written] = step[slot]
                    written += 1
                left[slot] -= 1
        begin = next_begin
    return begin, written


@kernel
def _next_block(batch: SearchBatch, begin: int, has_termless: bool, scratch: SearchScratch) -> tuple[Scalar, Scalar]:
    """Make a block of the events from `begin` on; return where the next one begins and how many events this one has.

    Skips events that have no term of the segment, unless some rows have no terms. An event with many terms is a block
    of its own; its terms are stamped with where the next block begins.
    """
    events, terms, last = 0, 0, len(batch.order) - 1
    for i in range(begin, len(batch.order)):
        e = batch.order[i]
        # Events are not in memory in the order of the search.
        far = i64(batch.order[min(i + 2 * _AHEAD, last)])
        prefetch(batch.first, far)
        prefetch(batch.x, far)
        prefetch(batch.y, far)
        prefetch(batch.code, batch.first[batch.order[min(i + _AHEAD, last)]])
        many = batch.first[e + 1] - batch.first[e] > _FEW
        if events == BLOCK or (many and events > 0):
            return i, events
        if batch.x[e] != batch.x[e] or batch.y[e] != batch.y[e]:  # NaN
            continue
        scratch.event[events], scratch.term_first[events] = e, terms
        signature = u32(0)
        if has_termless:  # rows without terms are posted under the number 0
            scratch.term[terms], scratch.slot[terms], scratch.mixed[terms] = 0, events, mix_term(i64(0))
            terms += 1
        for at in range(batch.first[e], batch.first[e + 1]):
            t = i64(batch.number[batch.code[at]])
            mixed = mix_term(t)
            scratch.term[terms], scratch.slot[terms], scratch.mixed[terms] = t, events, mixed
            known = t > 0
            signature |= u32(signature_bit(mixed)) if known else u32(0)
            terms += 1 if known else 0
        if terms == scratch.term_first[events]:
            continue
        scratch.signature[events] = signature
        events += 1
        scratch.term_first[events] = terms
        if many:
            for at in range(terms):
                scratch.stamp[scratch.term[at]] = i + 1
            return i + 1, events
    return len(batch.order), events


@kernel
def _find_runs(segment: SegmentArrays, batch: SearchBatch, events: int, scratch: SearchScratch) -> int:
    """Find the bits of the runs of postings that may match events of the block; return how many runs there are."""
    bits, levels = 0, len(segment.scale)
    for slot in range(events):
        e = scratch.event[slot]
        for level in range(levels):
            scale = segment.scale[level]
            cell_x, cell_y, sub = 0, 0, u32(0)
            if scale != 0.0:
                scaled_x = (clamp_longitude(batch.x[e]) if segment.wraps[level] else batch.x[e]) * scale
                scaled_y = batch.y[e] * scale
                cell_x, cell_y = cell_number(scaled_x), cell_number(scaled_y)
                if cell_x == NO_CELL or cell_y == NO_CELL:
                    continue
                sub_x = 0 if segment.wraps[level] else subcell(scaled_x, cell_x)
                sub = u32(sub_x | subcell(scaled_y, cell_y) << 16)
            if cell_x != scratch.last_cell[level, 0] or cell_y != scratch.last_cell[level, 1]:
                scratch.last_cell[level, 0], scratch.last_cell[level, 1] = cell_x, cell_y
                scratch.last_cell[level, 2], scratch.last_cell[level, 3] = _cell_words(segment, level, cell_x, cell_y)
            first, words = scratch.last_cell[level, 2], scratch.last_cell[level, 3]
            if words == 0:
                continue
            index = slot * levels + level
            scratch.subcell[index] = sub
            for k in range(scratch.term_first[slot], scratch.term_first[slot + 1]):
                bit = (first << 6) + bit_number(scratch.mixed[k], words)
                scratch.run[bits], scratch.tag[bits] = bit, index | k << 32
                prefetch(segment.bitmap, bit >> 6)
                bits += 1
    runs = 0
    for q in range(bits):
        bit = scratch.run[q]
        scratch.run[runs], scratch.tag[runs] = bit, scratch.tag[q]
        runs += i64(segment.bitmap[bit >> 6] >> u64(bit & 63) & u64(1))
    return runs


@kernel
def _locate_runs(segment: SegmentArrays, runs: int, scratch: SearchScratch) -> int:
    """Find where the runs begin and end; return how many postings they have together."""
    for q in range(runs):
        prefetch(segment.rank, scratch.run[q] >> 6)
    for q in range(runs):
        bit = scratch.run[q]
        before = (u64(1) << u64(bit & 63)) - u64(1)
        scratch.run[q] = i64(segment.rank[bit >> 6]) + count_ones(segment.bitmap[bit >> 6] & before)
        prefetch(segment.start, scratch.run[q])
    postings = 0
    for q in range(runs):
        at = scratch.run[q]
        scratch.run[q], scratch.end[q] = i64(segment.start[at]), i64(segment.start[at + 1])
        prefetch(segment.posting, scratch.run[q])
        prefetch(segment.posting, scratch.end[q] - 1)
        postings += scratch.end[q] - scratch.run[q]
    return postings


@kernel
def _cell_words(segment: SegmentArrays, level: int, cell_x: int, cell_y: int) -> tuple[Scalar, Scalar]:
    """Return the first word of a cell and its number of words."""
    first = segment.table_first[level]
    mask = segment.table_first[level + 1] - first - 1
    key = pack_cell(cell_x, cell_y)
    slot = hash_key(key) & mask
    while True:
        number = segment.slot_cell[first + slot]
        if number < 0:
            return 0, 0
        if segment.slot_key[first + slot] == key:
            word = i64(segment.cell_first[number])
            return word, i64(segment.cell_first[number + 1]) - word
        slot = (slot + 1) & mask


@kernel
def _collect_hits(segment: SegmentArrays, q: int, p: int, runs: int, scratch: SearchScratch) -> tuple[int, int, int]:
    """Collect postings that match by extent and signature, from posting p of run q on, until the scratch is full.

    Returns the run and posting to continue with, and the number of hits.
    """
    hits = 0
    while q < runs:
        sub, under = u64(scratch.subcell[scratch.tag[q] & 0xFFFFFFFF]), scratch.tag[q] >> 32
        sub = (sub & _LOWER) | (sub >> _SIXTEEN) << _HALF
        lacking = u64(~scratch.signature[scratch.slot[under]])
        p = max(p, scratch.run[q])
        end = min(scratch.end[q], p + len(scratch.hit) - hits)
        while p < end:
            extent = segment.posting[p, 0]
            low, high = extent & _LOWER, extent >> _SIXTEEN & _LOWER
            # In each half the sign bit survives a subtraction unless it borrows.
            inside = ((sub | _SIGNS) - low) & ((high | _SIGNS) - sub) & _SIGNS
            if (inside ^ _SIGNS) | (segment.posting[p, 1] & lacking) == u64(0):
                # A point strictly between the borders' subcells is in the box. In the same subcell as a border the box
                # decides; so it does for the subcell 0 of an event in a posting that covers the whole width.
                on_border = _equal_halves(low, sub) | _equal_halves(high, sub)
                scratch.hit[hits] = under << 1 | (1 if on_border else 0)
                scratch.predicate[hits] = i64(segment.posting[p, 1] >> _HALF)
                hits += 1
            p += 1
        if p < scratch.end[q]:
            return q, p, hits
        q, p = q + 1, i64(0)
    return q, p, hits


@kernel
def _remaining_postings(q: int, p: int, runs: int, scratch: SearchScratch) -> Scalar:
    """Count the postings from posting p of run q on."""
    left = 0
    for run in range(q, runs):
        left += scratch.end[run] - max(scratch.run[run], p if run == q else 0)
    return left


@kernel
def _equal_halves(a: Scalar, b: Scalar) -> bool:
    """Return whether the lower or the upper halves are equal."""
    return bool((((a ^ b) & _LOWER_HALF) == u64(0)) | (((a ^ b) >> _HALF) == u64(0)))


@kernel
def _filter_hits(
    segment: SegmentArrays, dead: Bytes, batch: SearchBatch, hits: int, stamp: int, scratch: SearchScratch
) -> Scalar:
    """Keep the hits that match; return how many. `stamp` is where the next block begins."""
    for k in range(hits):
        prefetch(segment.predicate, scratch.predicate[k])
    kept = 0
    for k in range(hits):
        hit, at = scratch.hit[k], scratch.predicate[k]
        row = i64(segment.predicate[at]) >> 1
        if hit & 1:
            e = scratch.event[scratch.slot[hit >> 1]]
            if not _box_contains(segment, row, batch.x[e], batch.y[e]):
                continue
        if not _terms_match(segment, at + 1, hit >> 1, stamp, scratch):
            continue
        if len(dead) and dead[row >> 3] >> u8(row & 7) & u8(1):
            continue
        prefetch(segment.handle, row)
        scratch.hit[kept], scratch.predicate[kept] = hit, at
        kept += 1
    return kept


@kernel
def _box_contains(segment: SegmentArrays, row: int, px: float, py: float) -> bool:
    """The same test as `space.contains`."""
    west, east = segment.box[row, 0], segment.box[row, 2]
    after, before = px >= west, px <= east
    inside = (after | before) if west > east else (after & before)
    return bool(inside & (segment.box[row, 1] <= py) & (py <= segment.box[row, 3]))


@kernel
def _terms_match(segment: SegmentArrays, at: int, under: int, stamp: int, scratch: SearchScratch) -> bool:
    """Return whether the predicate with terms at `at` is posted under this term, and the event has its other terms.

    `under` is the index into the scratch of the term that led to the posting. If the event has many terms, they have
    this `stamp`.
    """
    slot = scratch.slot[under]
    begin, end = scratch.term_first[slot], scratch.term_first[slot + 1]
    word = i64(segment.predicate[at])
    if (word & (LAST_TERM - 1)) != scratch.term[under]:
        return False
    many = end - begin > _FEW + 1  # the 0 of rows without terms may be one of them
    while word < LAST_TERM:
        at += 1
        word = i64(segment.predicate[at])
        t = word & (LAST_TERM - 1)
        has_term = many and scratch.stamp[t] == stamp
        if not many:
            for k in range(begin, end):
                has_term |= scratch.term[k] == t
        if not has_term:
            return False
    return True
