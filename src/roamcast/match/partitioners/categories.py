"""Rt-Cluster: subscriptions are put into categories as they come, without training.

Matches never depend on categories: they only say which subscriptions are worth keeping together. Terms are known by
hashes; two that collide count as one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from roamcast.errors import InputError
from roamcast.match.index.rows import IndexRows, gather_ragged
from roamcast.match.index.segments import Arrays
from roamcast.match.kernels.clustering import (
    LEAST_ROOM,
    NOBODY,
    Counts,
    Members,
    Reading,
    Slots,
    absorb,
    admit,
    join,
    leave,
    members,
    regrow,
)
from roamcast.match.partitioners.correlation import Correlation
from roamcast.match.routing.features import hashed_terms

__all__ = ["Categories", "Founded", "Parameters", "bounded"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]

_FARTHEST: Final = 1e9  # boxes end here, so that they have an area


@dataclass(frozen=True, slots=True)
class Parameters:
    """The paper's parameters by the paper's names, and our readings of what it leaves open.

    `most` is CMaxNumTh. `frequencies` off is Sim-NonFre: a term of a category counts as one of its distinct ones.
    `correlation` off merges by similarity alone. `least_area` is the smallest area a category is taken to have, one
    cell of the grid. A category has room for `largest` times the mean size (if there were `most`), eight at least: or
    one giant category would win every comparison. Correlation is counted over the last `window` events, `matches` of
    each.
    """

    most: int
    alpha: float = 0.5
    new_threshold: float = 0.5
    frequencies: bool = True
    correlation: bool = True
    least_area: float = 25.0
    largest: float = 4.0
    window: int = 1024
    matches: int = 16

    def __post_init__(self) -> None:
        if self.most < 1 or not 0 <= self.alpha < 1 or self.least_area <= 0 or self.largest < 2:
            raise InputError("most >= 1, 0 <= alpha < 1, least_area > 0 and largest >= 2", where="categories")
        if self.window < 1 or self.matches < 2:
            raise InputError("window >= 1 and matches >= 2", where="categories")


class Founded(NamedTuple):
    """A subscription has founded a category; `like` is the one it is most similar to, or NOBODY; and how similar."""

    category: int
    like: int
    similarity: float


class Categories:
    """The categories of all subscriptions that are here, at most `parameters.most` of them between two calls."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        self.correlation = Correlation.of_nothing(parameters.window, parameters.matches)
        count = parameters.most + 1
        self.handle: Integers = np.empty(0, np.int64)
        self.rows = Members(
            np.empty((0, 4)),
            np.zeros(1, np.int64),
            np.empty(0, np.uint64),
            np.empty(0, np.int32),
            np.empty(0, np.int32),
        )
        size, total, distinct = (np.zeros(count, np.int64) for _ in range(3))
        head, tail = (np.full(count, NOBODY, np.int32) for _ in range(2))
        self.slots = Slots(size, total, distinct, np.zeros((count, 4)), head, tail)
        self._counts = _empty_counts(64)
        self._told = np.zeros(4, np.int64)
        self._matrix: Floats | None = None

    def add(self, rows: IndexRows) -> None:
        """Handles are new, and ascend from call to call and within one. Merges whenever there are too many."""
        for founded in self.founding(rows):
            self._settle(founded)

    def founding(self, rows: IndexRows) -> Iterator[Founded]:
        """As `add`, but whoever takes the `Founded` it yields must merge when there are too many (see `is_full`)."""
        begin, end = self._append(rows)
        reading = Reading(
            self.parameters.alpha, self.parameters.new_threshold, self.parameters.frequencies,
            self.parameters.least_area, self.parameters.largest,
        )  # fmt: skip
        similarity = np.empty(1)
        self._make_room(int(self.rows.first[end] - self.rows.first[begin]))
        while begin < end:
            begin = admit(self.rows, self.slots, self._counts, reading, begin, end, self._told, similarity)
            if self._told[2] != NOBODY:
                yield Founded(int(self._told[2]), int(self._told[3]), float(similarity[0]))
                self._make_room(int(self.rows.first[end] - self.rows.first[begin]))

    def remove(self, handles: Integers) -> Integers:
        """Those that are not here are passed over. Returns the categories that the others were in."""
        rows = self.find(handles)
        was = self.rows.category[rows].astype(np.int64)
        for row in rows.tolist():
            leave(self.rows, self.slots, self._counts, row)
        self._told[0], self._told[1] = (self.slots.size > 0).sum(), self._told[1] - len(rows)
        if len(self.handle) > 2 * self._told[1] + 1024:
            self._compact()
        self._matrix = None
        return was

    def observe(self, event: Integers, handle: Integers) -> None:
        """Matches of a batch of events, ordered by event."""
        rows, here = self._places(handle)
        self.correlation.observe(event[here], rows[here])
        self._matrix = None

    @property
    def is_full(self) -> bool:
        """There is one more than there may be."""
        return bool(self._told[0] > self.parameters.most)

    @property
    def room(self) -> float:
        """How many members a category may have."""
        return max(float(LEAST_ROOM), self.parameters.largest * int(self._told[1]) / self.parameters.most)

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
        """The rows of those that are here."""
        rows, here = self._places(np.asarray(handles, np.int64))
        return rows[here]

    def of(self, handles: Integers) -> Integers:
        """The category of each; NOBODY for what is not here."""
        rows, here = self._places(np.asarray(handles, np.int64))
        return np.where(here, self.rows.category[rows] if len(self.handle) else NOBODY, NOBODY).astype(np.int64)

    def members(self, category: int) -> Integers:
        """The rows of a category."""
        found = np.empty(self.slots.size[category], np.int32)
        return found[: members(self.rows, self.slots, category, found)].astype(np.int64)

    def absorb(self, source: int, target: int) -> Integers:
        """All of one category join another. Returns their rows."""
        rows = self.members(source)
        self._make_room(int((self.rows.first[rows + 1] - self.rows.first[rows]).sum()))
        absorb(self.rows, self.slots, self._counts, source, target)
        self._told[0] -= 1
        if self._matrix is not None:
            self._matrix[target] += self._matrix[source]
            self._matrix[:, target] += self._matrix[:, source]
            self._matrix[source] = self._matrix[:, source] = self._matrix[target, target] = 0.0
        return rows

    def move(self, rows: Integers, categories: Integers) -> None:
        """IndexRows, which are all of some categories, join others, each the one beside it."""
        self._make_room(int((self.rows.first[rows + 1] - self.rows.first[rows]).sum()))
        for row in rows.tolist():
            leave(self.rows, self.slots, self._counts, row)
        for row, category in zip(rows.tolist(), categories.tolist(), strict=True):
            join(self.rows, self.slots, self._counts, row, category)
        self._told[0] = (self.slots.size > 0).sum()
        self._matrix = None

    def arrays(self) -> Arrays:
        """All there is to it, for a file."""
        self._compact()
        rows = {name: getattr(self.rows, name) for name in ("box", "first", "term", "category")}
        window = {"window": self.correlation.window, "seen": np.array([self.correlation.seen])}
        return {"handle": self.handle, **rows, "bounds": self.slots.box, **window}

    @classmethod
    def of_arrays(cls, parameters: Parameters, arrays: Arrays) -> Self:
        """As it was when it gave these `arrays`."""
        self = cls(parameters)
        self.correlation = Correlation(arrays["window"].copy(), int(arrays["seen"][0]))
        self.handle = arrays["handle"].copy()
        category = arrays["category"]
        nobody = np.full(len(self.handle), NOBODY, np.int32)
        box, first, term = (arrays[name].copy() for name in ("box", "first", "term"))
        self.rows = Members(box, first, term, nobody, nobody.copy())
        self._make_room(len(self.rows.term))
        for row, joined in enumerate(category.tolist()):
            join(self.rows, self.slots, self._counts, row, joined)
        self.slots.box[:] = arrays["bounds"]
        self._told[:2] = (self.slots.size > 0).sum(), len(self.handle)
        return self

    def _settle(self, founded: Founded) -> None:
        """Merge the two most correlated categories that fit; if none are, the one just founded with its like."""
        if not self.is_full:
            return
        if self.parameters.correlation and self.correlation.seen:
            size = self.slots.size
            fits = (size[:, np.newaxis] + size) <= self.room
            matrix = self.matrix * fits
            one, other = divmod(int(matrix.argmax()), len(size))
            if matrix[one, other] > 0:
                small, large = sorted((one, other), key=lambda each: (size[each], each))
                self.absorb(small, large)
                return
        self.absorb(founded.category, founded.like)

    def _append(self, rows: IndexRows) -> tuple[int, int]:
        begin = len(self.handle)
        count = len(rows.handle)
        if count and (np.diff(rows.handle, prepend=self.handle[-1] if begin else -1) <= 0).any():
            raise InputError("handles must ascend", where="categories")
        nobody = np.full(count, NOBODY, np.int32)
        term = hashed_terms(rows.terms)
        self.handle = np.append(self.handle, rows.handle)
        self.rows = Members(
            np.concatenate([self.rows.box, bounded(rows.box)]),
            np.append(self.rows.first, self.rows.first[-1] + rows.terms.first[1:]),
            np.append(self.rows.term, term),
            np.append(self.rows.category, nobody),
            np.append(self.rows.next, nobody),
        )
        return begin, begin + count

    def _make_room(self, terms: int) -> None:
        """So that `counts` takes so many more, and stays half empty."""
        if 2 * (self._counts.used[0] + terms + 1) > len(self._counts.often):
            live = int((self._counts.often > 0).sum())
            grown = _empty_counts(4 * (live + terms + 16))
            regrow(self._counts, grown)
            self._counts = grown

    def _compact(self) -> None:
        """Forget the rows that are gone, and forget in which order the others joined."""
        kept = np.flatnonzero(self.rows.category != NOBODY)
        if len(kept) == len(self.handle):
            return
        number = np.full(len(self.handle), -1, np.int64)
        number[kept] = np.arange(len(kept))
        self.correlation.renumber(number)
        first, at = gather_ragged(self.rows.first[:-1], np.diff(self.rows.first), kept)
        category = self.rows.category[kept]
        order = np.argsort(category, kind="stable")
        following = np.full(len(kept), NOBODY, np.int32)
        same = category[order[1:]] == category[order[:-1]]
        following[order[:-1][same]] = order[1:][same]
        self.slots.head[category[order[::-1]]] = order[::-1]
        self.slots.tail[category[order]] = order
        self.handle = self.handle[kept]
        self.rows = Members(self.rows.box[kept], first, self.rows.term[at], category, following)

    def _places(self, handles: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
        if not len(self.handle):
            return np.zeros(len(handles), np.int64), np.zeros(len(handles), np.bool_)
        rows = np.minimum(np.searchsorted(self.handle, handles), len(self.handle) - 1)
        return rows, (self.handle[rows] == handles) & (self.rows.category[rows] != NOBODY)


def bounded(box: Floats) -> Floats:
    """Boxes that have an area: what has no border ends far away, what crosses the antimeridian goes round the world."""
    finite = np.clip(np.nan_to_num(box, nan=0.0, posinf=_FARTHEST, neginf=-_FARTHEST), -_FARTHEST, _FARTHEST)
    crosses = finite[:, 0] > finite[:, 2]
    finite[crosses, 0], finite[crosses, 2] = -180.0, 180.0
    finite[:, 3] = np.maximum(finite[:, 1], finite[:, 3])
    return finite


def _empty_counts(least: int) -> Counts:
    size = 1 << max(least - 1, 0).bit_length()
    return Counts(
        np.zeros(size, np.uint64), np.full(size, NOBODY, np.int32), np.zeros(size, np.int32), np.zeros(1, np.int64)
    )
