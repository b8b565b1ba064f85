"""Levels of the grid: each box lives on one, whose cells are at least twice as wide as the box.

Cells of a level have the width of a power of two and begin at 0. Where few boxes share a cell they move to wider cells:
few cells with some boxes each cost less than many with one. Boxes that cross the antimeridian have levels of their own.
The last resort is the world: one cell without borders, for boxes without borders.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.match.kernels.cells import number_keys

__all__ = ["Levels", "cell_keys", "choose_levels", "numbered"]

Floats = npt.NDArray[np.float64]
Keys = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]

STEP: Final = 2  # the cells of a rung are 2**STEP times as wide as those of the rung below
SPARSE: Final = 16  # cells with fewer boxes than this give them to the next rung
MOST_LEVELS: Final = 16
_SHARE: Final = 256  # a level with less than this share of all boxes is not worth a look at every event
_MOST_FEW: Final = 1024
_FINEST: Final = -60  # exponents of the width of a cell
_WIDEST: Final = 960
_CELL_BITS: Final = 30  # so that cell numbers fit 32 bits with their sign
_CROSSING: Final = 1 << 20  # added to the rungs of boxes that cross
_WORLD: Final = 1 << 30  # the rung of the world


class Levels(NamedTuple):
    """Level i: coordinate times scale[i] is in units of cells (0: the world); wraps[i]: for boxes that cross.

    `of` has the level of each row, -1 for a box that holds no point at all.
    """

    scale: Floats
    wraps: npt.NDArray[np.bool_]
    of: Numbers


def choose_levels(box: Floats) -> Levels:
    """`box` has a row (min_x, min_y, max_x, max_y) for each subscription."""
    rung = _rungs(box)
    crosses = box[:, 0] > box[:, 2]
    holds = ~np.isnan(box).any(axis=1) & (box[:, 1] <= box[:, 3])
    for wraps in (False, True):
        rows = np.flatnonzero(holds & (crosses == wraps) & (rung < _WORLD))
        rung[rows] = _lifted(box[rows], rung[rows], wraps)
    rung += np.where(crosses & (rung < _WORLD), _CROSSING, 0)
    used, number, count = np.unique(rung[holds], return_inverse=True, return_counts=True)
    goal = _folded(used, count)
    kept, level = np.unique(goal, return_inverse=True)
    of: Numbers = np.full(len(box), -1, np.int32)
    of[holds] = level[number]
    wraps_at = (kept > _CROSSING // 2) & (kept < _WORLD)
    exponent = STEP * (kept - np.where(wraps_at, _CROSSING, 0))
    scale = np.where(kept == _WORLD, 0.0, np.exp2(-np.minimum(exponent, _WIDEST).astype(np.float64)))
    return Levels(scale, wraps_at, of)


def _rungs(box: Floats) -> Integers:
    """For each box the finest rung that suits it."""
    with np.errstate(invalid="ignore", over="ignore"):
        min_x, min_y, max_x, max_y = box.T
        width = np.where(min_x > max_x, np.maximum(180.0 - min_x, max_x + 180.0), max_x - min_x)
        side = np.maximum(np.maximum(width, max_y - min_y), 0.0)
        reach = np.abs(box).max(axis=1, initial=0.0)
    bounded = np.isfinite(side) & np.isfinite(reach)
    # A power of two above twice the side; a point is content with the finest.
    by_side = np.where(side > 0, np.frexp(np.where(bounded, side, 1.0))[1] + 1, _FINEST)
    by_reach = np.frexp(np.where(bounded, reach, 0.0))[1] - _CELL_BITS
    exponent = np.maximum(np.maximum(by_side, by_reach), _FINEST)
    fits = bounded & (exponent <= _WIDEST)
    return np.where(fits, -(-exponent // STEP), _WORLD).astype(np.int64)


def _lifted(box: Floats, rung: Integers, wraps: bool) -> Integers:
    """Rungs with the boxes of sparse cells moved up."""
    here = int(rung.min(initial=_WORLD))
    while here < _WORLD and (rung[rung < _WORLD] >= here).any():
        rows = np.flatnonzero(rung == here)
        is_top = not (rung[rung < _WORLD] > here).any()
        if is_top and (len(rows) < SPARSE or STEP * (here + 1) > _WIDEST):
            rung[rows] = _WORLD
        elif len(rows):
            number, count = numbered(cell_keys(box[rows], 2.0 ** (-STEP * here), wraps))
            each = np.bincount(number, minlength=count)
            rung[rows[each[number] < SPARSE]] += 1
        here += 1
    return rung


def _folded(used: Integers, count: Integers) -> Integers:
    """Where the boxes of each level go: those of levels with few, and of the rarest of too many, to the next wider."""
    goal = used.copy()
    boxes = dict(zip(used.tolist(), count.tolist(), strict=True))
    few = min(int(count.sum()) // _SHARE, _MOST_FEW)
    while narrower := [level for level in boxes if level != _WORLD]:
        rarest = min(narrower, key=lambda level: (boxes[level], level))
        if boxes[rarest] >= few and len(boxes) <= MOST_LEVELS:
            break
        wider = (level for level in narrower if level > rarest and _crossing(level) == _crossing(rarest))
        into = min(wider, default=_WORLD)
        goal[goal == rarest] = into
        boxes[into] = boxes.get(into, 0) + boxes.pop(rarest)
    return goal


def _crossing(level: int) -> bool:
    return level > _CROSSING // 2


def cell_keys(box: Floats, scale: float, wraps: bool) -> Keys:
    """The cell of one corner of each box."""
    x = np.clip(box[:, 0], -180.0, 180.0) if wraps else box[:, 0]
    cell_x, cell_y = (np.floor(c * scale).astype(np.int64).astype(np.uint64) for c in (x, box[:, 1]))
    packed: Keys = (cell_x << np.uint64(32)) | (cell_y & np.uint64(0xFFFFFFFF))
    return packed


def numbered(key: Keys) -> tuple[Numbers, int]:
    """Dense numbers for keys, and how many distinct ones there are."""
    table: Numbers = np.full(1 << (2 * len(key)).bit_length(), -1, np.int32)
    number: Numbers = np.empty(len(key), np.int32)
    return number, number_keys(key, table, np.empty(len(key), np.uint64), number)
