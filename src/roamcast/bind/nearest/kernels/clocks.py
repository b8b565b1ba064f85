"""A kernel that takes moves in turn: which of them count, by the time at which each entity was seen last."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from roamcast.bind.nearest.kernels.layout import Integers, Rows
from roamcast.compiled import kernel

__all__ = ["CLOCK", "NEVER", "take"]

CLOCK: Final = np.dtype(
    [
        ("time", "i8"),  # of the last position
        ("turn", "i8"),  # a number that grows with every move that counts
    ]
)
NEVER: Final = np.iinfo(np.int64).min


@kernel
def take(
    clock: Rows,
    turn: int,
    handles: Integers,
    times: npt.NDArray[np.int64],
    rows: Integers,
    first: npt.NDArray[np.bool_],
) -> tuple[int, int]:
    """Note for each entity the row of its last move that counts, and whether its position was not known before.

    What is older than what is known does not count. Turns below `turn` are of earlier calls. Returns how many entities
    moved, and how many moves did not count.
    """
    n = stale = 0
    for i in range(handles.size):
        c = clock[handles[i]]
        if times[i] < c.time:
            stale += 1
            continue
        if c.turn < turn:
            first[n] = c.time == NEVER
            c.turn = turn + n
            n += 1
        rows[c.turn - turn] = i
        c.time = times[i]
    return n, stale
