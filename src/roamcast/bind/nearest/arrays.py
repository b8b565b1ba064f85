"""Helpers for arrays that grow and are indexed by handles."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from roamcast.bind.nearest.kernels.layout import Int32s, Rows

__all__ = ["MIN_ROWS", "NO_INTEGERS", "NO_MEMBERSHIPS", "HandleAllocator", "Membership", "Memberships", "Run", "grow"]

Run: TypeAlias = Callable[[Callable[[int], Any], Iterable[int]], Iterable[Any]]
"""Calls a function for each lane, perhaps concurrently: `map`, or an executor's `map`."""

NO_INTEGERS = np.empty(0, np.int32)

Membership: TypeAlias = tuple[int, int]
"""A source and a group, by handle."""
Memberships: TypeAlias = tuple[npt.ArrayLike, npt.ArrayLike]
"""Many of them: sources, and a group of each."""
NO_MEMBERSHIPS: Final[Memberships] = (NO_INTEGERS, NO_INTEGERS)

MIN_ROWS = 2
"""A column of fewer records counts as contiguous, and numba would compile kernels for that once more."""


def grow(rows: Rows, size: int) -> Rows:
    """Return `rows`, or a copy with at least `size` rows, the new ones zero. The size at least doubles."""
    if size <= len(rows):
        return rows
    larger = np.zeros(max(size, 2 * len(rows)), rows.dtype)
    larger[: len(rows)] = rows
    return larger


class HandleAllocator:
    """Allocates dense row numbers, and uses released ones again."""

    def __init__(self) -> None:
        self.count = 0
        """One more than the highest handle ever allocated."""
        self._free: list[int] = []

    def allocate(self, count: int) -> Int32s:
        split = max(len(self._free) - count, 0)
        reused = np.array(self._free[split:], np.int32)
        del self._free[split:]
        new = np.arange(self.count, self.count + count - len(reused), dtype=np.int32)
        self.count += len(new)
        return np.concatenate([reused, new])

    def release(self, handles: Int32s) -> None:
        self._free += handles.tolist()
