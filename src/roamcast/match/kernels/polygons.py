"""Testing points against polygons, exactly. Points on borders are inside.

A point is inside if a ray from it to the right crosses an odd number of edges. A simple loop over the edges, which LLVM
turns into vector instructions, is certain about nearly all points. It notices if rounding could matter, or if the point
could be on a border; then an exact loop decides.

Polygons with many edges have blocks: about as many consecutive edges in each as there are blocks. A block is only read
if the point is within its bounds. From elsewhere, the ray crosses it an odd number of times if it is to the right of
the point and one of its ends is above the ray, the other one not.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.compiled import inline_kernel, kernel
from roamcast.match.kernels.intrinsics import Scalar, i64, prefetch, u64
from roamcast.match.kernels.orientation import LOST, ROUNDING, orientation

__all__ = ["PolygonArrays", "bound_blocks", "contain_points", "count_blocks", "lay_out"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]

_FEW: Final = 64  # edges that need no blocks
_LEAST: Final = 4  # log2 of the edges of a block
_AHEAD: Final = 8  # pairs
_LINE: Final = 8  # floats in a cache line
_LINES: Final = 6  # that are prefetched: enough for 20 points

_ODD: Final = 1
_UNCERTAIN: Final = 2  # or, from `_scan_exactly`: on a border


class PolygonArrays(NamedTuple):
    """Polygons, in memory as in their file. Row r has coordinate[first[r]:first[r + 1]]: x of its points, then their y.

    The points are those of all its rings, one ring after the other. Rings are closed: the last point is the first.
    Between rings there is a NaN. A row without points contains nothing. Row r has the blocks block_first[r] to
    block_first[r + 1], none if it has few edges.
    """

    first: Integers
    coordinate: Floats
    block_first: Integers
    block: Floats  # min_x, min_y, max_x, max_y; min_x is -inf if a ring ends before the block does


@kernel
def lay_out(points: Floats, first: Integers, coordinate: Floats) -> None:
    """Write the coordinates of all rows: `points` are their x and y, beside each other."""
    for row in range(len(first) - 1):
        begin, end = first[row] >> 1, first[row + 1] >> 1
        for at in range(begin, end):
            coordinate[begin + at], coordinate[end + at] = points[at, 0], points[at, 1]


@inline_kernel
def _block_shift(edges: Scalar) -> Scalar:
    """Return log2 of the edges of a block."""
    shift = i64(_LEAST)
    while edges >= i64(1) << (2 * shift):
        shift += 1
    return shift


@kernel
def count_blocks(first: Integers, count: Integers) -> None:
    """Count the blocks of each row."""
    for row in range(len(count)):
        edges = ((first[row + 1] - first[row]) >> 1) - 1
        count[row] = ((edges - 1) >> _block_shift(edges)) + 1 if edges > _FEW else 0


@kernel
def bound_blocks(first: Integers, coordinate: Floats, block_first: Integers, block: Floats) -> None:
    """Compute the bounds of all blocks."""
    for row in range(len(first) - 1):
        points = (first[row + 1] - first[row]) >> 1
        size = i64(1) << _block_shift(points - 1)
        begin = i64(0)
        for number in range(block_first[row], block_first[row + 1]):
            min_x = min_y = np.inf
            max_x = max_y = -np.inf
            is_unbroken = True
            for k in range(begin, min(begin + size, points - 1) + 1):
                x, y = coordinate[first[row] + k], coordinate[first[row] + points + k]
                is_unbroken &= x == x
                # NaN is neither less nor greater.
                min_x, min_y = x if x < min_x else min_x, y if y < min_y else min_y
                max_x, max_y = x if x > max_x else max_x, y if y > max_y else max_y
            block[number, 0], block[number, 1] = min_x if is_unbroken else -np.inf, min_y
            block[number, 2], block[number, 3] = max_x, max_y
            begin += size


@inline_kernel
def _scan(coordinate: Floats, at_x: Scalar, at_y: Scalar, edges: Scalar, px: float, py: float) -> Scalar:
    """Return _ODD if an odd number of edges is crossed, or 0. Adds _UNCERTAIN if that is not certain."""
    crossings, uncertain = i64(0), i64(0)
    for k in range(edges):
        # With signed indices numba looks for negative ones, and LLVM makes no vector instructions.
        x, y = u64(at_x + k), u64(at_y + k)
        ax, ay = coordinate[x] - px, coordinate[y] - py
        bx, by = coordinate[x + u64(1)] - px, coordinate[y + u64(1)] - py
        left, right = ax * by, bx * ay
        rises, falls = (ay <= 0.0) & (by > 0.0), (ay > 0.0) & (by <= 0.0)
        is_certain = abs(left - right) > ROUNDING * (abs(left) + abs(right)) + LOST  # see `orientation`
        crossings += (rises & (left > right)) | (falls & (left < right))
        uncertain |= ((rises | falls) & (not is_certain)) | ((ay == 0.0) & ((ax == 0.0) | (by == 0.0)))
    return (crossings & _ODD) | (uncertain * _UNCERTAIN)


@inline_kernel
def _scan_exactly(
    coordinate: Floats, at_x: Scalar, at_y: Scalar, edges: Scalar, px: float, py: float, digits: Integers
) -> Scalar:
    """Return _UNCERTAIN if the point is on an edge, or else _ODD if an odd number of edges is crossed, or 0."""
    crossings = i64(0)
    for k in range(edges):
        ax, ay = coordinate[at_x + k], coordinate[at_y + k]
        bx, by = coordinate[at_x + k + 1], coordinate[at_y + k + 1]
        if ay == py and (ax == px or (by == py and min(ax, bx) <= px <= max(ax, bx))):
            return i64(_UNCERTAIN)
        rises, falls = ay <= py < by, by <= py < ay
        if rises or falls:
            side = orientation(digits, ax, ay, bx, by, px, py)
            if side == 0:
                return i64(_UNCERTAIN)
            crossings += i64(rises == (side > 0))
    return crossings & _ODD


@inline_kernel
def _contains(polygons: PolygonArrays, row: Scalar, px: float, py: float, digits: Integers) -> Scalar:
    coordinate, at_x = polygons.coordinate, polygons.first[row]
    points = (polygons.first[row + 1] - at_x) >> 1
    at_y, edges = at_x + points, points - 1
    if edges <= _FEW:
        state = _scan(coordinate, at_x, at_y, edges, px, py)
        if state & _UNCERTAIN:
            state = _scan_exactly(coordinate, at_x, at_y, edges, px, py, digits)
        return state != 0
    size = i64(1) << _block_shift(edges)
    odd, begin = i64(0), -size
    for number in range(polygons.block_first[row], polygons.block_first[row + 1]):
        begin += size
        block = polygons.block[number]
        if py < block[1] or py > block[3] or px > block[2]:
            continue
        length = min(size, edges - begin)
        if px < block[0]:
            odd ^= i64(coordinate[at_y + begin] > py) ^ i64(coordinate[at_y + begin + length] > py)
            continue
        state = _scan(coordinate, at_x + begin, at_y + begin, length, px, py)
        if state & _UNCERTAIN:
            state = _scan_exactly(coordinate, at_x + begin, at_y + begin, length, px, py, digits)
            if state & _UNCERTAIN:
                return True
        odd ^= state
    return odd != 0


@kernel
def contain_points(
    polygons: PolygonArrays, row: Integers, x: Floats, y: Floats, digits: Integers, inside: Truths
) -> None:
    """Test pairs of a row and a point. Points that are not finite are outside. `digits` is for `orientation`."""
    for pair in range(len(row)):
        if pair + 2 * _AHEAD < len(row):
            prefetch(polygons.first, row[pair + 2 * _AHEAD])
        if pair + _AHEAD < len(row):
            at = polygons.first[row[pair + _AHEAD]]
            for line in range(_LINES):
                prefetch(polygons.coordinate, at + line * _LINE)
        is_finite = math.isfinite(x[pair]) and math.isfinite(y[pair])
        inside[pair] = is_finite and _contains(polygons, row[pair], x[pair], y[pair], digits)
