"""The state of an index: a stack of segments, and which of their rows are dead.

New subscriptions make a segment on top; removed ones are marked dead where they are. Neighbours of like size are
merged, and a segment that is mostly dead is rewritten, so that a stack stays logarithmic in its rows and a row is
rewritten a logarithmic number of times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.match.index.build import Rows, Seen, build
from roamcast.match.index.dictionary import encode
from roamcast.match.index.index import ExactTest, Index, Layered
from roamcast.match.index.merge import joined_rows
from roamcast.match.index.segments import Opened, SegmentFolder
from roamcast.match.kernels.marking import mark_rows
from roamcast.match.port import Subscriptions

__all__ = ["Layer", "Layers", "matcher_of", "rows_of"]

Integers = npt.NDArray[np.int64]

_LIKE: Final = 4  # a neighbour up to so many times as large is merged
_SMALL: Final = 4096  # rows that are merged at once: that costs less than to search one segment more


class Layer(NamedTuple):
    """A segment by its checksum, how many rows it has, the checksum of its dead rows, and how many they are."""

    segment: str
    rows: int
    tombstones: str | None = None
    dead: int = 0

    @property
    def live(self) -> int:
        return self.rows - self.dead


def rows_of(handle: Integers, subscriptions: Subscriptions, residual: npt.NDArray[np.bool_] | None = None) -> Rows:
    """Subscriptions with the handles they are known by, and which of them have a further condition."""
    box = np.stack(subscriptions[:4], axis=1).astype(np.float64)
    further = np.zeros(len(handle), np.bool_) if residual is None else residual
    return Rows(np.asarray(handle, np.int64), box, encode(subscriptions.terms), further)


def matcher_of(subscriptions: Subscriptions) -> Index:
    """An index in memory; a subscription's handle is its row number."""
    body = build(rows_of(np.arange(len(subscriptions.min_x)), subscriptions))
    return Index([Layered(Opened.in_memory(body._asdict()), None)])


class Layers:
    """Stacks of segments in a folder. A stack is a value, bottom first; what changes it returns another.

    Files are durable when a method returns. The same stack and the same change give the same stack. Whatever reads a
    file raises CorruptionError if it is missing or damaged. `seen` tells of the terms of events, for what is built.
    """

    def __init__(self, folder: Path) -> None:
        self._files = SegmentFolder(folder)

    def open(self, stack: Sequence[Layer], exact: ExactTest | None = None) -> Index:
        return Index([self._layered(layer) for layer in stack], exact)

    def change(
        self, stack: Sequence[Layer], *, gone: npt.ArrayLike = (), added: Rows | None = None, seen: Seen | None = None
    ) -> tuple[Layer, ...]:
        """Take the subscriptions with the handles `gone` away, then put `added` on top.

        Handles that are not there are passed over. Handles of `added` must be distinct, and not be there once those
        that are `gone` have gone.
        """
        removed = np.asarray(gone, np.int64)
        changed = [self._without(layer, removed) for layer in stack] if len(removed) else [*stack]
        if added is not None and len(added.handle):
            changed.append(self._written(added, seen))
        return tuple(layer for layer in changed if layer.live)

    def rebox(
        self, stack: Sequence[Layer], handle: npt.ArrayLike, box: npt.ArrayLike, seen: Seen | None = None
    ) -> tuple[Layer, ...]:
        """Give subscriptions other boxes, a row for each handle. Handles are distinct; unknown ones are passed over."""
        handles, boxes = np.asarray(handle, np.int64), np.asarray(box, np.float64).reshape(-1, 4)
        order = np.argsort(handles)
        rows = joined_rows([self._layered(layer) for layer in stack], handles)
        there = order[np.searchsorted(handles, rows.handle, sorter=order)]
        return self.change(stack, gone=handles, added=rows._replace(box=boxes[there]), seen=seen)

    def merge(self, stack: Sequence[Layer], seen: Seen | None = None) -> tuple[Layer, ...]:
        """Merge what is of like size, and rewrite what is mostly dead. Changes nothing that is matched."""
        above, first = 0, len(stack)
        for at in reversed(range(len(stack))):
            if above and stack[at].live <= max(_LIKE * above, _SMALL - above):
                first = at
            above += stack[at].live
        kept = [self._rewritten([layer], seen) if layer.dead > layer.live else layer for layer in stack[:first]]
        return (*kept, *([self._rewritten(stack[first:], seen)] if first < len(stack) else []))

    def rows(self, stack: Sequence[Layer], handles: npt.NDArray[np.int64] | None = None) -> Rows | None:
        """All that live, or those of them with these handles; None of an empty stack."""
        return joined_rows([self._layered(layer) for layer in stack], handles) if stack else None

    def sweep(self, keep: Iterable[Layer], others: Iterable[str] = ()) -> None:
        """Remove the files that none of these layers has, and that are not among the `others`."""
        names = (name for layer in keep for name in (layer.segment, layer.tombstones) if name)
        self._files.sweep(frozenset([*names, *others]))

    def nbytes(self, stack: Sequence[Layer]) -> int:
        """The size of the segments, handles apart."""
        return sum(self._files.open(layer.segment).nbytes - 8 * layer.rows for layer in stack)

    def _layered(self, layer: Layer) -> Layered:
        tombstones = None if layer.tombstones is None else self._files.open(layer.tombstones)
        return Layered(self._files.open(layer.segment), tombstones)

    def _written(self, rows: Rows, seen: Seen | None) -> Layer:
        return Layer(self._files.write(build(rows, seen)._asdict()), len(rows.handle))

    def _without(self, layer: Layer, gone: Integers) -> Layer:
        layered = self._layered(layer)
        dead = layered.dead.copy() if layer.dead else np.zeros((layer.rows + 7) // 8, np.uint8)
        table = np.full(1 << (2 * len(gone)).bit_length(), -1, np.int64)
        marked = mark_rows(layered.segment.body.handle, gone, table, dead)
        if not marked:
            return layer
        return layer._replace(tombstones=self._files.write({"dead": dead}), dead=layer.dead + marked)

    def _rewritten(self, stack: Sequence[Layer], seen: Seen | None) -> Layer:
        return self._written(joined_rows([self._layered(layer) for layer in stack]), seen)
