"""The index as an LSM stack of segments, with tombstones for deleted rows.

New subscriptions make a segment on top; removed ones are marked in the tombstones of their segment. Segments of similar
size are merged, and a segment in which most rows are dead is rewritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.compiled import read_only
from roamcast.lsm import first_to_merge
from roamcast.match.index.build import TermFrequency, build
from roamcast.match.index.dictionary import TermLists, unify_texts
from roamcast.match.index.index import ExactTest, Index, OpenSegment
from roamcast.match.index.rows import IndexRows, gather_ragged, index_rows
from roamcast.match.index.segments import MappedArrays, SegmentFolder
from roamcast.match.kernels.cells import mark_rows
from roamcast.match.kernels.postings import LAST_TERM
from roamcast.match.port import Subscriptions

__all__ = ["IndexStore", "SegmentRef", "build_index"]

Integers = npt.NDArray[np.int64]

_RATIO: Final = 4
_SMALL: Final = 4096  # rows: merging so few costs less than searching one more segment


class SegmentRef(NamedTuple):
    """One segment of a stack: its checksum and number of rows, the checksum of its tombstones, the number of those."""

    segment: str
    rows: int
    tombstones: str | None = None
    dead: int = 0

    @property
    def live(self) -> int:
        return self.rows - self.dead


def build_index(subscriptions: Subscriptions) -> Index:
    """Build an index in memory. The handle of a subscription is its row number."""
    arrays = build(index_rows(np.arange(len(subscriptions.min_x)), subscriptions))
    return Index([OpenSegment(MappedArrays.in_memory(arrays._asdict()), None)])


class IndexStore:
    """Stacks of segments in a folder. A stack is a value, oldest segment first; methods that change it return another.

    Files are durable when a method returns. The same stack and the same change give the same result. Methods raise
    CorruptionError if a file is missing or damaged. `frequency` estimates how often events have a term; it only affects
    speed.
    """

    def __init__(self, folder: Path) -> None:
        self._files = SegmentFolder(folder)

    def open(self, stack: Sequence[SegmentRef], exact: ExactTest | None = None) -> Index:
        return Index([self._open(ref) for ref in stack], exact)

    def apply(
        self,
        stack: Sequence[SegmentRef],
        *,
        removed: npt.ArrayLike = (),
        added: IndexRows | None = None,
        frequency: TermFrequency | None = None,
    ) -> tuple[SegmentRef, ...]:
        """Remove the subscriptions with the handles `removed`, then add `added` as a segment on top.

        Ignores unknown handles in `removed`. Handles of `added` must be distinct and not be in the stack after the
        removal.
        """
        handles = np.asarray(removed, np.int64)
        changed = [self._remove(ref, handles) for ref in stack] if len(handles) else [*stack]
        if added is not None and len(added.handle):
            changed.append(self._write(added, frequency))
        return tuple(ref for ref in changed if ref.live)

    def replace_boxes(
        self,
        stack: Sequence[SegmentRef],
        handle: npt.ArrayLike,
        box: npt.ArrayLike,
        frequency: TermFrequency | None = None,
    ) -> tuple[SegmentRef, ...]:
        """Replace the boxes of subscriptions, one row of `box` for each handle.

        Handles must be distinct; unknown ones are ignored.
        """
        handles, boxes = np.asarray(handle, np.int64), np.asarray(box, np.float64).reshape(-1, 4)
        order = np.argsort(handles)
        rows = _live_rows([self._open(ref) for ref in stack], handles)
        at = order[np.searchsorted(handles, rows.handle, sorter=order)]
        return self.apply(stack, removed=handles, added=rows._replace(box=boxes[at]), frequency=frequency)

    def compact(self, stack: Sequence[SegmentRef], frequency: TermFrequency | None = None) -> tuple[SegmentRef, ...]:
        """Merge segments of similar size and rewrite those that are mostly dead. Matches stay the same."""
        first = first_to_merge([ref.live for ref in stack], ratio=_RATIO, small=_SMALL)
        kept = [self._rewrite([ref], frequency) if ref.dead > ref.live else ref for ref in stack[:first]]
        return (*kept, *([self._rewrite(stack[first:], frequency)] if first < len(stack) else []))

    def rows(self, stack: Sequence[SegmentRef], handles: Integers | None = None) -> IndexRows | None:
        """Return the live rows, or those of them with these handles; None for an empty stack."""
        return _live_rows([self._open(ref) for ref in stack], handles) if stack else None

    def sweep(self, keep: Iterable[SegmentRef], others: Iterable[str] = ()) -> None:
        """Delete all files except those of `keep` and those with the checksums `others`."""
        names = (name for ref in keep for name in (ref.segment, ref.tombstones) if name)
        self._files.sweep(frozenset([*names, *others]))

    def nbytes(self, stack: Sequence[SegmentRef]) -> int:
        """Return the size of the segments without the handles."""
        return sum(self._files.open(ref.segment).nbytes - 8 * ref.rows for ref in stack)

    def _open(self, ref: SegmentRef) -> OpenSegment:
        tombstones = None if ref.tombstones is None else self._files.open(ref.tombstones)
        return OpenSegment(self._files.open(ref.segment), tombstones)

    def _write(self, rows: IndexRows, frequency: TermFrequency | None) -> SegmentRef:
        return SegmentRef(self._files.write(build(rows, frequency)._asdict()), len(rows.handle))

    def _remove(self, ref: SegmentRef, handles: Integers) -> SegmentRef:
        segment = self._open(ref)
        dead = segment.dead.copy() if ref.dead else np.zeros((ref.rows + 7) // 8, np.uint8)
        marked = _mark(segment, handles, dead)
        if not marked:
            return ref
        return ref._replace(tombstones=self._files.write({"dead": dead}), dead=ref.dead + marked)

    def _rewrite(self, stack: Sequence[SegmentRef], frequency: TermFrequency | None) -> SegmentRef:
        return self._write(_live_rows([self._open(ref) for ref in stack]), frequency)


def _live_rows(segments: Sequence[OpenSegment], handles: Integers | None = None) -> IndexRows:
    """Return the live rows by segment, in the order of each; if `handles` are given, only those with one of them."""
    contents = [segment.arrays for segment in segments]
    live = [_live(segment, handles) for segment in segments]
    texts, codes = unify_texts([segment.dictionary.texts() for segment in segments])
    residual, lengths, terms = [], [], []
    for arrays, rows, code in zip(contents, live, codes, strict=True):
        predicate = arrays.predicate
        end = np.flatnonzero(predicate >= LAST_TERM) + 1
        begin = np.concatenate([np.zeros(1, np.int64), end[:-1]])
        residual.append((predicate[begin[rows]] & 1).astype(np.bool_))
        length = np.where(predicate[begin + 1] == LAST_TERM, 0, end - begin - 1)
        first, at = gather_ragged(begin + 1, length, rows)
        lengths.append(np.diff(first))
        terms.append(code[(predicate[at] & (LAST_TERM - 1)).astype(np.int64) - 1])
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(lengths))])
    handle = np.concatenate([arrays.handle[rows] for arrays, rows in zip(contents, live, strict=True)])
    box = np.concatenate([arrays.box[rows] for arrays, rows in zip(contents, live, strict=True)])
    return IndexRows(handle, box, TermLists(first, np.concatenate(terms), texts), np.concatenate(residual))


def _live(segment: OpenSegment, handles: Integers | None) -> Integers:
    count, dead = len(segment.arrays.handle), segment.dead
    live = np.unpackbits(dead, count=count, bitorder="little") == 0 if len(dead) else None
    if handles is None:
        return np.arange(count) if live is None else np.flatnonzero(live)
    selected = np.zeros((count + 7) // 8, np.uint8)
    _mark(segment, handles, selected)
    rows = np.flatnonzero(np.unpackbits(selected, count=count, bitorder="little"))
    return rows if live is None else rows[live[rows]]


def _mark(segment: OpenSegment, handles: Integers, bits: npt.NDArray[np.uint8]) -> int:
    """Set the bits of the rows with these handles; return how many were not set before."""
    table = np.full(1 << (2 * len(handles)).bit_length(), -1, np.int64)
    return mark_rows(segment.arrays.handle, read_only(handles), table, bits)
