"""Radix sort, the Z-order curve, grouping by event, and sorting of short runs."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from roamcast.compiled import inline_kernel, kernel
from roamcast.match.kernels.cells import NO_CELL, cell_number
from roamcast.match.kernels.intrinsics import Scalar, i64, u64

__all__ = [
    "SHORT_RUN", "cell_curve_keys", "count_candidates", "group_by_event", "point_curve_keys", "radix_argsort",
    "sort_numbers", "sort_short_runs",
]  # fmt: skip

Floats = npt.NDArray[np.float64]
Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int32]
Integers = npt.NDArray[np.int64]

_DIGIT_BITS: Final = 11
_RADIX: Final = 1 << _DIGIT_BITS
_DIGIT_MASK: Final = u64(_RADIX - 1)
SHORT_RUN: Final = 48


def radix_argsort(key: Keys) -> Numbers:
    """Return the stable ascending order of keys, in linear time."""
    order, spare_order = np.empty(len(key), np.int32), np.empty(len(key), np.int32)
    radix_sort(key.copy(), order, np.empty(len(key), np.uint64), spare_order, np.empty(_RADIX, np.int64))
    return order


@kernel
def radix_sort(key: Keys, order: Numbers, spare_key: Keys, spare_order: Numbers, counts: Integers) -> None:
    """Sort keys in place and write their stable order. The spare arrays are as long as `key`."""
    size = len(key)
    all_or, all_and = u64(0), ~u64(0)
    for i in range(size):
        order[i] = i
        all_or |= key[i]
        all_and &= key[i]
    differing = all_or ^ all_and
    shift = u64(0)
    while shift < u64(64) and (differing >> shift) != u64(0):
        if (differing >> shift) & _DIGIT_MASK:
            counts[:] = 0
            for i in range(size):
                counts[i64((key[i] >> shift) & _DIGIT_MASK)] += 1
            before = 0
            for digit in range(_RADIX):
                here = counts[digit]
                counts[digit] = before
                before += here
            for i in range(size):
                digit = i64((key[i] >> shift) & _DIGIT_MASK)
                spare_key[counts[digit]], spare_order[counts[digit]] = key[i], order[i]
                counts[digit] += 1
            for i in range(size):
                key[i], order[i] = spare_key[i], spare_order[i]
        shift += u64(_DIGIT_BITS)


@kernel
def _spread_bits(v: int) -> Scalar:
    """Put a zero between each two of the 32 lower bits."""
    w = u64(v) & u64(0xFFFFFFFF)
    w = (w | (w << u64(16))) & u64(0x0000FFFF0000FFFF)
    w = (w | (w << u64(8))) & u64(0x00FF00FF00FF00FF)
    w = (w | (w << u64(4))) & u64(0x0F0F0F0F0F0F0F0F)
    w = (w | (w << u64(2))) & u64(0x3333333333333333)
    return (w | (w << u64(1))) & u64(0x5555555555555555)


@kernel
def _curve_key(cell_x: int, cell_y: int) -> Scalar:
    x, y = u64(_spread_bits(cell_x + (1 << 31))), u64(_spread_bits(cell_y + (1 << 31)))
    return x | (y << u64(1))


@kernel
def cell_curve_keys(cell_x: Numbers, cell_y: Numbers, key: Keys) -> None:
    """Write the rank of each cell on the Z-order curve."""
    for i in range(len(key)):
        key[i] = _curve_key(i64(cell_x[i]), i64(cell_y[i]))


@kernel
def point_curve_keys(x: Floats, y: Floats, scale: float, key: Keys) -> None:
    """Write the rank on the Z-order curve of the cell that holds each point; 0 for points outside all cells."""
    for i in range(len(key)):
        cell_x, cell_y = cell_number(x[i] * scale), cell_number(y[i] * scale)
        key[i] = 0 if cell_x == NO_CELL or cell_y == NO_CELL else _curve_key(cell_x, cell_y)


@kernel
def sort_short_runs(first: Integers, value: Integers) -> int:
    """Sort each run value[first[i]:first[i + 1]] of at most SHORT_RUN values; return how many are longer."""
    longer = 0
    for run in range(len(first) - 1):
        start, end = first[run], first[run + 1]
        if end - start > SHORT_RUN:
            longer += 1
            continue
        for i in range(start + 1, end):
            v, at = value[i], i
            while at > start and value[at - 1] > v:
                value[at] = value[at - 1]
                at -= 1
            value[at] = v
    return longer


@inline_kernel
def sort_numbers(numbers: Integers, count: int) -> None:
    """Sort the first of these numbers. A heap needs no memory."""
    begin, end = i64(count // 2), i64(count)
    while end > 1:
        if begin > 0:
            begin -= 1
        else:
            end -= 1
            numbers[0], numbers[end] = numbers[end], numbers[0]
        root = begin
        while 2 * root + 1 < end:
            child = 2 * root + 1
            if child + 1 < end and numbers[child] < numbers[child + 1]:
                child += 1
            if numbers[root] >= numbers[child]:
                break
            numbers[root], numbers[child] = numbers[child], numbers[root]
            root = child


@kernel
def count_candidates(event: Numbers, count: Integers) -> None:
    """Add to count[e] how often event e occurs."""
    for e in event:
        count[e] += 1


@kernel
def group_by_event(event: Numbers, value: Integers, next_index: Integers, ordered: Integers) -> None:
    """Group values by event, keeping their order. `next_index[e]` is where the next value of event e goes."""
    for i in range(len(event)):
        e = event[i]
        ordered[next_index[e]] = value[i]
        next_index[e] += 1
