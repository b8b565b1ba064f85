"""Where subscriptions are on a space-filling curve: neighbours on it are neighbours in the plane."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from roamcast.match.index.rows import IndexRows
from roamcast.match.partitioners.categories import bounded
from roamcast.match.routing.features import least_terms

__all__ = ["curve_keys", "curve_keys_of_rows"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

_BITS: Final = 18  # of each axis on the curve
_OCTAVES: Final = 32  # that coordinates reach over, on either side of 0
_PRIME: Final = np.uint64(0x9E3779B97F4A7C15)


def curve_keys(handle: Integers, box: Floats, term: Keys) -> Floats:
    """From 0 to 1: by the centres of boxes, then by term, then by handle.

    Axes are logarithmic, so that the curve reaches as far as coordinates do, and is fine where they are small.
    """
    ours = bounded(box)
    centre = (ours[:, :2] + ours[:, 2:]) / 2
    along = 0.5 + np.sign(centre) * np.log2(1 + np.abs(centre)) / (2 * _OCTAVES)
    cell = np.clip(along * 2**_BITS, 0, 2**_BITS - 1).astype(np.int64)
    by_term, by_handle = (((c.astype(np.uint64) * _PRIME) >> np.uint64(56)).astype(np.float64) for c in (term, handle))
    return (_hilbert(cell[:, 0], cell[:, 1]) + (by_term + by_handle / 256) / 256) / 4**_BITS


def curve_keys_of_rows(rows: IndexRows) -> Floats:
    """By what rows themselves say, whatever else there is: so they are always the same."""
    return curve_keys(rows.handle, rows.box, least_terms(rows.terms))


def _hilbert(x: Integers, y: Integers) -> Floats:
    """The place of a cell on Hilbert's curve."""
    place = np.zeros(len(x), np.int64)
    x, y = x.copy(), y.copy()
    for bit in reversed(range(_BITS)):
        side = 1 << bit
        right, above = (x & side) > 0, (y & side) > 0
        place += side * side * ((3 * right) ^ above)
        flip = ~above & right
        x[flip], y[flip] = side - 1 - (x[flip] & (side - 1)), side - 1 - (y[flip] & (side - 1))
        turn = ~above
        x[turn], y[turn] = y[turn], x[turn].copy()
        x, y = x & (side - 1), y & (side - 1)
    return place.astype(np.float64)
