"""Features of points, and tables of them: which workers hold a subscription that has one, and which strips each wants.

See `match.features` for what these are.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.compiled import kernel
from roamcast.match.kernels.memory import expect, folded_product
from roamcast.match.kernels.scalars import Whole, i64, u8, u64

__all__ = [
    "ANYONE",
    "DIGEST",
    "MOST_CELLS",
    "NO_TERM",
    "STRIPS",
    "Hashed",
    "Scratch",
    "Table",
    "digest_features",
    "list_holders",
    "mix_cells",
    "mix_terms",
    "number_strips",
    "probe",
]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.bool_]
Workers = npt.NDArray[np.uint8]

STRIPS: Final = 16
"""Columns, and rows, of a cell."""
ANYONE: Final = u8(255)
"""Is no worker."""
NO_TERM: Final = u64(0x5851F42D4C957F2D)
"""The term of subscriptions that ask for none, and of all events."""
MOST_CELLS: Final = 2.0**31
"""On either side of 0, along an axis."""
DIGEST: Final = 40
"""Bits of a feature that a table goes by."""

_FIRST: Final = u64(0x9E3779B97F4A7C15)
_SECOND: Final = u64(0xC2B2AE3D27D4EB4F)
_THIRD: Final = u64(0x165667B19E3779F9)
_HALF: Final = u64(32)
_TURN: Final = u64(29)
_CELL: Final = i64(4)  # the power of two that STRIPS is
_WITHIN: Final = i64(STRIPS - 1)
_LEFT: Final = u64(64 - DIGEST)
_REST: Final = u64(0xFFFFFFFF)
_AT_ONCE: Final = 32  # pairs of terms


class Hashed(NamedTuple):
    """Events; event i has the terms term[first[i]:first[i + 1]], hashed."""

    x: Floats
    y: Floats
    first: Integers
    term: Keys


class Table(NamedTuple):
    """Entries in the order of the digests of features: those of bucket b, which begin with these bits, from first[b]
    to first[b + 1].

    A feature has an entry for each worker that holds it: the last 32 bits of the digest, then the strips which that one
    wants. ANYONE's is for those who want a second term with it.
    """

    seed: Keys
    first: Numbers
    entry: Keys
    worker: Workers


class Scratch(NamedTuple):
    """Room for the features of one event, and for some of two terms."""

    key: Keys
    wanted: Flags
    pair: Keys
    ignored: Flags
    digest: Keys

    @classmethod
    def of(cls, events: Hashed) -> Scratch:
        one = int(np.diff(events.first).max(initial=0)) + 1  # no term is one, too
        two = _AT_ONCE
        digest = np.empty(max(one, two), np.uint64)
        return cls(
            np.empty(one, np.uint64), np.empty(one, np.bool_), np.empty(two, np.uint64), np.empty(two, np.bool_), digest
        )


@kernel
def _strip(coordinate: float, width: float) -> Whole:
    """Never falls where the coordinate rises, for rounding does not."""
    return i64(0) if math.isinf(width) else i64(math.floor(coordinate / (width / STRIPS)))


@kernel
def number_strips(coordinate: Floats, width: Floats, number: Integers) -> None:
    """The strip that each coordinate is in, counted along the axis. A cell without borders has one."""
    for i in range(len(coordinate)):
        number[i] = _strip(coordinate[i], width[i])


@kernel
def _cell(level: int, cell_x: int, cell_y: int) -> Whole:
    mixed = u64(level) * _FIRST
    mixed = ((mixed ^ (mixed >> _TURN)) ^ u64(cell_x)) * _SECOND
    mixed = ((mixed ^ (mixed >> _TURN)) ^ u64(cell_y)) * _THIRD
    return mixed ^ (mixed >> _TURN)


@kernel
def mix_cells(level: Integers, cell_x: Integers, cell_y: Integers, mixed: Keys) -> None:
    """One number for each cell."""
    for i in range(len(level)):
        mixed[i] = _cell(level[i], cell_x[i], cell_y[i])


@kernel
def _mixed(key: int, term: int) -> Whole:
    h = (u64(key) ^ u64(term)) * _FIRST
    return (h ^ (h >> _HALF)) * _SECOND


@kernel
def mix_terms(key: Keys, term: Keys, mixed: Keys) -> None:
    """Features with the terms beside them."""
    for i in range(len(key)):
        mixed[i] = _mixed(key[i], term[i])


@kernel
def _digest(key: int, seed: Keys) -> Whole:
    """Who does not know the seed cannot choose features that collide."""
    return folded_product(u64(key) ^ seed[0], seed[1]) >> _LEFT


@kernel
def digest_features(key: Keys, seed: Keys, digest: Keys) -> None:
    """What a table goes by."""
    for i in range(len(key)):
        digest[i] = _digest(key[i], seed)


@kernel
def _ask(key: Keys, count: int, strips: int, shift: int, table: Table, digest: Keys, wanted: Flags) -> Whole:
    """A bit for each worker that wants an event with any of so many features, in these strips; `wanted` tells for each
    feature whether others do, if there is a second term.

    Memory is asked for before it is read.
    """
    for i in range(count):
        digest[i] = _digest(key[i], table.seed)
        expect(table.first, i64(digest[i] >> u64(shift)))
    for i in range(count):
        expect(table.entry, i64(table.first[i64(digest[i] >> u64(shift))]))
    found = u64(0)
    for i in range(count):
        bucket, rest = i64(digest[i] >> u64(shift)), digest[i] & _REST
        wanted[i] = False
        for at in range(i64(table.first[bucket]), i64(table.first[bucket + 1])):
            if table.entry[at] >> _HALF == rest and strips & ~table.entry[at] == 0:
                if table.worker[at] == ANYONE:
                    wanted[i] = True
                else:
                    found |= u64(1) << u64(table.worker[at])
    return found


@kernel
def probe(
    events: Hashed, level: Integers, width: Floats, shift: int, table: Table, scratch: Scratch, found: Keys
) -> None:
    """Add to the mask of each event the workers that hold one of its features, by one of its terms or by two.

    `level` and `width` tell of the cells there are features of; the bits of a bucket are those left when a digest is
    shifted.
    """
    key, wanted, pair, ignored, digest = scratch
    for event in range(len(events.x)):
        x, y = events.x[event], events.y[event]
        begin, count = events.first[event], events.first[event + 1] - events.first[event]
        for k in range(len(level)):
            reach = MOST_CELLS * width[k]
            if math.isnan(x) or math.isnan(y) or not (math.isinf(reach) or (abs(x) < reach and abs(y) < reach)):
                continue
            column, row = _strip(x, width[k]), _strip(y, width[k])
            cell = _cell(level[k], column >> _CELL, row >> _CELL)
            strips = u64(1) << u64(column & _WITHIN) | u64(1) << u64(STRIPS + (row & _WITHIN))
            for i in range(count):
                key[i] = _mixed(cell, events.term[begin + i])
            key[count] = _mixed(cell, NO_TERM)
            found[event] |= _ask(key, count + 1, strips, shift, table, digest, wanted)
            pairs = 0
            for i in range(count):
                for j in range(count if wanted[i] else 0):
                    if j > i or (j < i and not wanted[j]):  # two that are both wanted are one pair
                        pair[pairs] = key[i] ^ key[j]
                        pairs += 1
                        if pairs == _AT_ONCE:
                            found[event] |= _ask(pair, pairs, strips, shift, table, digest, ignored)
                            pairs = 0
            found[event] |= _ask(pair, pairs, strips, shift, table, digest, ignored)


@kernel
def list_holders(found: Keys, event: Integers, worker: Integers) -> None:
    """The bits of masks one by one: by event, then by worker."""
    at = 0
    for i in range(len(found)):
        left = found[i]
        while left != 0:
            lowest = left & (~left + u64(1))
            event[at], worker[at] = i, _place(lowest)
            at += 1
            left ^= lowest


@kernel
def _place(bit: int) -> Whole:
    place = i64(0)
    while bit > 1:
        bit >>= u64(1)
        place += 1
    return place
