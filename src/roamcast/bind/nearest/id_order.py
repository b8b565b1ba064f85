"""Numeric labels in the order of source ids: kernels compare them when two sources are equally far away."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from roamcast.bind.nearest.kernels.layout import Int64s
from roamcast.errors import ConflictError

__all__ = ["IdOrder"]

_GAP = 1 << 32
_SORT_RATIO = 64  # with more than one new id for 64 known ones, sorting is faster than inserting


class IdOrder:
    """Gives each handle a label; labels are ordered as the ids are.

    Labels are written into an array, by handle. Adding ids may change the labels of others.
    """

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._handles: list[int] = []
        self._id_of: dict[int, str] = {}

    def check(self, ids: Sequence[str]) -> None:
        """Raises ConflictError for an id that is in use or repeated."""
        seen = set()
        for id in ids:
            at = bisect_left(self._ids, id)
            if id in seen or self._ids[at : at + 1] == [id]:
                raise ConflictError(f"id {id!r} is already in use", hint="remove the other source first")
            seen.add(id)

    def add(self, ids: Sequence[str], handles: Sequence[int], label: Int64s) -> None:
        """Add ids that `check` has accepted."""
        self._id_of.update(zip(handles, ids, strict=True))
        if len(ids) * _SORT_RATIO > len(self._ids) + _SORT_RATIO:
            pairs = sorted([*zip(self._ids, self._handles, strict=True), *zip(ids, handles, strict=True)])
            self._ids, self._handles = [id for id, _ in pairs], [handle for _, handle in pairs]
            self._label_all(label)
        else:
            for id, handle in zip(ids, handles, strict=True):
                self._insert(id, handle, label)

    def remove(self, handle: int) -> None:
        """Does nothing if the handle has no id."""
        if handle in self._id_of:
            at = bisect_left(self._ids, self._id_of.pop(handle))
            del self._ids[at], self._handles[at]

    def _insert(self, id: str, handle: int, label: Int64s) -> None:
        at = bisect_left(self._ids, id)
        lower, upper = self._handles[max(at - 1, 0) : at], self._handles[at : at + 1]
        self._ids.insert(at, id)
        self._handles.insert(at, handle)
        below = int(label[lower[0]]) if lower else int(label[upper[0]]) - 2 * _GAP if upper else 0
        above = int(label[upper[0]]) if upper else below + 2 * _GAP
        label[handle] = (below + above) // 2
        if above - below < 2:
            self._label_all(label)

    def _label_all(self, label: Int64s) -> None:
        label[self._handles] = np.arange(len(self._ids)) * _GAP
