"""Samples of recent events and of their load, of fixed size."""

from __future__ import annotations

from typing import Final, Self

import numpy as np
import numpy.typing as npt

from roamcast.match.index.rows import gather_ragged, sample_evenly
from roamcast.match.index.segments import Arrays
from roamcast.match.routing.features import HashedEvents

__all__ = ["SAMPLE_SIZE", "EventSample", "SlidingWindow"]

Floats = npt.NDArray[np.float64]

SAMPLE_SIZE: Final = 1 << 12  # of one batch
_MAX_EVENTS: Final = 1 << 16
_MAX_ROWS: Final = 1 << 15


class EventSample:
    """The last 65,536 events of the samples of all batches."""

    def __init__(self, events: HashedEvents | None = None) -> None:
        empty = HashedEvents(np.empty(0), np.empty(0), np.zeros(1, np.int64), np.empty(0, np.uint64))
        self.events = empty if events is None else events

    def add(self, events: HashedEvents) -> None:
        """Add a sample of a batch."""
        new = sample_evenly(len(events.x), SAMPLE_SIZE)
        old = np.arange(max(len(self.events.x) + len(new) - _MAX_EVENTS, 0), len(self.events.x))
        parts = [_select(self.events, old), _select(events, new)]
        x, y, term = (np.concatenate([getattr(part, name) for part in parts]) for name in ("x", "y", "term"))
        first = np.append(parts[0].first, parts[0].first[-1] + parts[1].first[1:])
        self.events = HashedEvents(x, y, first, term)

    def arrays(self) -> Arrays:
        return {f"sample_{name}": array for name, array in self.events._asdict().items()}

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> Self:
        return cls(HashedEvents(*(arrays[f"sample_{name}"].copy() for name in HashedEvents._fields)))


class SlidingWindow:
    """The last 32,768 of all rows, each of `width` numbers."""

    def __init__(self, width: int) -> None:
        self._rows: Floats = np.empty((_MAX_ROWS, width))
        self._added = 0

    def add(self, rows: Floats) -> None:
        rows = rows[-_MAX_ROWS:]
        self._rows[(self._added + np.arange(len(rows))) % _MAX_ROWS] = rows
        self._added += len(rows)

    def clear(self) -> None:
        self._added = 0

    @property
    def rows(self) -> Floats:
        return self._rows[: min(self._added, _MAX_ROWS)]

    def arrays(self) -> Arrays:
        return {"window": self.rows, "added": np.array([self._added])}

    @classmethod
    def of_arrays(cls, arrays: Arrays) -> Self:
        self = cls(arrays["window"].shape[1])
        self._rows[: len(arrays["window"])] = arrays["window"]
        self._added = int(arrays["added"][0])
        return self


def _select(events: HashedEvents, rows: npt.NDArray[np.int64]) -> HashedEvents:
    first, at = gather_ragged(events.first[:-1], np.diff(events.first), rows)
    return HashedEvents(events.x[rows], events.y[rows], first, events.term[at])
