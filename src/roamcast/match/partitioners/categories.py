"""Rt-Cluster: assigns subscriptions to categories as they come, without training.

Matches never depend on categories; they only say which subscriptions to keep together. Terms are known by their hashes;
two that collide count as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from roamcast.compiled import read_only
from roamcast.errors import InputError
from roamcast.match.index.rows import IndexRows, gather_ragged
from roamcast.match.index.segments import Arrays
from roamcast.match.kernels.clustering import (
    BLOCK,
    NONE,
    CategorySlots,
    MemberRows,
    TermCounts,
    join_categories,
    list_members,
    rehash_counts,
)
from roamcast.match.kernels.correlating import Points, leave_categories
from roamcast.match.kernels.merging import Progress, add_rows
from roamcast.match.kernels.similarity import ClusterState, MergeSettings
from roamcast.match.partitioners.balance import choose_moves
from roamcast.match.partitioners.correlation import CategoryPairs, Correlation
from roamcast.match.partitioners.hilbert import bound_boxes
from roamcast.match.routing.features import hash_terms

__all__ = ["Categories", "CategoryParameters", "Distribution", "MergeEffort"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
T = TypeVar("T", bound=np.generic)


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


@dataclass(frozen=True, slots=True)
class Distribution:
    """Settings of merging and balancing.

    Categories are merged between workers if MergeJudgePara is below `merge`, never if `between` is off. A worker is
    overloaded if it has at least `overload` / workers of the total load; the paper has 2.
    """

    merge: float = 1.0
    between: bool = True
    overload: float = 2.0


class MergeEffort(NamedTuple):
    """The cost of merging: subscriptions that changed their category, and how many of them changed their worker."""

    merges: int
    relabelled: int
    moved: int


class Categories:
    """The categories of all current subscriptions, at most `parameters.max_categories`, and the worker of each.

    When there is one too many, the category with the greatest MergeJudgePara is merged with the one on its worker that
    it correlates most with, if both fit together. If that is below `merge`, the members of the category with the least
    are distributed. If nothing correlates, the new category is merged with the one most similar to it.
    """

    def __init__(
        self, parameters: CategoryParameters, workers: int = 1, distribution: Distribution | None = None
    ) -> None:
        self.parameters = parameters
        self.distribution = distribution or Distribution()
        count = parameters.max_categories + 1
        self.correlation = Correlation(parameters.window, parameters.matches, count)
        self.count = 0
        self._handle: Integers = np.empty(0, np.int64)
        self.rows = MemberRows(
            np.empty((0, 4)),
            np.zeros(1, np.int64),
            np.empty(0, np.uint64),
            np.empty(0, np.int32),
            np.empty(0, np.int32),
        )
        size, total, distinct = (np.zeros(count, np.int64) for _ in range(3))
        head, tail = (np.full(count, NONE, np.int32) for _ in range(2))
        held, held_rows = (np.zeros(workers, np.int64) for _ in range(2))
        self.slots = CategorySlots(
            size, total, distinct, np.zeros((count, 4)), head, tail, np.full(count, NONE, np.int64), np.zeros(count),
            held, held_rows,
        )  # fmt: skip
        self._counts = _empty_counts(64, 64)
        self._scratch = Points(np.zeros(count, np.int32), np.zeros(count, np.int32))
        total, effort, needed = np.array([0, 0, NONE, NONE, 0]), np.zeros(3, np.int64), np.zeros(2, np.int64)
        buffers = (np.empty(1024, np.int64), np.zeros(1, np.int64), np.empty(1024, np.int64))
        self.progress = Progress(total, effort, needed, *buffers)

    def add(self, rows: IndexRows) -> Integers:
        """Add subscriptions, and merge categories when there are too many; return handles that changed their worker.

        Handles are new and ascending, within a call and from call to call. Adding and removing count as load.
        """
        begin, end = self._append(rows)
        parameters, distribution = self.parameters, self.distribution
        settings = MergeSettings(
            parameters.alpha, parameters.new_threshold, parameters.frequencies, parameters.correlation,
            parameters.least_area, parameters.max_relative_size, distribution.merge, distribution.between,
        )  # fmt: skip
        moved = []
        while True:
            begin = add_rows(self._state, settings, begin, end, self.progress)
            moved.append(self.progress.moved[: self.progress.moved_count[0]].copy())
            self.progress.moved_count[0] = 0
            if not self.progress.needed.any():
                break
            terms, count = self.progress.needed.tolist()
            self._reserve(terms)
            if count > len(self.progress.moved):
                self.progress = self.progress._replace(
                    moved=np.empty(2 * count, np.int64), targets=np.empty(2 * count, np.int64)
                )
        np.add.at(self.slots.load, self.of(rows.handle), 1.0)
        return self._handle[np.unique(np.concatenate(moved))]

    def remove(self, handles: Integers) -> Integers:
        """Remove subscriptions and return the categories they were in. Unknown handles are ignored."""
        rows = np.unique(self.find(handles))
        categories = self.rows.category[rows].astype(np.int64)
        window, cache = self.correlation.window, self.correlation.cache
        leave_categories(self.rows, self.slots, self._counts, window, cache, read_only(rows))
        self._count_all(int(self.progress.total[1]) - len(rows))
        np.add.at(self.slots.load, categories, 1.0)
        if self.count > 2 * self.progress.total[1] + 1024:
            self._compact()
        return categories

    def replace_boxes(self, handles: Integers, box: Floats) -> None:
        """Replace the boxes of members; unknown handles are ignored. The bounds of categories stay."""
        rows, known = self._find(handles)
        self.rows.box[rows[known]] = bound_boxes(box[known])

    def observe(self, event: Integers, handle: Integers) -> None:
        """Learn from the matches of a batch, ordered by event."""
        rows, known = self._find(handle)
        self.correlation.observe(event[known], rows[known], self.rows)

    def receive(self, categories: Integers, events: int | Integers = 1) -> None:
        """Count the load of events that categories receive: each is compared with all members."""
        np.add.at(self.slots.load, categories, events * self.slots.size[categories])

    def balance(self) -> Integers:
        """Move categories away from overloaded workers; return the handles of their members. The load starts at 0."""
        slots, overload = self.slots, self.distribution.overload
        rows = [np.empty(0, np.int64)]
        for category, target in choose_moves(
            slots.load, slots.size, slots.worker, len(slots.held), self.pairs(), overload
        ):
            self.place(category, target)
            rows.append(self.members(category))
        slots.load[:] = 0.0
        return self.handle[np.concatenate(rows)]

    def place(self, category: int, worker: int) -> None:
        """Move a category to another worker."""
        slots = self.slots
        for held, amount in ((slots.held, 1), (slots.held_rows, slots.size[category])):
            held[slots.worker[category]] -= amount
            held[worker] += amount
        slots.worker[category] = worker
        self.correlation.invalidate()

    def pairs(self) -> CategoryPairs:
        """Return the pairs of categories that correlate."""
        return self.correlation.pairs(self.rows.category)

    @property
    def effort(self) -> MergeEffort:
        return MergeEffort(*self.progress.effort.tolist())

    @property
    def live(self) -> Integers:
        return np.flatnonzero(self.slots.size)

    @property
    def handle(self) -> Integers:
        """The handle of each row."""
        return self._handle[: self.count]

    def find(self, handles: Integers) -> Integers:
        """Return the rows of known handles."""
        rows, known = self._find(np.asarray(handles, np.int64))
        return rows[known]

    def of(self, handles: Integers) -> Integers:
        """Return the category of each handle; NONE for unknown handles."""
        rows, known = self._find(np.asarray(handles, np.int64))
        return np.where(known, self.rows.category[rows] if self.count else NONE, NONE).astype(np.int64)

    def members(self, category: int) -> Integers:
        """Return the rows of a category in the order in which they joined."""
        rows = np.empty(self.slots.size[category], np.int64)
        return rows[: list_members(self.rows, self.slots, category, rows)]

    def arrays(self) -> Arrays:
        """Return the whole state, to be stored in a file."""
        self._compact()
        rows, terms = self.rows, self.rows.first[self.count]
        stored = {"box": rows.box[: self.count], "first": rows.first[: self.count + 1], "term": rows.term[:terms]}
        window = {"window": self.correlation.window.row, "added": np.array([self.correlation.added])}
        slots = {"bounds": self.slots.box, "worker": self.slots.worker, "load": self.slots.load}
        return {"handle": self.handle, **stored, "category": rows.category[: self.count], **slots, **window}

    @classmethod
    def of_arrays(
        cls, parameters: CategoryParameters, arrays: Arrays, workers: int = 1, distribution: Distribution | None = None
    ) -> Self:
        """Restore the state that `arrays` returned."""
        self = cls(parameters, workers, distribution)
        if (arrays["worker"] >= workers).any():
            raise InputError("categories of more workers than there are now", where="categories")
        events, matches = arrays["window"].shape
        self.correlation = Correlation(events, matches, len(self.slots.size))
        self._handle, self.count = arrays["handle"].copy(), len(arrays["handle"])
        none = np.full(self.count, NONE, np.int32)
        box, first, term = (arrays[name].copy() for name in ("box", "first", "term"))
        self.rows = MemberRows(box, first, term, none, none.copy())
        self.slots.worker[:], self.slots.load[:] = arrays["worker"], arrays["load"]
        self._reserve(len(term))
        rows, categories = np.arange(self.count), arrays["category"].astype(np.int64)
        join_categories(self.rows, self.slots, self._counts, read_only(rows), read_only(categories))
        self.slots.box[:] = arrays["bounds"]
        self._count_all(self.count)
        self.correlation.add_lines(arrays["window"].copy(), self.rows)
        self.correlation.added = int(arrays["added"][0])
        return self

    @property
    def _state(self) -> ClusterState:
        window, cache = self.correlation.window, self.correlation.cache
        return ClusterState(self.rows, self.slots, self._counts, window, cache, self._scratch)

    def _count_all(self, rows: int) -> None:
        """Count the categories, and look for free ones from the beginning."""
        self.progress.total[:] = (self.slots.size > 0).sum(), rows, NONE, NONE, 0

    def _append(self, rows: IndexRows) -> tuple[int, int]:
        begin, end = self.count, self.count + len(rows.handle)
        if begin < end and (np.diff(rows.handle, prepend=self._handle[begin - 1] if begin else -1) <= 0).any():
            raise InputError("handles must be ascending", where="categories")
        none = np.full(end - begin, NONE, np.int32)
        terms = self.rows.first[begin]
        self._handle = _put(self._handle, begin, rows.handle)
        self.rows = MemberRows(
            _put(self.rows.box, begin, bound_boxes(rows.box)),
            _put(self.rows.first, begin + 1, terms + rows.terms.first[1:]),
            _put(self.rows.term, int(terms), hash_terms(rows.terms)),
            _put(self.rows.category, begin, none),
            _put(self.rows.next, begin, none),
        )
        self.count = end
        return begin, end

    def _reserve(self, terms: int) -> None:
        """Make room for this many more terms. The hash table stays half empty."""
        counts = self._counts
        if 2 * (counts.used[0] + 2 * terms + 1) > len(counts.at):
            live = int((counts.at != NONE).sum())
            table = _empty_counts(4 * (live + 2 * terms + 16), 0)
            blocks = {name: getattr(counts, name) for name in ("entry", "next_block", "used")}
            table = table._replace(**blocks)
            table.used[0] = 0
            rehash_counts(counts, table)
            self._counts = counts = table
        blocks_used = int(counts.used[1])
        if blocks_used + terms > len(counts.next_block):
            size = 2 * (blocks_used + terms)
            entry, next_block = _lengthen(counts.entry, size * BLOCK), _lengthen(counts.next_block, size)
            self._counts = counts._replace(entry=entry, next_block=next_block)

    def _compact(self) -> None:
        """Drop removed rows, and order the members of each category by row, as after a restart."""
        kept = np.flatnonzero(self.rows.category[: self.count] != NONE)
        number = np.full(self.count, NONE, np.int64)
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
        self._handle, self.count = self._handle[kept], len(kept)
        self.rows = MemberRows(self.rows.box[kept], first, self.rows.term[at], category, next_row)

    def _find(self, handles: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Return the rows of handles, and which of them are known."""
        if not self.count:
            return np.zeros(len(handles), np.int64), np.zeros(len(handles), np.bool_)
        rows = np.minimum(np.searchsorted(self.handle, handles), self.count - 1)
        return rows, (self.handle[rows] == handles) & (self.rows.category[rows] != NONE)


def _empty_counts(slots: int, blocks: int) -> TermCounts:
    """Return empty counts with at least this many slots and blocks."""
    size = 1 << max(slots - 1, 0).bit_length()
    category, at = (np.full(size, NONE, np.int32) for _ in range(2))
    entry, next_block = np.zeros(blocks * BLOCK, np.int64), np.zeros(blocks, np.int32)
    return TermCounts(np.zeros(size, np.uint64), category, at, entry, next_block, np.array([0, 0, NONE]))


def _lengthen(array: npt.NDArray[T], length: int) -> npt.NDArray[T]:
    """Return an array of at least this length that begins with this one."""
    if length <= len(array):
        return array
    longer = np.empty((length, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer


def _put(array: npt.NDArray[T], begin: int, values: npt.NDArray[T]) -> npt.NDArray[T]:
    """Write values from `begin` on. An array that is too short is replaced by one of twice the length."""
    end = begin + len(values)
    if end > len(array):
        array = _lengthen(array, 2 * end)
    array[begin:end] = values
    return array
