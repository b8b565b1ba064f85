"""Correlation: which subscriptions are matched by the same events.

Kept as a window of the last sampled events that matched at least two subscriptions, with some of those. So memory is
fixed and old events are forgotten. All correlations are computed from the window on demand.
"""

from __future__ import annotations

from typing import Final, Self

import numpy as np
import numpy.typing as npt

from roamcast.match.index.rows import sample_evenly

__all__ = ["Correlation"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]

_BATCH_EVENTS: Final = 256  # events that one batch may add to the window


class Correlation:
    """The correlation of two rows is the number of events in the window that matched both."""

    def __init__(self, window: Integers, added: int = 0) -> None:
        """A row of `window` holds the matches of one event, padded with -1."""
        self.window = window
        self.added = added

    @classmethod
    def empty(cls, events: int, matches: int) -> Self:
        return cls(np.full((events, matches), -1, np.int64))

    def observe(self, event: Integers, row: Integers) -> None:
        """Add the pairs of a batch, ordered by event. Samples if there are many events, or many matches of one."""
        first = np.flatnonzero(np.diff(event, prepend=-1))
        length = np.diff(np.append(first, len(event)))
        several = np.flatnonzero(length > 1)
        for one in several[sample_evenly(len(several), _BATCH_EVENTS)]:
            rows = row[first[one] + sample_evenly(int(length[one]), self.window.shape[1])]
            line = self.window[self.added % len(self.window)]
            line[: len(rows)], line[len(rows) :] = rows, -1
            self.added += 1

    def renumber(self, number: Integers) -> None:
        """Replace row numbers by others; -1 for removed rows."""
        used = self.window >= 0
        self.window[used] = number[self.window[used]]

    def incidence(self, category: Numbers, categories: int) -> Floats:
        """Return how many matches each event of the window has in each category."""
        of = np.where(self.window >= 0, category[self.window], -1) if len(category) else np.full_like(self.window, -1)
        event, column = np.nonzero(of >= 0)
        counts = np.bincount(event * categories + of[event, column], minlength=len(of) * categories)
        return counts.reshape(len(of), categories).astype(np.float64)

    def between(self, category: Numbers, categories: int) -> Floats:
        """Return the correlation of each two categories, the sum over their subscriptions; 0 on the diagonal."""
        counts = self.incidence(category, categories)
        matrix: Floats = counts.T @ counts
        np.fill_diagonal(matrix, 0.0)
        return matrix

    def of_rows(self, rows: Integers, category: Numbers, categories: int) -> Floats:
        """Return the correlation of each of these rows with each category, without that of a row with itself."""
        counts = self.incidence(category, categories)
        scores = np.zeros((len(rows), categories))
        order = np.argsort(rows)
        at = np.searchsorted(rows, self.window, sorter=order)
        at = order[np.minimum(at, len(rows) - 1)]
        event, column = np.nonzero((self.window >= 0) & (rows[at] == self.window))
        np.add.at(scores, at[event, column], counts[event])
        own = category[rows]
        np.subtract.at(scores, (at[event, column], own[at[event, column]]), 1.0)
        return scores
