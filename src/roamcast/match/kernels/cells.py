"""Cells of the grid: which a point is in, where in it, and cells as dense numbers.

Every function of a coordinate here never falls where the coordinate rises; that is all that exactness needs.
"""

from __future__ import annotations

from math import floor
from typing import Final

import numpy as np
import numpy.typing as npt

from roamcast.compiled import kernel
from roamcast.match.kernels.scalars import Whole, i64, u64

__all__ = ["NOWHERE", "cell", "hash_cell", "number_keys", "pack", "parts", "place_cells", "round_world"]

Floats = npt.NDArray[np.float64]
Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int32]

NOWHERE: Final = 1 << 40
"""The cell of a coordinate that no cell of a level has."""
_FARTHEST: Final = 2.0**31 - 2
_PARTS: Final = 65536.0
_LAST_PART: Final = 65535
_MULTIPLIER: Final = u64(0x9E3779B97F4A7C15)
_HALF: Final = u64(32)


@kernel
def round_world(value: float) -> float:
    """A longitude as levels of boxes that cross the antimeridian see it."""
    return min(max(value, -180.0), 180.0)


@kernel
def cell(scaled: float) -> Whole:
    """The number of the cell of a coordinate in units of cells."""
    return i64(floor(scaled)) if abs(scaled) < _FARTHEST else NOWHERE


@kernel
def parts(scaled: float, number: int) -> int:
    """How far into its cell a coordinate is, in 65,536ths."""
    # Just below 0 the difference rounds to 1, where the next cell begins.
    return min(int((scaled - number) * _PARTS), _LAST_PART)


@kernel
def pack(cell_x: int, cell_y: int) -> Whole:
    return (u64(cell_x) << _HALF) | (u64(cell_y) & u64(0xFFFFFFFF))


@kernel
def hash_cell(key: int) -> Whole:
    h = u64(key) * _MULTIPLIER
    h = (h ^ (h >> _HALF)) * _MULTIPLIER
    return i64(h >> _HALF)


@kernel
def number_keys(key: Keys, table: Numbers, distinct: Keys, number: Numbers) -> int:
    """Number distinct keys in the order of their first appearance; returns how many.

    `table` has a power of two of slots, more than keys, all -1.
    """
    mask, count = len(table) - 1, 0
    for i in range(len(key)):
        k = key[i]
        slot = hash_cell(k) & mask
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
def place_cells(key: Keys, first: int, keys: Keys, at: Numbers) -> None:
    """Enter distinct cells, numbered from `first`, into an empty table: a power of two of slots, more than cells."""
    mask = len(at) - 1
    for i in range(len(key)):
        slot = hash_cell(key[i]) & mask
        while at[slot] >= 0:
            slot = (slot + 1) & mask
        keys[slot], at[slot] = key[i], first + i
