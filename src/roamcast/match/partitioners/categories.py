"""Rt-Cluster: assigns subscriptions to categories as they come, without training.

Matches never depend on categories; they only say which subscriptions to keep together. Terms are known by their hashes;
two that collide count as one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from roamcast.compiled import read_only
from roamcast.errors import InputError
from roamcast.match.index.rows import IndexRows, gather_ragged
from roamcast.match.index.segments import Arrays
from roamcast.match.kernels.clustering import (
    MIN_CAPACITY,
    NONE,
    CategorySlots,
    MemberRows,
    SimilaritySettings,
    TermCounts,
    add_rows,
    join_categories,
    leave_categories,
    list_members,
    merge_categories,
    rehash_counts,
)
from roamcast.match.partitioners.correlation import Correlation
from roamcast.match.partitioners.hilbert import bound_boxes
from roamcast.match.routing.features import hash_terms

__all__ = ["Categories", "CategoryParameters", "FoundedCategory"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CategoryParameters:
    """The paper's parameters by the paper's names, and our choices for what it leaves open.

    `max_categories` is CMaxNumTh. `frequencies` off is Sim-NonFre: terms of a category count once each. `correlation`
    off merges by similarity alone. `least_area` is the smallest area of a category, one cell of the grid. The capacity
    of a category is `max_relative_size` times the mean size (as if there were `max_categories`), at least 8; otherwise
    one giant category would win every comparison. Correlation is computed over the last `window` events, with `matches`
    of each.
    """

    max_categories: int
    alpha: float = 0.5
    new_threshold: float = 0.5
    frequencies: bool = True
    correlation: bool = True
    least_area: float = 25.0
    max_relative_size: float = 4.0
    window: int = 1024
    matches: int = 16

    def __post_init__(self) -> None:
        if self.max_categories < 1 or not 0 <= self.alpha < 1 or self.least_area <= 0 or self.max_relative_size < 2:
            raise InputError(
                "categories need max_categories >= 1, 0 <= alpha < 1, least_area > 0 and max_relative_size >= 2",
                where="categories",
            )
        if self.window < 1 or self.matches < 2:
            raise InputError("categories need window >= 1 and matches >= 2", where="categories")


class FoundedCategory(NamedTuple):
    """A new category; `like` is the one that is most similar to its first member (or NONE), and how similar."""

    category: int
    like: int
    similarity: float


class Categories:
    """The categories of all current subscriptions, at most `parameters.max_categories` between two calls."""

    def __init__(self, parameters: CategoryParameters) -> None:
        self.parameters = parameters
        self.correlation = Correlation.empty(parameters.window, parameters.matches)
        count = parameters.max_categories + 1
        self.handle: Integers = np.empty(0, np.int64)
        self.rows = MemberRows(
            np.empty((0, 4)),
            np.zeros(1, np.int64),
            np.empty(0, np.uint64),
            np.empty(0, np.int32),
            np.empty(0, np.int32),
        )
        size, total, distinct = (np.zeros(count, np.int64) for _ in range(3))
        head, tail = (np.full(count, NONE, np.int32) for _ in range(2))
        self.slots = CategorySlots(size, total, distinct, np.zeros((count, 4)), head, tail)
        self._counts = _empty_counts(64)
        self._status = np.zeros(4, np.int64)  # see `add_rows`
        self._matrix: Floats | None = None

    def add(self, rows: IndexRows) -> None:
        """Add subscriptions, and merge categories when there are too many.

        Handles are new and ascending, within a call and from call to call.
        """
        for founded in self.add_founding(rows):
            self._limit(founded)

    def add_founding(self, rows: IndexRows) -> Iterator[FoundedCategory]:
        """Like `add`, but yield each new category; the caller must merge when there are too many (see `is_full`)."""
        begin, end = self._append(rows)
        parameters = self.parameters
        settings = SimilaritySettings(
            parameters.alpha, parameters.new_threshold, parameters.frequencies, parameters.least_area,
            parameters.max_relative_size,
        )  # fmt: skip
        similarity = np.empty(1)
        self._reserve(int(self.rows.first[end] - self.rows.first[begin]))
        while begin < end:
            begin = add_rows(self.rows, self.slots, self._counts, settings, begin, end, self._status, similarity)
            if self._status[2] != NONE:
                yield FoundedCategory(int(self._status[2]), int(self._status[3]), float(similarity[0]))
                self._reserve(int(self.rows.first[end] - self.rows.first[begin]))

    def remove(self, handles: Integers) -> Integers:
        """Remove subscriptions and return the categories they were in. Unknown handles are ignored."""
        rows = self.find(handles)
        categories = self.rows.category[rows].astype(np.int64)
        leave_categories(self.rows, self.slots, self._counts, read_only(rows))
        self._status[0], self._status[1] = (self.slots.size > 0).sum(), self._status[1] - len(rows)
        if len(self.handle) > 2 * self._status[1] + 1024:
            self._compact()
        self._matrix = None
        return categories

    def observe(self, event: Integers, handle: Integers) -> None:
        """Learn from the matches of a batch, ordered by event."""
        rows, known = self._find(handle)
        self.correlation.observe(event[known], rows[known])
        self._matrix = None

    @property
    def is_full(self) -> bool:
        """Whether there is one category too many."""
        return bool(self._status[0] > self.parameters.max_categories)

    @property
    def capacity(self) -> float:
        """How many members a category may have."""
        return max(
            float(MIN_CAPACITY),
            self.parameters.max_relative_size * int(self._status[1]) / self.parameters.max_categories,
        )

    @property
    def matrix(self) -> Floats:
        """The correlation of each two categories."""
        if self._matrix is None:
            self._matrix = self.correlation.between(self.rows.category, len(self.slots.size))
        return self._matrix

    @property
    def live(self) -> Integers:
        return np.flatnonzero(self.slots.size)

    def find(self, handles: Integers) -> Integers:
        """Return the rows of known handles."""
        rows, known = self._find(np.asarray(handles, np.int64))
        return rows[known]

    def of(self, handles: Integers) -> Integers:
        """Return the category of each handle; NONE for unknown handles."""
        rows, known = self._find(np.asarray(handles, np.int64))
        return np.where(known, self.rows.category[rows] if len(self.handle) else NONE, NONE).astype(np.int64)

    def members(self, category: int) -> Integers:
        """Return the rows of a category."""
        rows = np.empty(self.slots.size[category], np.int32)
        return rows[: list_members(self.rows, self.slots, category, rows)].astype(np.int64)

    def merge(self, source: int, target: int) -> Integers:
        """Move all members of `source` to `target` and return their rows."""
        rows = self.members(source)
        self._reserve(self._term_count(rows))
        merge_categories(self.rows, self.slots, self._counts, source, target)
        self._status[0] -= 1
        if self._matrix is not None:
            self._matrix[target] += self._matrix[source]
            self._matrix[:, target] += self._matrix[:, source]
            self._matrix[source] = self._matrix[:, source] = self._matrix[target, target] = 0.0
        return rows

    def move(self, rows: Integers, categories: Integers) -> None:
        """Move rows, all members of some categories, to the categories beside them."""
        self._reserve(self._term_count(rows))
        leave_categories(self.rows, self.slots, self._counts, read_only(rows))
        join_categories(self.rows, self.slots, self._counts, read_only(rows), read_only(categories))
        self._status[0] = (self.slots.size > 0).sum()
        self._matrix = None

    def arrays(self) -> Arrays:
        """Return the whole state, to be stored in a file."""
        self._compact()
        rows = {name: getattr(self.rows, name) for name in ("box", "first", "term", "category")}
        window = {"window": self.correlation.window, "added": np.array([self.correlation.added])}
        return {"handle": self.handle, **rows, "bounds": self.slots.box, **window}

    @classmethod
    def of_arrays(cls, parameters: CategoryParameters, arrays: Arrays) -> Self:
        """Restore the state that `arrays` returned."""
        self = cls(parameters)
        self.correlation = Correlation(arrays["window"].copy(), int(arrays["added"][0]))
        self.handle = arrays["handle"].copy()
        none = np.full(len(self.handle), NONE, np.int32)
        box, first, term = (arrays[name].copy() for name in ("box", "first", "term"))
        self.rows = MemberRows(box, first, term, none, none.copy())
        self._reserve(len(self.rows.term))
        rows, categories = np.arange(len(self.handle)), arrays["category"].astype(np.int64)
        join_categories(self.rows, self.slots, self._counts, read_only(rows), read_only(categories))
        self.slots.box[:] = arrays["bounds"]
        self._status[:2] = (self.slots.size > 0).sum(), len(self.handle)
        return self

    def _limit(self, founded: FoundedCategory) -> None:
        """If there is one too many, merge the two most correlated categories that fit, else the new one with `like`."""
        if not self.is_full:
            return
        if self.parameters.correlation and self.correlation.added:
            size = self.slots.size
            fits = (size[:, np.newaxis] + size) <= self.capacity
            matrix = self.matrix * fits
            one, other = divmod(int(matrix.argmax()), len(size))
            if matrix[one, other] > 0:
                small, large = sorted((one, other), key=lambda each: (size[each], each))
                self.merge(small, large)
                return
        self.merge(founded.category, founded.like)

    def _append(self, rows: IndexRows) -> tuple[int, int]:
        begin = len(self.handle)
        count = len(rows.handle)
        if count and (np.diff(rows.handle, prepend=self.handle[-1] if begin else -1) <= 0).any():
            raise InputError("handles must be ascending", where="categories")
        none = np.full(count, NONE, np.int32)
        self.handle = np.append(self.handle, rows.handle)
        self.rows = MemberRows(
            np.concatenate([self.rows.box, bound_boxes(rows.box)]),
            np.append(self.rows.first, self.rows.first[-1] + rows.terms.first[1:]),
            np.append(self.rows.term, hash_terms(rows.terms)),
            np.append(self.rows.category, none),
            np.append(self.rows.next, none),
        )
        return begin, begin + count

    def _term_count(self, rows: Integers) -> int:
        return int((self.rows.first[rows + 1] - self.rows.first[rows]).sum())

    def _reserve(self, terms: int) -> None:
        """Make room for this many more terms in a table that stays half empty."""
        if 2 * (self._counts.used[0] + terms + 1) > len(self._counts.frequency):
            live = int((self._counts.frequency > 0).sum())
            counts = _empty_counts(4 * (live + terms + 16))
            rehash_counts(self._counts, counts)
            self._counts = counts

    def _compact(self) -> None:
        """Drop removed rows, and order the members of each category by row."""
        kept = np.flatnonzero(self.rows.category != NONE)
        if len(kept) == len(self.handle):
            return
        number = np.full(len(self.handle), -1, np.int64)
        number[kept] = np.arange(len(kept))
        self.correlation.renumber(number)
        first, at = gather_ragged(self.rows.first[:-1], np.diff(self.rows.first), kept)
        category = self.rows.category[kept]
        order = np.argsort(category, kind="stable")
        next_row = np.full(len(kept), NONE, np.int32)
        same = category[order[1:]] == category[order[:-1]]
        next_row[order[:-1][same]] = order[1:][same]
        self.slots.head[category[order[::-1]]] = order[::-1]
        self.slots.tail[category[order]] = order
        self.handle = self.handle[kept]
        self.rows = MemberRows(self.rows.box[kept], first, self.rows.term[at], category, next_row)

    def _find(self, handles: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Return the rows of handles, and which of them are known."""
        if not len(self.handle):
            return np.zeros(len(handles), np.int64), np.zeros(len(handles), np.bool_)
        rows = np.minimum(np.searchsorted(self.handle, handles), len(self.handle) - 1)
        return rows, (self.handle[rows] == handles) & (self.rows.category[rows] != NONE)


def _empty_counts(least: int) -> TermCounts:
    size = 1 << max(least - 1, 0).bit_length()
    return TermCounts(
        np.zeros(size, np.uint64), np.full(size, NONE, np.int32), np.zeros(size, np.int32), np.zeros(1, np.int64)
    )
