"""The order of whole numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from roamcast.match.kernels.sorting import DIGITS, order_by

__all__ = ["order_of"]


def order_of(key: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    """The stable order of ascending keys, in linear time."""
    order, order_spare = np.empty(len(key), np.int32), np.empty(len(key), np.int32)
    order_by(key.copy(), order, np.empty(len(key), np.uint64), order_spare, np.empty(DIGITS, np.int64))
    return order
