"""Cells: squares whose sides are powers of two, as small as the data asks for. The events of a file are of one cell.

Within a file, events are sorted along a curve that visits the quarters of a cell one after the other, and their
quarters, and so on: rows that are next to each other are near each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import frexp
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Cell", "split_by_cell"]

Integers = npt.NDArray[np.int64]

_DEPTH: Final = 20  # of the curve, below the largest cell


class Cell(NamedTuple):
    """The square with the corner (column, row) · 2**level."""

    level: int
    column: int
    row: int

    def __str__(self) -> str:
        return f"{self.level}_{self.column}_{self.row}"


def split_by_cell(events: pa.Table, most: int) -> Iterator[tuple[Cell, pa.Table]]:
    """The events of each cell, in the order of the curve, then of node and offset.

    A cell with more than `most` events is divided, as far as the depth of the curve allows.
    """
    if not events.num_rows:
        return
    x, y = (events[name].to_numpy() for name in ("x", "y"))
    extent = max(float(x.max() - x.min()), float(y.max() - y.min()))
    reach = float(max(np.abs(x).max(), np.abs(y).max()))
    top = max(frexp(extent)[1], frexp(reach)[1] - 40, -30)
    squares = [np.floor(each / 2.0 ** (top - _DEPTH)).astype(np.int64) for each in (x, y)]
    column, row = (square >> _DEPTH for square in squares)
    first_column, first_row = int(column.min()), int(row.min())
    rows = int(row.max()) - first_row + 1
    inner = [(square & ((1 << _DEPTH) - 1)).astype(np.uint64) for square in squares]
    key = (((column - first_column) * rows + row - first_row) << (2 * _DEPTH)) + (_interleave(*inner)).astype(np.int64)
    node = events["node"].combine_chunks().dictionary_encode().indices.to_numpy()
    order = np.lexsort((events["offset"].to_numpy(), node, key))
    key, sorted_events = key[order], events.take(pa.array(order))

    def parts(begin: int, end: int, depth: int) -> Iterator[tuple[int, int, int]]:
        if end - begin <= most or depth == _DEPTH:
            yield begin, end, depth
            return
        shift = 2 * (_DEPTH - depth - 1)
        quarters = key[begin:end] >> shift
        starts = np.flatnonzero(np.diff(quarters, prepend=quarters[0] - 1)).tolist()
        for low, high in zip(starts, [*starts[1:], end - begin], strict=True):
            yield from parts(begin + low, begin + high, depth + 1)

    tops = np.flatnonzero(np.diff(key >> (2 * _DEPTH), prepend=-1)).tolist()
    for low, high in zip(tops, [*tops[1:], len(key)], strict=True):
        for begin, end, depth in parts(low, high, 0):
            at = int(order[begin])
            cell = Cell(top - depth, int(squares[0][at]) >> (_DEPTH - depth), int(squares[1][at]) >> (_DEPTH - depth))
            yield cell, sorted_events.slice(begin, end - begin)


def _interleave(x: npt.NDArray[np.uint64], y: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The bits of x and y in turn, those of x above."""
    return (_spread(x) << np.uint64(1)) | _spread(y)


def _spread(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Put a zero above each of the lower 32 bits."""
    for shift, mask in (
        (16, 0x0000FFFF0000FFFF),
        (8, 0x00FF00FF00FF00FF),
        (4, 0x0F0F0F0F0F0F0F0F),
        (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ):
        bits = (bits | (bits << np.uint64(shift))) & np.uint64(mask)
    return bits
