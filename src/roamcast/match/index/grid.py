"""Choose the level of the grid for each box: one whose cells are at least twice as wide as the box.

The width of a cell is a power of two; cells begin at 0. Boxes in sparse cells move to wider cells, because a few cells
with several boxes cost less than many with one. But an event is compared with all boxes of its cell that are posted
under one of its terms, or have no terms: a box stays where it is if the wider cell would have many such boxes. Boxes
that cross the antimeridian have their own levels. The last level is the world: a single unbounded cell, for unbounded
boxes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.match.kernels.cells import number_keys

__all__ = ["Levels", "cell_keys", "choose_levels", "dense_numbers"]

Floats = npt.NDArray[np.float64]
Keys = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]

STEP: Final = 2  # cells of a level are 2**STEP times as wide as those of the next finer level
SPARSE: Final = 16  # boxes of cells with fewer than this move to the next wider level ...
CROWD: Final = 32  # ... unless this many of the same term would be in one cell there
MAX_LEVELS: Final = 16
_FEW_SHARE: Final = 256  # a level with less than 1/256 of all boxes is not worth searching for every event ...
_MAX_FEW: Final = 1024  # ... unless it has at least this many; and a box without terms counts ...
_TERMLESS_WEIGHT: Final = _MAX_FEW // CROWD  # ... as this many, because no term keeps events from it
_FINEST: Final = -60  # exponents of the width of a cell
_WIDEST: Final = 960
_CELL_BITS: Final = 30  # so that cell numbers fit into 32 signed bits
_CROSSING: Final = 1 << 20  # added to the level of boxes that cross the antimeridian
_WORLD: Final = 1 << 30


class Levels(NamedTuple):
    """Level i: a coordinate times scale[i] is in units of cells (0: the world); wraps[i]: boxes cross the antimeridian.

    `of` is the level of each row, -1 for an empty box.
    """

    scale: Floats
    wraps: npt.NDArray[np.bool_]
    of: Numbers


def choose_levels(box: Floats, term: Numbers) -> Levels:
    """Choose the levels for boxes, given as rows (min_x, min_y, max_x, max_y), each posted under a term; 0 is none."""
    raw = _finest_levels(box)
    crosses = box[:, 0] > box[:, 2]
    nonempty = ~np.isnan(box).any(axis=1) & (box[:, 1] <= box[:, 3])
    for wraps in (False, True):
        rows = np.flatnonzero(nonempty & (crosses == wraps) & (raw < _WORLD))
        raw[rows] = _widen_sparse(box[rows], term[rows], raw[rows], wraps)
    raw += np.where(crosses & (raw < _WORLD), _CROSSING, 0)
    used, number = np.unique(raw[nonempty], return_inverse=True)
    weight = np.bincount(number, np.where(term[nonempty] == 0, _TERMLESS_WEIGHT, 1), len(used)).astype(np.int64)
    kept, level = np.unique(_merge_levels(used, weight), return_inverse=True)
    of: Numbers = np.full(len(box), -1, np.int32)
    of[nonempty] = level[number]
    wraps_at = (kept > _CROSSING // 2) & (kept < _WORLD)
    exponent = STEP * (kept - np.where(wraps_at, _CROSSING, 0))
    scale = np.where(kept == _WORLD, 0.0, np.exp2(-np.minimum(exponent, _WIDEST).astype(np.float64)))
    return Levels(scale, wraps_at, of)


def _finest_levels(box: Floats) -> Integers:
    """Return the finest level that suits each box."""
    with np.errstate(invalid="ignore", over="ignore"):
        min_x, min_y, max_x, max_y = box.T
        width = np.where(min_x > max_x, np.maximum(180.0 - min_x, max_x + 180.0), max_x - min_x)
        side = np.maximum(np.maximum(width, max_y - min_y), 0.0)
        reach = np.abs(box).max(axis=1, initial=0.0)
    bounded = np.isfinite(side) & np.isfinite(reach)
    # A power of two above twice the side; the finest level for a point.
    by_side = np.where(side > 0, np.frexp(np.where(bounded, side, 1.0))[1] + 1, _FINEST)
    by_reach = np.frexp(np.where(bounded, reach, 0.0))[1] - _CELL_BITS
    exponent = np.maximum(np.maximum(by_side, by_reach), _FINEST)
    fits = bounded & (exponent <= _WIDEST)
    return np.where(fits, -(-exponent // STEP), _WORLD).astype(np.int64)


def _widen_sparse(box: Floats, term: Numbers, level: Integers, wraps: bool) -> Integers:
    """Move the boxes of sparse cells to wider levels."""
    here = int(level.min(initial=_WORLD))
    while here < _WORLD:
        rows = np.flatnonzero(level == here)
        next_used = int(level[level > here].min(initial=_WORLD))
        if len(rows) < SPARSE:  # on all levels in between, too
            level[rows] = here = next_used
            continue
        if next_used == _WORLD and STEP * (here + 1) > _WIDEST:
            level[rows] = _WORLD
            break
        cell, wider = (_cells(box[rows], at, wraps) for at in (here, here + 1))
        wider_and_term = wider.astype(np.uint64) << np.uint64(32) | term[rows].astype(np.uint64)
        moves = (_frequencies(cell) < SPARSE) & (_frequencies(dense_numbers(wider_and_term)[0]) < CROWD)
        level[rows[moves]] += 1
        here += 1
    return level


def _cells(box: Floats, level: int, wraps: bool) -> Numbers:
    return dense_numbers(cell_keys(box, 2.0 ** (-STEP * level), wraps))[0]


def _frequencies(number: Numbers) -> Integers:
    """Return for each element how often its number occurs."""
    return np.bincount(number)[number]


def _merge_levels(used: Integers, weight: Integers) -> Integers:
    """Merge small levels, and the smallest if there are too many, into the next wider; return the target of each."""
    target = used.copy()
    weights = dict(zip(used.tolist(), weight.tolist(), strict=True))
    few = min(int(weight.sum()) // _FEW_SHARE, _MAX_FEW)
    while bounded := [level for level in weights if level != _WORLD]:
        smallest = min(bounded, key=lambda level: (weights[level], level))
        if weights[smallest] >= few and len(weights) <= MAX_LEVELS:
            break
        wider = (level for level in bounded if level > smallest and _crosses(level) == _crosses(smallest))
        into = min(wider, default=_WORLD)
        target[target == smallest] = into
        weights[into] = weights.get(into, 0) + weights.pop(smallest)
    return target


def _crosses(level: int) -> bool:
    return level > _CROSSING // 2


def cell_keys(box: Floats, scale: float, wraps: bool) -> Keys:
    """Return the cell of the lower left corner of each box."""
    x = np.clip(box[:, 0], -180.0, 180.0) if wraps else box[:, 0]
    cell_x, cell_y = (np.floor(c * scale).astype(np.int64).astype(np.uint64) for c in (x, box[:, 1]))
    packed: Keys = (cell_x << np.uint64(32)) | (cell_y & np.uint64(0xFFFFFFFF))
    return packed


def dense_numbers(key: Keys) -> tuple[Numbers, int]:
    """Return dense numbers for keys, and how many distinct keys there are."""
    table: Numbers = np.full(1 << (2 * len(key)).bit_length(), -1, np.int32)
    number: Numbers = np.empty(len(key), np.int32)
    return number, number_keys(key, table, np.empty(len(key), np.uint64), number)
