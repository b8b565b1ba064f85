"""Lists of different lengths that lie one after another in one array."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["taken"]

Integers = npt.NDArray[np.int64]


def taken(first: Integers, length: Integers, rows: Integers) -> tuple[Integers, Integers]:
    """Some of the lists, where list i has length[i] elements from first[i] on.

    Returns where each begins when they lie one after another, with one beginning more, and where its elements are now.
    """
    begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(length[rows])])
    return begins, np.repeat(first[rows] - begins[:-1], length[rows]) + np.arange(begins[-1])
