"""Orders: by whole numbers in linear time, and along a curve that keeps neighbours in the plane together."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from roamcast.compiled import kernel
from roamcast.match.kernels.cells import NOWHERE, cell
from roamcast.match.kernels.scalars import Whole, i64, u64

__all__ = ["DIGITS", "SHORT", "morton", "order_by", "place_points", "sort_runs"]

Floats = npt.NDArray[np.float64]
Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int32]
Integers = npt.NDArray[np.int64]

_BITS: Final = 11
DIGITS: Final = 1 << _BITS
_MASK: Final = u64(DIGITS - 1)
SHORT: Final = 48


@kernel
def order_by(key: Keys, order: Numbers, key_spare: Keys, order_spare: Numbers, counts: Integers) -> None:
    """The stable order of ascending keys, which are sorted with it. Spares are as long; `counts` has DIGITS places."""
    size = len(key)
    all_or, all_and = u64(0), ~u64(0)
    for i in range(size):
        order[i] = i
        all_or |= key[i]
        all_and &= key[i]
    differing = all_or ^ all_and
    shift = u64(0)
    while shift < u64(64) and (differing >> shift) != u64(0):
        if (differing >> shift) & _MASK:
            counts[:] = 0
            for i in range(size):
                counts[i64((key[i] >> shift) & _MASK)] += 1
            before = 0
            for digit in range(DIGITS):
                here = counts[digit]
                counts[digit] = before
                before += here
            for i in range(size):
                at = i64((key[i] >> shift) & _MASK)
                key_spare[counts[at]], order_spare[counts[at]] = key[i], order[i]
                counts[at] += 1
            for i in range(size):
                key[i], order[i] = key_spare[i], order_spare[i]
        shift += u64(_BITS)


@kernel
def _spaced(v: int) -> Whole:
    """The 32 lower bits with a zero between each two."""
    w = u64(v) & u64(0xFFFFFFFF)
    w = (w | (w << u64(16))) & u64(0x0000FFFF0000FFFF)
    w = (w | (w << u64(8))) & u64(0x00FF00FF00FF00FF)
    w = (w | (w << u64(4))) & u64(0x0F0F0F0F0F0F0F0F)
    w = (w | (w << u64(2))) & u64(0x3333333333333333)
    return (w | (w << u64(1))) & u64(0x5555555555555555)


@kernel
def _morton(cell_x: int, cell_y: int) -> Whole:
    x, y = u64(_spaced(cell_x + (1 << 31))), u64(_spaced(cell_y + (1 << 31)))
    return x | (y << u64(1))


@kernel
def morton(cell_x: Numbers, cell_y: Numbers, key: Keys) -> None:
    """The place of cells on the Z-order curve."""
    for i in range(len(key)):
        key[i] = _morton(i64(cell_x[i]), i64(cell_y[i]))


@kernel
def place_points(x: Floats, y: Floats, scale: float, key: Keys) -> None:
    """The place on the Z-order curve of the cells that points are in; 0 for points that are in none."""
    for i in range(len(key)):
        cell_x, cell_y = cell(x[i] * scale), cell(y[i] * scale)
        key[i] = 0 if cell_x == NOWHERE or cell_y == NOWHERE else _morton(cell_x, cell_y)


@kernel
def sort_runs(first: Integers, value: Integers) -> int:
    """Sort each run value[first[i]:first[i + 1]] that is short; returns how many are not, and are left as they are."""
    left = 0
    for run in range(len(first) - 1):
        start, end = first[run], first[run + 1]
        if end - start > SHORT:
            left += 1
            continue
        for i in range(start + 1, end):
            v, at = value[i], i
            while at > start and value[at - 1] > v:
                value[at] = value[at - 1]
                at -= 1
            value[at] = v
    return left
