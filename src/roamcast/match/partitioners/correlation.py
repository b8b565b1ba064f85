"""Correlation: which subscriptions are matched by the same events.

Kept as a window of the last sampled events that matched at least two subscriptions, with some of those. So memory is
fixed and old events are forgotten. All correlations are computed from the window on demand.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.match.index.rows import sample_evenly
from roamcast.match.kernels.clustering import NONE, MemberRows
from roamcast.match.kernels.correlating import CorrelationCache, WindowLists, replace_lines

__all__ = ["CategoryPairs", "Correlation"]

Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]

_BATCH_EVENTS: Final = 256  # events that one batch may add to the window


class CategoryPairs(NamedTuple):
    """Pairs of different categories that correlate, ordered, each in both directions; and how much they correlate."""

    one: Integers
    other: Integers
    points: Integers


class Correlation:
    """The correlation of two rows is the number of events in the window that matched both.

    That of two categories is the sum over their rows.
    """

    def __init__(self, events: int, matches: int, categories: int) -> None:
        entries = events * matches
        next_entry, previous = (np.full(entries, NONE, np.int32) for _ in range(2))
        head, partner, place = (np.full(categories, NONE, np.int32) for _ in range(3))
        best, listed = (np.zeros(categories, np.int32) for _ in range(2))
        self.window = WindowLists(np.full((events, matches), NONE, np.int64), next_entry, previous, head)
        self.cache = CorrelationCache(np.zeros(categories), best, partner, listed, place, np.array([0, NONE]))
        self.added = 0

    def observe(self, event: Integers, row: Integers, rows: MemberRows) -> None:
        """Add the pairs of a batch, ordered by event. Samples if there are many events, or many matches of one."""
        first = np.flatnonzero(np.diff(event, prepend=-1))
        length = np.diff(np.append(first, len(event)))
        several = np.flatnonzero(length > 1)
        several = several[sample_evenly(len(several), _BATCH_EVENTS)]
        lines = np.full((len(several), self.window.row.shape[1]), NONE, np.int64)
        for line, one in zip(lines, several, strict=True):
            sampled = sample_evenly(int(length[one]), len(line))
            line[: len(sampled)] = row[first[one] + sampled]
        self.add_lines(lines, rows)

    def add_lines(self, lines: Integers, rows: MemberRows) -> None:
        """Add the matches of events, a line each, padded with NONE."""
        replace_lines(self.window, self.cache, rows, self.added % len(self.window.row), lines)
        self.added += len(lines)

    def renumber(self, number: Integers) -> None:
        """Replace row numbers by others; NONE for removed rows."""
        used = self.window.row != NONE
        self.window.row[used] = number[self.window.row[used]]

    def invalidate(self) -> None:
        """Compute all correlations again: categories have moved to other workers."""
        self.cache.state[1] = NONE

    def pairs(self, category: Numbers) -> CategoryPairs:
        """Return all pairs of categories that correlate, given the category of each row."""
        of = np.full_like(self.window.row, NONE)
        used = self.window.row != NONE
        of[used] = category[self.window.row[used]]
        one, other = np.broadcast_arrays(of[:, :, np.newaxis], of[:, np.newaxis])
        some = (one != other) & (one != NONE) & (other != NONE)
        base = np.int64(len(self.window.head))
        key, points = np.unique(one[some] * base + other[some], return_counts=True)
        return CategoryPairs(*np.divmod(key, base), points)
