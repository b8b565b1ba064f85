"""Events to matches within one segment.

Most of the time of a search goes into waiting for memory. So a portion of events goes through one simple loop after
another, each of which asks for many places at once without depending on what the last one held.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from roamcast.compiled import kernel
from roamcast.match.index.layout import LAST, Body
from roamcast.match.kernels.cells import NOWHERE, cell, hash_cell, pack, parts, round_world
from roamcast.match.kernels.memory import expect
from roamcast.match.kernels.postings import bit_of, mixed, signature_bit
from roamcast.match.kernels.scalars import Whole, i64, u8, u32, u64

__all__ = ["PORTION", "Batch", "Scratch", "count_matches", "gather_matches", "search"]

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint32]

PORTION: Final = 256  # events
_CANDIDATES: Final = 4096
_AHEAD: Final = 12  # events
_HALF: Final = u64(32)
_SIXTEEN: Final = u64(16)
_LOWER: Final = u64(0x0000FFFF0000FFFF)
_LOWER_HALF: Final = u64(0xFFFFFFFF)
_SIGNS: Final = u64(0x8000000080000000)
_FEW: Final = 32  # terms that are compared one by one; an event with more is a portion of its own


class Batch(NamedTuple):
    """Events to search for, in the order given; event e has the terms number[code[first[e]:first[e + 1]]].

    A number of -1 is a term of no subscription of the segment.
    """

    order: Numbers
    x: Floats
    y: Floats
    first: Integers
    code: Numbers
    number: Numbers


class Scratch(NamedTuple):
    """Room for a portion. Made once for a batch and a segment, and handed on from call to call."""

    event: Numbers
    term_first: Integers  # by event of the portion, into `term`
    signature: Words
    term: Numbers
    of_event: Numbers  # by place in `term`
    stirred: Keys
    at_cell: Integers  # by level: the last cell, its first word, and how many words it has
    part: Words  # by event and level: where in its cell the event is
    tag: Integers  # from here to `end` by run of postings: place in `part`, and above it that in `term`
    run: Integers
    end: Integers
    hit: Numbers  # by candidate: its place in `term` times two, plus one where the box must be looked at
    wish: Integers
    stamp: Numbers  # by term of the segment: the last event with many terms that has it

    @classmethod
    def of(cls, body: Body, longest: int) -> Self:
        """For events with at most `longest` terms."""
        terms = PORTION * (min(longest, _FEW) + 1) + longest + 1
        runs = terms * len(body.scale)
        at_cell = np.full((len(body.scale), 4), NOWHERE, np.int64)
        return cls(
            np.empty(PORTION, np.int32), np.empty(PORTION + 1, np.int64), np.empty(PORTION, np.uint32),
            np.empty(terms, np.int32), np.empty(terms, np.int32), np.empty(terms, np.uint64), at_cell,
            np.empty(PORTION * len(body.scale), np.uint32), np.empty(runs, np.int64),
            np.empty(runs, np.int64), np.empty(runs, np.int64),
            np.empty(_CANDIDATES, np.int32), np.empty(_CANDIDATES, np.int64), np.zeros(len(body.text_first), np.int32),
        )  # fmt: skip


@kernel
def search(
    body: Body, dead: Bytes, batch: Batch, begin: int, scratch: Scratch, out_event: Numbers, out_value: Integers
) -> tuple[int, int, int]:
    """Match the events order[begin:], until all are done or the output is full.

    Writes events and, beside them, handles times two, plus one for a residual row. `dead` has a bit for each row, or is
    empty. Returns where to go on, how many matches were written, and how many postings were looked at. Where nothing
    was written and there is more, the output must be larger.
    """
    written, looked = 0, 0
    while begin < len(batch.order):
        following, events = _take(batch, begin, body.termless[0], scratch)
        runs = _find_runs(body, batch, events, scratch)
        looked += _open_runs(body, runs, scratch)
        now, q, p = written, 0, i64(0)
        while q < runs:
            q, p, hits = _collect(body, q, p, runs, scratch)
            hits = _decide(body, dead, batch, hits, following, scratch)
            if hits > len(out_event) - now:
                return begin, written, looked - _left(q, p, runs, scratch)
            for k in range(hits):
                wish = i64(body.wish[scratch.wish[k]])
                out_event[now] = scratch.event[scratch.of_event[scratch.hit[k] >> 1]]
                out_value[now] = 2 * body.handle[wish >> 1] + (wish & 1)
                now += 1
        begin, written = following, now
    return begin, written, looked


@kernel
def _take(batch: Batch, begin: int, termless: bool, scratch: Scratch) -> tuple[Whole, Whole]:
    """Make a portion of the events from `begin` on; returns where the next begins and how many this one has.

    Events with no term of the segment are left out, unless it has rows that ask for none.
    """
    events, terms, last = 0, 0, len(batch.order) - 1
    for i in range(begin, len(batch.order)):
        e = batch.order[i]
        # Events lie in memory as they came, not as they are taken.
        far = i64(batch.order[min(i + 2 * _AHEAD, last)])
        expect(batch.first, far)
        expect(batch.x, far)
        expect(batch.y, far)
        expect(batch.code, batch.first[batch.order[min(i + _AHEAD, last)]])
        many = batch.first[e + 1] - batch.first[e] > _FEW
        if events == PORTION or (many and events > 0):
            return i, events
        if batch.x[e] != batch.x[e] or batch.y[e] != batch.y[e]:
            continue
        scratch.event[events], scratch.term_first[events] = e, terms
        signature = u32(0)
        if termless:  # rows without terms are posted under the number 0
            scratch.term[terms], scratch.of_event[terms], scratch.stirred[terms] = 0, events, mixed(0)
            terms += 1
        for at in range(batch.first[e], batch.first[e + 1]):
            t = i64(batch.number[batch.code[at]])
            stirred = mixed(t)
            scratch.term[terms], scratch.of_event[terms], scratch.stirred[terms] = t, events, stirred
            known = t > 0
            signature |= u32(signature_bit(stirred)) if known else u32(0)
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
def _find_runs(body: Body, batch: Batch, events: int, scratch: Scratch) -> int:
    """The bits of runs of postings that may concern the events of the portion; returns how many."""
    asked, levels = 0, len(body.scale)
    for slot in range(events):
        e = scratch.event[slot]
        for level in range(levels):
            scale = body.scale[level]
            cell_x, cell_y, part = 0, 0, u32(0)
            if scale != 0.0:
                scaled_x = (round_world(batch.x[e]) if body.wraps[level] else batch.x[e]) * scale
                scaled_y = batch.y[e] * scale
                cell_x, cell_y = cell(scaled_x), cell(scaled_y)
                if cell_x == NOWHERE or cell_y == NOWHERE:
                    continue
                part_x = 0 if body.wraps[level] else parts(scaled_x, cell_x)
                part = u32(part_x | parts(scaled_y, cell_y) << 16)
            if cell_x != scratch.at_cell[level, 0] or cell_y != scratch.at_cell[level, 1]:
                scratch.at_cell[level, 0], scratch.at_cell[level, 1] = cell_x, cell_y
                scratch.at_cell[level, 2], scratch.at_cell[level, 3] = _words(body, level, cell_x, cell_y)
            first, words = scratch.at_cell[level, 2], scratch.at_cell[level, 3]
            if words == 0:
                continue
            place = slot * levels + level
            scratch.part[place] = part
            for k in range(scratch.term_first[slot], scratch.term_first[slot + 1]):
                bit = (first << 6) + bit_of(scratch.stirred[k], words)
                scratch.run[asked], scratch.tag[asked] = bit, place | k << 32
                expect(body.word, bit >> 6)
                asked += 1
    runs = 0
    for q in range(asked):
        bit = scratch.run[q]
        scratch.run[runs], scratch.tag[runs] = bit, scratch.tag[q]
        runs += i64(body.word[bit >> 6] >> u64(bit & 63) & u64(1))
    return runs


@kernel
def _open_runs(body: Body, runs: int, scratch: Scratch) -> int:
    """Where the runs begin and end; returns how many postings they have in all."""
    for q in range(runs):
        expect(body.rank, scratch.run[q] >> 6)
    for q in range(runs):
        bit = scratch.run[q]
        before = (u64(1) << u64(bit & 63)) - u64(1)
        scratch.run[q] = i64(body.rank[bit >> 6]) + _ones(body.word[bit >> 6] & before)
        expect(body.start, scratch.run[q])
    postings = 0
    for q in range(runs):
        at = scratch.run[q]
        scratch.run[q], scratch.end[q] = i64(body.start[at]), i64(body.start[at + 1])
        expect(body.posting, scratch.run[q])
        expect(body.posting, scratch.end[q] - 1)
        postings += scratch.end[q] - scratch.run[q]
    return postings


@kernel
def _words(body: Body, level: int, cell_x: int, cell_y: int) -> tuple[Whole, Whole]:
    """The first word of a cell and how many it has."""
    first = body.table_first[level]
    mask = body.table_first[level + 1] - first - 1
    key = pack(cell_x, cell_y)
    slot = hash_cell(key) & mask
    while True:
        number = body.cell_at[first + slot]
        if number < 0:
            return 0, 0
        if body.cell_key[first + slot] == key:
            word = i64(body.cell_first[number])
            return word, i64(body.cell_first[number + 1]) - word
        slot = (slot + 1) & mask


@kernel
def _ones(word: int) -> Whole:
    w = u64(word)
    w = w - ((w >> u64(1)) & u64(0x5555555555555555))
    w = (w & u64(0x3333333333333333)) + ((w >> u64(2)) & u64(0x3333333333333333))
    w = (w + (w >> u64(4))) & u64(0x0F0F0F0F0F0F0F0F)
    return i64((w * u64(0x0101010101010101)) >> u64(56))


@kernel
def _collect(body: Body, q: int, p: int, runs: int, scratch: Scratch) -> tuple[int, int, int]:
    """Postings that fit by place in the cell and by signature, from posting p of run q on, until the room is full.

    Returns the run and posting to go on with, and how many candidates there are.
    """
    hits = 0
    while q < runs:
        part, under = u64(scratch.part[scratch.tag[q] & 0xFFFFFFFF]), scratch.tag[q] >> 32
        part = (part & _LOWER) | (part >> _SIXTEEN) << _HALF
        lacking = u64(~scratch.signature[scratch.of_event[under]])
        p = max(p, scratch.run[q])
        end = min(scratch.end[q], p + len(scratch.hit) - hits)
        while p < end:
            extent = body.posting[p, 0]
            low, high = extent & _LOWER, extent >> _SIXTEEN & _LOWER
            # In either half: the sign stays only where nothing is subtracted from less.
            inside = ((part | _SIGNS) - low) & ((high | _SIGNS) - part) & _SIGNS
            if (inside ^ _SIGNS) | (body.posting[p, 1] & lacking) == u64(0):
                # Strictly between the parts of its borders a point is in the box; on one of them the box decides, as
                # it does where the posting has the whole width and the event the part 0.
                on_border = _halves_alike(low, part) | _halves_alike(high, part)
                scratch.hit[hits] = under << 1 | (1 if on_border else 0)
                scratch.wish[hits] = i64(body.posting[p, 1] >> _HALF)
                hits += 1
            p += 1
        if p < scratch.end[q]:
            return q, p, hits
        q, p = q + 1, i64(0)
    return q, p, hits


@kernel
def _left(q: int, p: int, runs: int, scratch: Scratch) -> Whole:
    """How many postings there are from posting p of run q on."""
    left = 0
    for run in range(q, runs):
        left += scratch.end[run] - max(scratch.run[run], p if run == q else 0)
    return left


@kernel
def _halves_alike(a: Whole, b: Whole) -> bool:
    """Whether the lower or the upper halves are equal."""
    return bool((((a ^ b) & _LOWER_HALF) == u64(0)) | (((a ^ b) >> _HALF) == u64(0)))


@kernel
def _decide(body: Body, dead: Bytes, batch: Batch, hits: int, now: int, scratch: Scratch) -> Whole:
    """Keep the candidates that match; returns how many."""
    for k in range(hits):
        expect(body.wish, scratch.wish[k])
    kept = 0
    for k in range(hits):
        hit, at = scratch.hit[k], scratch.wish[k]
        row = i64(body.wish[at]) >> 1
        if hit & 1:
            e = scratch.event[scratch.of_event[hit >> 1]]
            if not _holds(body, row, batch.x[e], batch.y[e]):
                continue
        if not _wants(body, at + 1, hit >> 1, now, scratch):
            continue
        if len(dead) and dead[row >> 3] >> u8(row & 7) & u8(1):
            continue
        expect(body.handle, row)
        scratch.hit[kept], scratch.wish[kept] = hit, at
        kept += 1
    return kept


@kernel
def _holds(body: Body, row: int, px: float, py: float) -> bool:
    """As `space.contains`."""
    west, east = body.box[row, 0], body.box[row, 2]
    after, before = px >= west, px <= east
    inside = (after | before) if west > east else (after & before)
    return bool(inside & (body.box[row, 1] <= py) & (py <= body.box[row, 3]))


@kernel
def _wants(body: Body, at: int, under: int, now: int, scratch: Scratch) -> bool:
    """Whether the wish with terms at `at` is posted under this term of the event, and the event has the others too."""
    slot = scratch.of_event[under]
    mine, beyond = scratch.term_first[slot], scratch.term_first[slot + 1]
    word = i64(body.wish[at])
    if (word & (LAST - 1)) != scratch.term[under]:
        return False
    many = beyond - mine > _FEW + 1  # there may be the 0
    while word < LAST:
        at += 1
        word = i64(body.wish[at])
        t = word & (LAST - 1)
        found = many and scratch.stamp[t] == now
        if not many:
            for k in range(mine, beyond):
                found |= scratch.term[k] == t
        if not found:
            return False
    return True


@kernel
def count_matches(event: Numbers, count: Integers) -> None:
    """Add to the count of each event how often it is there."""
    for e in event:
        count[e] += 1


@kernel
def gather_matches(event: Numbers, value: Integers, place: Integers, ordered: Integers) -> None:
    """Group values by event, keeping their order. `place` has for each event where its first goes, and is used up."""
    for i in range(len(event)):
        e = event[i]
        ordered[place[e]] = value[i]
        place[e] += 1
