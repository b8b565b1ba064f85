"""Rows that are no more: a bit for each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from roamcast.compiled import kernel
from roamcast.match.kernels.cells import hash_cell
from roamcast.match.kernels.scalars import u8

__all__ = ["mark_rows"]

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]


@kernel
def mark_rows(handle: Integers, gone: Integers, table: Integers, dead: Bytes) -> int:
    """Set the bits of rows whose handle is among `gone`; returns how many were not set before.

    `table` has a power of two of slots, more than `gone`, all -1; handles are not negative.
    """
    mask, marked = len(table) - 1, 0
    for h in gone:
        slot = hash_cell(h) & mask
        while table[slot] >= 0 and table[slot] != h:
            slot = (slot + 1) & mask
        table[slot] = h
    for row in range(len(handle)):
        slot = hash_cell(handle[row]) & mask
        while table[slot] >= 0:
            if table[slot] == handle[row]:
                bit = u8(1) << u8(row & 7)
                marked += 0 if dead[row >> 3] & bit else 1
                dead[row >> 3] |= bit
                break
            slot = (slot + 1) & mask
    return marked
