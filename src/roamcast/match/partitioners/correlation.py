"""Which subscriptions are matched by the same events.

Kept as a window: of the last sampled events that matched at least two, some of the subscriptions they matched. So it is
sparse, its size is fixed, and what is past is forgotten. Everything else is counted from it when it is asked for.
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

_AT_ONCE: Final = 256  # events that one batch may put into the window


class Correlation:
    """Pairs of rows get one point for each event of the window that matched both."""

    def __init__(self, window: Integers, seen: int = 0) -> None:
        """A row of the window has the matches of one event; -1 where there are no more."""
        self.window = window
        self.seen = seen

    @classmethod
    def of_nothing(cls, events: int, matches: int) -> Self:
        return cls(np.full((events, matches), -1, np.int64))

    def observe(self, event: Integers, row: Integers) -> None:
        """Pairs of a batch, ordered by event. Of many events, and of many matches, some are taken."""
        first = np.flatnonzero(np.diff(event, prepend=-1))
        length = np.diff(np.append(first, len(event)))
        several = np.flatnonzero(length > 1)
        for one in several[sample_evenly(len(several), _AT_ONCE)]:
            rows = row[first[one] + sample_evenly(int(length[one]), self.window.shape[1])]
            line = self.window[self.seen % len(self.window)]
            line[: len(rows)], line[len(rows) :] = rows, -1
            self.seen += 1

    def renumber(self, number: Integers) -> None:
        """Rows get other numbers; -1 for those that are gone."""
        there = self.window >= 0
        self.window[there] = number[self.window[there]]

    def incidence(self, category: Numbers, categories: int) -> Floats:
        """For each event of the window how many of its matches are in each category."""
        of = np.where(self.window >= 0, category[self.window], -1) if len(category) else np.full_like(self.window, -1)
        event, place = np.nonzero(of >= 0)
        counts = np.bincount(event * categories + of[event, place], minlength=len(of) * categories)
        return counts.reshape(len(of), categories).astype(np.float64)

    def between(self, category: Numbers, categories: int) -> Floats:
        """The correlation of each two categories: the sum over their subscriptions; 0 of a category with itself."""
        counts = self.incidence(category, categories)
        matrix: Floats = counts.T @ counts
        np.fill_diagonal(matrix, 0.0)
        return matrix

    def of_rows(self, rows: Integers, category: Numbers, categories: int) -> Floats:
        """The correlation of each of these rows with each category, its own points with itself left out."""
        counts = self.incidence(category, categories)
        found = np.zeros((len(rows), categories))
        order = np.argsort(rows)
        at = np.searchsorted(rows, self.window, sorter=order)
        at = order[np.minimum(at, len(rows) - 1)]
        event, place = np.nonzero((self.window >= 0) & (rows[at] == self.window))
        np.add.at(found, at[event, place], counts[event])
        own = category[rows]
        np.subtract.at(found, (at[event, place], own[at[event, place]]), 1.0)
        return found
