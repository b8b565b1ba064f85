"""Ids by handle and handles by id, a batch of ids a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from roamcast.bind.nearest.forest import grown
from roamcast.bind.nearest.hot import Run
from roamcast.bind.nearest.kernels.layout import Integers
from roamcast.bind.nearest.kernels.names import END, FREE, Bytes, Key, Longs, drop, enter, find, pack, spread
from roamcast.errors import ConflictError

__all__ = ["Names"]

_FEW: Final = 2_000  # ids that are not worth a second lane
_SHORT: Final = 64  # bytes that are not worth packing
_END: Final = bytes([END])

# Python's hash of a text is another in every process. Nothing but the order of slots depends on it.
_KEY: Final[Key] = np.array([hash("roamcast"), hash("names")], np.int64).view(np.uint64)


class Names:
    """Gives the handles of ids that somebody has; handles are dense numbers that are used again after removal.

    Every move names its entity, and among a million ids a dict takes most of a microsecond for one: several cache
    misses, one after another. Here the ids of a batch are compared with a text that holds all ids, by a kernel whose
    misses overlap. That takes a fraction of the time, and a quarter of the memory. With several lanes, large batches
    are worked on by as many calls through `run` at once.
    """

    def __init__(self, lanes: int = 1, run: Run = map) -> None:
        self._lanes = lanes
        self._run = run
        self._text = bytearray(_END)
        self._start: Longs = np.zeros(0, np.int64)  # by handle: where its id begins in the text; 0 is nowhere
        self._slots: Longs = np.full(8, FREE, np.int64)
        self._used = 0  # slots that are not free
        self._count = 0
        self._gone = 0  # bytes of ids that nobody has any more

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, handle: int) -> str:
        """The id of a handle that somebody has."""
        start = int(self._start[handle])
        return self._text[start : self._text.index(END, start)].decode("utf-8", "surrogatepass")

    def find(self, ids: Sequence[str]) -> Integers:
        """The handles of ids, or -1."""
        handles, room = np.empty(len(ids), np.int32), np.empty(len(ids), np.int64)
        given, ends = _laid_out(ids)
        lanes = self._lanes if len(ids) > _FEW else 1

        def find_lane(lane: int) -> None:
            first, last = len(ids) * lane // lanes, len(ids) * (lane + 1) // lanes
            find(first, last, _KEY, self._slots, self._start, self._bytes(), given, ends, room, handles)

        list(self._run(find_lane, range(lanes)))
        return handles

    def add(self, ids: Sequence[str], handles: Integers) -> None:
        """Name handles that have no ids. Raises ConflictError for an id that is taken or comes twice.

        Those before it have got their names then.
        """
        self._make_room(len(ids))
        self._start = grown(self._start, int(handles.max(initial=-1)) + 1)
        new = [_encoded(id) + _END for id in ids]
        lengths = np.fromiter(map(len, new), np.int64, len(new))
        self._start[handles] = len(self._text) + np.cumsum(lengths) - lengths
        self._text += b"".join(new)
        added = enter(_KEY, self._slots, self._start, self._bytes(), handles)
        self._used += added
        self._count += added
        if added < len(ids):
            raise ConflictError(f"the id {ids[added]!r} is taken", where="id", hint="take another id")

    def remove(self, handle: int) -> None:
        self._gone += drop(_KEY, self._slots, self._start, self._bytes(), handle) + 1
        self._start[handle] = 0
        self._count -= 1
        if 2 * self._gone > len(self._text) + _SHORT:
            shorter = np.empty(len(self._text) - self._gone, np.uint8)
            pack(self._bytes(), self._start, shorter)
            self._text, self._gone = bytearray(shorter.tobytes()), 0

    def _bytes(self) -> Bytes:
        """The text for a kernel. Whoever keeps it keeps the text from growing."""
        return np.frombuffer(self._text, np.uint8)

    def _make_room(self, count: int) -> None:
        """A third of the slots is always free, so that a free one is near."""
        if 3 * (self._used + count) > 2 * len(self._slots):
            slots = np.full(1 << (3 * (self._count + count) // 2).bit_length(), FREE, np.int64)
            spread(_KEY, self._slots, self._start, self._bytes(), slots)
            self._slots, self._used = slots, self._count


def _laid_out(ids: Sequence[str]) -> tuple[Bytes, Longs]:
    """Ids one after another, each with one more byte, and where they end."""
    text, mark = "\n".join(ids) + "\n", ord("\n")
    if text.count("\n") == len(ids):
        given = _encoded(text)
    else:
        given, mark = b"".join(_encoded(id) + _END for id in ids), END
    array = np.frombuffer(given, np.uint8)
    return array, np.flatnonzero(array == mark)


def _encoded(id: str) -> bytes:
    """Any text, also one that is not quite Unicode."""
    return id.encode("utf-8", "surrogatepass")
