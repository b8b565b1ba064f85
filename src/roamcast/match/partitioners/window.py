"""A sample of what was observed lately, of fixed size."""

from __future__ import annotations

from typing import Final, Self

import numpy as np
import numpy.typing as npt

from roamcast.match.index.rows import sample_evenly
from roamcast.match.index.segments import Arrays

__all__ = ["Window", "sampled"]

Floats = npt.NDArray[np.float64]

_SIZE: Final = 1 << 15
_AT_ONCE: Final = 1 << 12


def sampled(count: int) -> npt.NDArray[np.int64]:
    """Some of so many, evenly spread."""
    return sample_evenly(count, _AT_ONCE)


class Window:
    """Rows of numbers, the last 32,768."""

    def __init__(self, width: int) -> None:
        self._rows: Floats = np.empty((_SIZE, width))
        self._seen = 0

    def put(self, rows: Floats) -> None:
        rows = rows[-_SIZE:]
        self._rows[(self._seen + np.arange(len(rows))) % _SIZE] = rows
        self._seen += len(rows)

    def forget(self) -> None:
        self._seen = 0

    @property
    def rows(self) -> Floats:
        return self._rows[: min(self._seen, _SIZE)]

    def arrays(self) -> Arrays:
        return {"window": self.rows, "seen": np.array([self._seen])}

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> Self:
        self = cls(arrays["window"].shape[1])
        self._rows[: len(arrays["window"])] = arrays["window"]
        self._seen = int(arrays["seen"][0])
        return self
