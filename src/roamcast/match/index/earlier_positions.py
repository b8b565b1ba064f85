"""Earlier positions of moving regions, which still count for forwarded events that were published before a move."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from roamcast.match.index.segments import Arrays, MappedArrays, SegmentFolder
from roamcast.space import Floats, Space

__all__ = ["MOST", "EarlierPositions", "PositionsAt"]

Integers = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]

MOST: Final = 100
"""Earlier positions of a region. While it has so many, a position replaces the one before for all forwarded events."""

_COLUMNS: Final[Mapping[str, str]] = {
    "handle": "i8", "offset": "i8", "begin": "i8", "end": "i8", "x": "f8", "y": "f8", "drained": "?",
}  # fmt: skip


class PositionsAt(NamedTuple):
    """The positions that count at some times: whether the last one does, and the earlier ones.

    Earlier ones are pairs: the `key` is the index of a time, the `row` one of `EarlierPositions`.
    """

    is_last: Truths
    key: Integers
    row: Integers


class EarlierPositions:
    """The moves of regions of which the position before still counts. Immutable.

    Arrays by move, ordered by `handle` and then by journal `offset`: the position (`x`, `y`) before it counts for
    events with a time before `end`, the one after it from the time `begin` on. The first position that is known of a
    region counts from the beginning of time. `drained`: the move is forgotten with the next batch.
    """

    def __init__(self, mapped: MappedArrays, name: str | None = None) -> None:
        """`name` is that of its file, if it is written."""
        self._mapped = mapped
        self._name = name

    @classmethod
    def of(cls, arrays: Arrays) -> Self:
        return cls(MappedArrays.in_memory(arrays))

    @classmethod
    def none(cls) -> Self:
        return cls.of({name: np.empty(0, kind) for name, kind in _COLUMNS.items()})

    @classmethod
    def open(cls, folder: Path, name: str | None) -> Self:
        """Raises CorruptionError if the file is missing or damaged."""
        return cls.none() if name is None else cls(SegmentFolder(folder).open(name), name)

    def save(self, folder: Path) -> str | None:
        """Write a file durably, unless it is written, and return its name; None if there are no moves."""
        if self._name is None and len(self):
            self._name = SegmentFolder(folder).write(self.arrays)
        return self._name

    @property
    def arrays(self) -> Arrays:
        return self._mapped.arrays

    def __len__(self) -> int:
        return len(self.arrays["handle"])

    @property
    def has_drained(self) -> bool:
        return bool(self.arrays["drained"].any())

    def copy(self) -> Self:
        """The same, not written."""
        return type(self)(self._mapped)

    def select(self, kept: npt.NDArray[Any]) -> Self:
        """Without the moves that are not `kept`."""
        return self if kept.all() else self.of({name: array[kept] for name, array in self.arrays.items()})

    def add(self, moves: Arrays) -> Self:
        """With some moves more, ordered by handle, which come after all others of their regions. Up to MOST of each."""
        if not len(moves["handle"]):
            return self
        handle = np.concatenate([self.arrays["handle"], moves["handle"]])
        order = np.argsort(handle, kind="stable")
        first = np.flatnonzero(np.diff(handle[order], prepend=-1))
        number = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
        order = order[number < MOST]
        if len(order) == len(self):
            return self
        return self.of({name: np.concatenate([array, moves[name]])[order] for name, array in self.arrays.items()})

    def drain(self, through: Integers) -> Self:
        """Mark the moves that are drained, if those of the region are up to the offset `through` beside it."""
        drained = self.arrays["offset"] <= through
        return self if not drained.any() else self.of({**self.arrays, "drained": self.arrays["drained"] | drained})

    def farthest(self, space: Space, handle: Integers, x: Floats, y: Floats) -> Floats:
        """The largest distance of an earlier position of each region from (x, y); 0 if it has none."""
        key, row = self._rows_of(handle)
        farthest = np.zeros(len(handle))
        with np.errstate(over="ignore", invalid="ignore"):
            distance = space.distance(self.arrays["x"][row], self.arrays["y"][row], x[key], y[key])
        np.maximum.at(farthest, key, distance)
        return farthest

    def at(self, handle: Integers, time: Integers) -> PositionsAt:
        """Find the positions of each region that count at the time beside it."""
        key, row = self._rows_of(handle)
        has_begun = self.arrays["begin"][row] <= time[key]
        is_first, is_final = np.diff(key, prepend=-1) != 0, np.diff(key, append=-1) != 0
        is_last = np.ones(len(handle), np.bool_)
        is_last[key[is_final]] = has_begun[is_final]
        counts = (is_first | np.roll(has_begun, 1)) & (time[key] < self.arrays["end"][row])
        return PositionsAt(is_last, key[counts], row[counts])

    def _rows_of(self, handle: Integers) -> tuple[Integers, Integers]:
        """Pairs of an index of a handle and a row with this handle, ordered by both."""
        first, stop = (np.searchsorted(self.arrays["handle"], handle, side) for side in ("left", "right"))
        count = stop - first
        key = np.repeat(np.arange(len(handle)), count)
        return key, np.arange(len(key)) + np.repeat(first - np.cumsum(count) + count, count)
