"""Keys of subscriptions on the Hilbert curve: what is close on the curve is close in the plane."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from roamcast.match.index.rows import IndexRows
from roamcast.match.routing.features import smallest_term_hashes

__all__ = ["bound_boxes", "curve_keys", "curve_keys_of_rows"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

_BITS: Final = 18  # of each axis on the curve
_OCTAVES: Final = 32  # of coordinates, on either side of 0
_PRIME: Final = np.uint64(0x9E3779B97F4A7C15)
_FARTHEST: Final = 1e9  # coordinates are clipped here


def curve_keys(handle: Integers, box: Floats, term: Keys) -> Floats:
    """Return keys from 0 to 1, ordered by the centre of the box on the curve, then by term, then by handle.

    Axes are logarithmic: the curve covers all coordinates and is fine where they are small.
    """
    bounded = bound_boxes(box)
    centre = (bounded[:, :2] + bounded[:, 2:]) / 2
    scaled = 0.5 + np.sign(centre) * np.log2(1 + np.abs(centre)) / (2 * _OCTAVES)
    cell = np.clip(scaled * 2**_BITS, 0, 2**_BITS - 1).astype(np.int64)
    by_term, by_handle = (((c.astype(np.uint64) * _PRIME) >> np.uint64(56)).astype(np.float64) for c in (term, handle))
    return (_hilbert(cell[:, 0], cell[:, 1]) + (by_term + by_handle / 256) / 256) / 4**_BITS


def curve_keys_of_rows(rows: IndexRows) -> Floats:
    """Return keys that only depend on the row itself, so that they never change."""
    return curve_keys(rows.handle, rows.box, smallest_term_hashes(rows.terms))


def bound_boxes(box: Floats) -> Floats:
    """Return boxes of finite area: clip unbounded boxes, and let those across the antimeridian span all longitudes."""
    finite = np.clip(np.nan_to_num(box, nan=0.0, posinf=_FARTHEST, neginf=-_FARTHEST), -_FARTHEST, _FARTHEST)
    crosses = finite[:, 0] > finite[:, 2]
    finite[crosses, 0], finite[crosses, 2] = -180.0, 180.0
    finite[:, 3] = np.maximum(finite[:, 1], finite[:, 3])
    return finite


def _hilbert(x: Integers, y: Integers) -> Floats:
    """Return the rank of each cell on the Hilbert curve."""
    rank = np.zeros(len(x), np.int64)
    x, y = x.copy(), y.copy()
    for bit in reversed(range(_BITS)):
        side = 1 << bit
        right, above = (x & side) > 0, (y & side) > 0
        rank += side * side * ((3 * right) ^ above)
        flip = ~above & right
        x[flip], y[flip] = side - 1 - (x[flip] & (side - 1)), side - 1 - (y[flip] & (side - 1))
        swap = ~above
        x[swap], y[swap] = y[swap], x[swap].copy()
        x, y = x & (side - 1), y & (side - 1)
    return rank.astype(np.float64)
