"""Features of points, and lookups in tables of features: which workers hold a subscription with one of them.

`match.routing.features` says what a feature is.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.compiled import inline_kernel, kernel
from roamcast.match.kernels.intrinsics import Scalar, fold_multiply, i64, prefetch, u8, u64

__all__ = [
    "DIGEST_BITS",
    "MAX_CELLS",
    "NO_TERM",
    "SECOND_TERM",
    "STRIPS",
    "STRIP_BITS",
    "FeatureTable",
    "HashedEvents",
    "ProbeScratch",
    "combine_key",
    "combine_keys",
    "digest_features",
    "expand_masks",
    "hash_cell",
    "hash_cells",
    "is_within_reach",
    "number_strips",
    "probe",
    "strip_number",
]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.bool_]
Workers = npt.NDArray[np.uint8]

STRIPS: Final = 16
"""Columns, and rows, of a cell."""
STRIP_BITS: Final = i64(4)
"""STRIPS is 2 to the power of this."""
SECOND_TERM: Final = u8(255)
"""In place of a worker: some subscriptions with this feature need a second term."""
NO_TERM: Final = u64(0x5851F42D4C957F2D)
"""The term of subscriptions without terms; every event has it."""
MAX_CELLS: Final = 2.0**31
"""The number of cells on either side of 0, along an axis."""
DIGEST_BITS: Final = 40
"""Tables are keyed by this many bits of a hash of the feature."""

_FIRST: Final = u64(0x9E3779B97F4A7C15)
_SECOND: Final = u64(0xC2B2AE3D27D4EB4F)
_THIRD: Final = u64(0x165667B19E3779F9)
_HALF: Final = u64(32)
_SHIFT: Final = u64(29)
_STRIP_MASK: Final = i64(STRIPS - 1)
_DROPPED_BITS: Final = u64(64 - DIGEST_BITS)
_LOWER_HALF: Final = u64(0xFFFFFFFF)
_MAX_PAIRS: Final = 32  # pairs of terms that are looked up together


class HashedEvents(NamedTuple):
    """Events with hashed terms: event i has the terms term[first[i]:first[i + 1]]."""

    x: Floats
    y: Floats
    first: Integers
    term: Keys


class FeatureTable(NamedTuple):
    """Entries ordered by the digest of their feature; those of bucket b are first[b] to first[b + 1].

    A bucket is the leading bits of a digest. A feature has one entry for each worker that holds it: the last 32 bits of
    the digest, then the strips that the worker needs. Entries with the worker SECOND_TERM are for subscriptions that
    need a second term too.
    """

    seed: Keys
    first: Numbers
    entry: Keys
    worker: Workers


class ProbeScratch(NamedTuple):
    """Working memory for the features of one event, and for pairs of them."""

    key: Keys
    needs_second: Flags
    pair: Keys
    ignored: Flags
    digest: Keys

    @classmethod
    def of(cls, events: HashedEvents) -> ProbeScratch:
        size = int(np.diff(events.first).max(initial=0)) + 1  # one for NO_TERM
        return cls(
            np.empty(size, np.uint64), np.empty(size, np.bool_), np.empty(_MAX_PAIRS, np.uint64),
            np.empty(_MAX_PAIRS, np.bool_), np.empty(max(size, _MAX_PAIRS), np.uint64),
        )  # fmt: skip


@inline_kernel
def strip_number(coordinate: float, width: float) -> Scalar:
    """Return the number of a coordinate's strip. Monotonic, because rounding is."""
    return i64(0) if math.isinf(width) else i64(math.floor(coordinate / (width / STRIPS)))


@kernel
def number_strips(coordinate: Floats, width: Floats, number: Integers) -> None:
    """Write the strip of each coordinate, counted along the axis. A cell of infinite width has one strip."""
    for i in range(len(coordinate)):
        number[i] = strip_number(coordinate[i], width[i])


@inline_kernel
def is_within_reach(x: float, y: float, width: float) -> bool:
    """Whether cells of this width have numbers at a point."""
    if math.isnan(x) or math.isnan(y):
        return False
    reach = MAX_CELLS * width
    return math.isinf(reach) or (abs(x) < reach and abs(y) < reach)


@inline_kernel
def hash_cell(level: int, cell_x: int, cell_y: int) -> Scalar:
    """Return the key of a cell."""
    h = u64(level) * _FIRST
    h = ((h ^ (h >> _SHIFT)) ^ u64(cell_x)) * _SECOND
    h = ((h ^ (h >> _SHIFT)) ^ u64(cell_y)) * _THIRD
    return h ^ (h >> _SHIFT)


