"""Cells of the grid, and hash tables keyed by cells and handles.

Every function of a coordinate here is monotonic, which is all that exact matching needs.
"""

from __future__ import annotations

from math import floor
from typing import Final

import numpy as np
import numpy.typing as npt

from roamcast.compiled import inline_kernel, kernel
from roamcast.match.kernels.intrinsics import Scalar, i64, u8, u64

__all__ = [
    "NO_CELL",
    "cell_number",
    "clamp_longitude",
    "hash_key",
    "insert_cells",
    "mark_rows",
    "number_keys",
    "pack_cell",
    "subcell",
]

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int32]

NO_CELL: Final = 1 << 40
"""The cell number of a coordinate that is too far away for its level."""
_MAX_NUMBER: Final = 2.0**31 - 2
_SUBCELLS: Final = 65536.0
_LAST_SUBCELL: Final = 65535
_MULTIPLIER: Final = u64(0x9E3779B97F4A7C15)
_HALF: Final = u64(32)


@inline_kernel
def clamp_longitude(value: float) -> float:
    """Clamp a longitude for levels of boxes that cross the antimeridian."""
    return min(max(value, -180.0), 180.0)


@inline_kernel
def cell_number(scaled: float) -> Scalar:
    """Return the number of the cell that holds a coordinate, given in units of cells."""
    return i64(floor(scaled)) if abs(scaled) < _MAX_NUMBER else NO_CELL


@inline_kernel
def subcell(scaled: float, number: int) -> int:
    """Return how far into its cell a coordinate is, in 65,536ths."""
    # Just below 0 the difference rounds to 1, where the next cell begins.
    return min(int((scaled - number) * _SUBCELLS), _LAST_SUBCELL)


@inline_kernel
def pack_cell(cell_x: int, cell_y: int) -> Scalar:
    return (u64(cell_x) << _HALF) | (u64(cell_y) & u64(0xFFFFFFFF))


@inline_kernel
def hash_key(key: Scalar) -> Scalar:
    h = key * _MULTIPLIER
    h = (h ^ (h >> _HALF)) * _MULTIPLIER
    return i64(h >> _HALF)


@kernel
def number_keys(key: Keys, table: Numbers, distinct: Keys, number: Numbers) -> int:
    """Number distinct keys in the order of their first appearance; return how many there are.

    The size of `table` is a power of two greater than the number of keys; all its slots are -1.
    """
    mask, count = len(table) - 1, 0
    for i in range(len(key)):
        k = key[i]
        slot = hash_key(k) & mask
        while True:
            c = table[slot]
            if c < 0:
                c = count
                table[slot], distinct[c] = c, k
                count += 1
                break
            if distinct[c] == k:
                break
            slot = (slot + 1) & mask
        number[i] = c
    return count


@kernel
def insert_cells(key: Keys, first: int, slot_key: Keys, slot_cell: Numbers) -> None:
    """Insert distinct cells, numbered from `first`, into an empty hash table.

    Its size is a power of two greater than the number of cells; empty slots have the cell -1.
    """
    mask = len(slot_cell) - 1
    for i in range(len(key)):
        slot = hash_key(key[i]) & mask
        while slot_cell[slot] >= 0:
            slot = (slot + 1) & mask
        slot_key[slot], slot_cell[slot] = key[i], first + i


@kernel
def mark_rows(handle: Integers, marked: Integers, table: Integers, bits: Bytes) -> int:
    """Set the bits of rows whose handle is in `marked`; return how many were not set before.

    Handles are not negative. The size of `table` is a power of two greater than the length of `marked`; all its slots
    are -1.
    """
    mask, count = len(table) - 1, 0
    for h in marked:
        slot = hash_key(u64(h)) & mask
        while table[slot] >= 0 and table[slot] != h:
            slot = (slot + 1) & mask
        table[slot] = h
    for row in range(len(handle)):
        slot = hash_key(u64(handle[row])) & mask
        while table[slot] >= 0:
            if table[slot] == handle[row]:
                bit = u8(1) << u8(row & 7)
                count += 0 if bits[row >> 3] & bit else 1
                bits[row >> 3] |= bit
                break
            slot = (slot + 1) & mask
    return count