@kernel
def hash_cells(level: Integers, cell_x: Integers, cell_y: Integers, key: Keys) -> None:
    """Write a key for each cell."""
    for i in range(len(level)):
        key[i] = hash_cell(level[i], cell_x[i], cell_y[i])


@inline_kernel
def combine_key(key: Scalar, term: Scalar) -> Scalar:
    """Return one key for a key and a term."""
    h = (u64(key) ^ u64(term)) * _FIRST
    return (h ^ (h >> _HALF)) * _SECOND


@kernel
def combine_keys(key: Keys, term: Keys, combined: Keys) -> None:
    """Write one key for each pair of a key and a term."""
    for i in range(len(key)):
        combined[i] = combine_key(key[i], term[i])


@kernel
def _digest(key: Scalar, seed: Keys) -> Scalar:
    """Hash a feature. Without the seed, collisions cannot be constructed."""
    return fold_multiply(u64(key) ^ seed[0], seed[1]) >> _DROPPED_BITS


@kernel
def digest_features(key: Keys, seed: Keys, digest: Keys) -> None:
    """Write the digest of each feature, by which tables are keyed."""
    for i in range(len(key)):
        digest[i] = _digest(key[i], seed)


@kernel
def _look_up(
    key: Keys, count: int, strips: int, shift: int, table: FeatureTable, digest: Keys, needs_second: Flags
) -> Scalar:
    """Return a mask of the workers that need an event with any of the first `count` features, in these strips.

    Sets `needs_second` for the features with which some subscriptions need a second term.
    """
    for i in range(count):
        digest[i] = _digest(key[i], table.seed)
        prefetch(table.first, i64(digest[i] >> u64(shift)))
    for i in range(count):
        prefetch(table.entry, i64(table.first[i64(digest[i] >> u64(shift))]))
    workers = u64(0)
    for i in range(count):
        bucket, rest = i64(digest[i] >> u64(shift)), digest[i] & _LOWER_HALF
        needs_second[i] = False
        for at in range(i64(table.first[bucket]), i64(table.first[bucket + 1])):
            if table.entry[at] >> _HALF == rest and strips & ~table.entry[at] == 0:
                if table.worker[at] == SECOND_TERM:
                    needs_second[i] = True
                else:
                    workers |= u64(1) << u64(table.worker[at])
    return workers


@kernel
def probe(
    events: HashedEvents,
    level: Integers,
    width: Floats,
    shift: int,
    table: FeatureTable,
    scratch: ProbeScratch,
    mask: Keys,
) -> None:
    """Add to the mask of each event the workers that hold one of its features, with one of its terms or with two.

    `level` and `width` are those of the cells in the table. A digest shifted right by `shift` is its bucket.
    """
    key, needs_second, pair, ignored, digest = scratch
    for event in range(len(events.x)):
        x, y = events.x[event], events.y[event]
        begin, count = events.first[event], events.first[event + 1] - events.first[event]
        for k in range(len(level)):
            if not is_within_reach(x, y, width[k]):
                continue
            column, row = strip_number(x, width[k]), strip_number(y, width[k])
            cell = hash_cell(level[k], column >> STRIP_BITS, row >> STRIP_BITS)
            strips = u64(1) << u64(column & _STRIP_MASK) | u64(1) << u64(STRIPS + (row & _STRIP_MASK))
            for i in range(count):
                key[i] = combine_key(cell, events.term[begin + i])
            key[count] = combine_key(cell, NO_TERM)
            mask[event] |= _look_up(key, count + 1, strips, shift, table, digest, needs_second)
            pairs = i64(0)
            for i in range(count):
                for j in range(count if needs_second[i] else 0):
                    if j > i or (j < i and not needs_second[j]):  # each pair once, if both need a second term
                        pair[pairs] = key[i] ^ key[j]
                        pairs += 1
                        if pairs == _MAX_PAIRS:
                            mask[event] |= _look_up(pair, pairs, strips, shift, table, digest, ignored)
                            pairs = i64(0)
            mask[event] |= _look_up(pair, pairs, strips, shift, table, digest, ignored)


@kernel
def expand_masks(mask: Keys, event: Integers, worker: Integers) -> None:
    """Write a pair (event, worker) for each bit of the masks, ordered by event, then worker."""
    at = 0
    for i in range(len(mask)):
        left = mask[i]
        while left != 0:
            lowest = left & (~left + u64(1))
            event[at], worker[at] = i, _bit_index(lowest)
            at += 1
            left ^= lowest


@kernel
def _bit_index(bit: Scalar) -> Scalar:
    index = i64(0)
    while bit > 1:
        bit >>= u64(1)
        index += 1
    return index
