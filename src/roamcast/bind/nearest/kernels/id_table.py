"""A hash table of entity ids: handles by id, a batch of ids in a call, and ids by handle.

The ids are stored one after another in one text; the slots of the table use open addressing. A slot is free (`_FREE`),
left by a removed id (`_LEFT`), or contains a handle in its lower half and part of the id's hash in its upper half.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from roamcast.bind.nearest.arrays import Run, grow
from roamcast.bind.nearest.kernels import inlined
from roamcast.bind.nearest.kernels.layout import Int32s, Int64s
from roamcast.compiled import inline_kernel, kernel
from roamcast.errors import ConflictError

__all__ = ["IdTable"]

_Bytes: TypeAlias = npt.NDArray[np.uint8]
_Key: TypeAlias = npt.NDArray[np.uint64]
"""Two secret words."""
_Word: TypeAlias = Any

_END_BYTE: Final = 0xFF  # ends an id in the text: not a byte of UTF-8
_END: Final = bytes([_END_BYTE])
_FREE: Final = -1
_LEFT: Final = -2
_HANDLE: Final = 0xFFFFFFFF
_BLOCK: Final = 512
_FEW: Final = 2_000  # ids that are not worth a second lane
_MIN_PACKED: Final = 64  # bytes; less is not worth packing

# Python's hash of a text is different in every process. Nothing but the order of slots depends on it.
_KEY: Final[_Key] = np.array([hash("roamcast"), hash("ids")], np.int64).view(np.uint64)

# Constants of SipHash, see `_hash`.
_V0: Final = np.uint64(0x736F6D6570736575)
_V1: Final = np.uint64(0x646F72616E646F6D)
_V2: Final = np.uint64(0x6C7967656E657261)
_V3: Final = np.uint64(0x7465646279746573)
_LAST: Final = np.uint64(0xFF)
_ONE: Final = np.uintp(1)
_EIGHT: Final = np.uintp(8)


class IdTable:
    """Maps ids to handles: dense numbers that are used again after removal.

    Every move names its entity. With a million ids a dict lookup takes most of a microsecond: several dependent cache
    misses. Here a kernel compares a batch of ids with the stored text so that the misses overlap, which takes a
    fraction of the time and a quarter of the memory. Large batches are split over `lanes` concurrent calls of `run`.
    """

    def __init__(self, lanes: int = 1, run: Run = map) -> None:
        self._lanes = lanes
        self._run = run
        self._text = bytearray(_END)
        self._start: Int64s = np.zeros(0, np.int64)  # by handle: the start of its id in the text, or 0
        self._slots: Int64s = np.full(8, _FREE, np.int64)
        self._used = 0  # slots that are not free
        self._count = 0
        self._removed = 0  # bytes of removed ids

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, handle: int) -> str:
        """The id of a handle in use."""
        start = int(self._start[handle])
        return self._text[start : self._text.index(_END_BYTE, start)].decode("utf-8", "surrogatepass")

    def find(self, ids: Sequence[str]) -> Int32s:
        """The handles of ids, or -1."""
        handles, scratch = np.empty(len(ids), np.int32), np.empty(len(ids), np.int64)
        id_bytes, ends = _concatenate(ids)
        lanes = self._lanes if len(ids) > _FEW else 1

        def find_lane(lane: int) -> None:
            first, last = len(ids) * lane // lanes, len(ids) * (lane + 1) // lanes
            find_ids(first, last, _KEY, self._slots, self._start, self._bytes(), id_bytes, ends, scratch, handles)

        list(self._run(find_lane, range(lanes)))
        return handles

    def add(self, ids: Sequence[str], handles: Int32s) -> None:
        """Assign ids to handles that have none. Raises ConflictError at the first duplicate; those before it stay."""
        self._reserve(len(ids))
        self._start = grow(self._start, int(handles.max(initial=-1)) + 1)
        encoded = [_encode(id) + _END for id in ids]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        self._start[handles] = len(self._text) + np.cumsum(lengths) - lengths
        self._text += b"".join(encoded)
        added = insert_ids(_KEY, self._slots, self._start, self._bytes(), handles)
        self._used += added
        self._count += added
        if added < len(ids):
            raise ConflictError(f"id {ids[added]!r} is already in use", where="id", hint="choose another id")

    def remove(self, handle: int) -> None:
        self._removed += delete_id(_KEY, self._slots, self._start, self._bytes(), handle) + 1
        self._start[handle] = 0
        self._count -= 1
        if 2 * self._removed > len(self._text) + _MIN_PACKED:
            packed = np.empty(len(self._text) - self._removed, np.uint8)
            pack_ids(self._bytes(), self._start, packed)
            self._text, self._removed = bytearray(packed.tobytes()), 0

    def _bytes(self) -> _Bytes:
        """The text for a kernel. It must not be kept: while it exists the text cannot grow."""
        return np.frombuffer(self._text, np.uint8)

    def _reserve(self, count: int) -> None:
        """Keep a third of the slots free, so that probing stays short."""
        if 3 * (self._used + count) > 2 * len(self._slots):
            slots = np.full(1 << (3 * (self._count + count) // 2).bit_length(), _FREE, np.int64)
            rehash(_KEY, self._slots, self._start, self._bytes(), slots)
            self._slots, self._used = slots, self._count


def _concatenate(ids: Sequence[str]) -> tuple[_Bytes, Int64s]:
    """The ids as one text, each followed by one more byte, and where they end."""
    text, separator = "\n".join(ids) + "\n", ord("\n")
    if text.count("\n") == len(ids):
        encoded = _encode(text)
    else:
        encoded, separator = b"".join(_encode(id) + _END for id in ids), _END_BYTE
    array = np.frombuffer(bytearray(encoded), np.uint8)  # writable, so that kernels are compiled once
    return array, np.flatnonzero(array == separator)


def _encode(id: str) -> bytes:
    """Any str, also with lone surrogates."""
    return id.encode("utf-8", "surrogatepass")


@inlined
def _rotate(word: _Word, bits: _Word) -> _Word:
    return word << np.uint64(bits) | word >> np.uint64(64 - bits)


@inline_kernel
def _sip_round(v0: _Word, v1: _Word, v2: _Word, v3: _Word) -> tuple[_Word, _Word, _Word, _Word]:
    v0, v2 = v0 + v1, v2 + v3
    v1, v3 = _rotate(v1, 13) ^ v0, _rotate(v3, 16) ^ v2
    v0, v2 = _rotate(v0, 32) + v3, v2 + v1
    v1, v3 = _rotate(v1, 17) ^ v2, _rotate(v3, 21) ^ v0
    return v0, v1, _rotate(v2, 32), v3


@inlined
def _load(text: _Bytes, at: _Word) -> _Word:
    """Eight bytes as a number. `at` is unsigned: so the compiler makes it one load."""
    word = np.uint64(0)
    for i in range(8):
        word |= np.uint64(text[at + np.uintp(i)]) << np.uint64(8 * i)
    return word


@inline_kernel
def _hash(key: _Key, text: _Bytes, begin: int, end: int) -> int:
    """SipHash-1-3 without its lowest bit. An attacker without the key cannot choose ids that collide."""
    v0, v1, v2, v3 = key[0] ^ _V0, key[1] ^ _V1, key[0] ^ _V2, key[1] ^ _V3
    at, last = np.uintp(begin), np.uintp(end)
    while at + _EIGHT <= last:
        word = _load(text, at)
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3 ^ word)
        v0 ^= word
        at += _EIGHT
    word = np.uint64(end - begin) << np.uint64(56)
    bits = np.uint64(0)
    while at < last:
        word |= np.uint64(text[at]) << bits
        bits += np.uint64(8)
        at += _ONE
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3 ^ word)
    v0, v1, v2, v3 = _sip_round(v0 ^ word, v1, v2 ^ _LAST, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return int(np.int64((v0 ^ v1 ^ v2 ^ v3) >> np.uint64(1)))


@inlined
def _end_of(text: _Bytes, start: int) -> int:
    while text[start] != _END_BYTE:
        start += 1
    return start


@inline_kernel
def _equals(text: _Bytes, start: int, id_bytes: _Bytes, begin: int, end: int) -> bool:
    """Whether the id at `start` of the text is that from `begin` to `end` of another."""
    at, other, last = np.uintp(start), np.uintp(begin), np.uintp(end)
    while other + _EIGHT <= last and at + _EIGHT <= np.uintp(text.size) and _load(text, at) == _load(id_bytes, other):
        at, other = at + _EIGHT, other + _EIGHT
    while other < last and text[at] == id_bytes[other]:
        at, other = at + _ONE, other + _ONE
    return bool(other == last and text[at] == _END_BYTE)


@inline_kernel
def _probe(slots: Int64s, start: Int64s, text: _Bytes, hash_: int, id_bytes: _Bytes, begin: int, end: int) -> int:
    """The slot of an id, or ~slot of a free one where it may be inserted."""
    at = hash_ & (slots.size - 1)
    while slots[at] != _FREE:
        if slots[at] >> 32 == hash_ >> 32 and _equals(text, start[slots[at] & _HANDLE], id_bytes, begin, end):
            return int(at)
        at = (at + 1) & (slots.size - 1)
    return int(~at)


@kernel
def find_ids(
    first: int,
    last: int,
    key: _Key,
    slots: Int64s,
    start: Int64s,
    text: _Bytes,
    id_bytes: _Bytes,
    ends: Int64s,
    scratch: Int64s,
    handles: Int32s,
) -> None:
    """Write the handles of the ids from `first` to `last` of a concatenation, or -1 for unknown ids.

    Each id ends at one of `ends`; the next begins a byte later. Ids are handled in blocks, with one loop for each array
    that is read at random. So the cache misses of different ids overlap, and what was fetched is still in the cache
    when it is needed. `scratch` has room for one number of each id.
    """
    for block in range(first, last, _BLOCK):
        rest = min(block + _BLOCK, last)
        for i in range(block, rest):
            scratch[i] = _hash(key, id_bytes, ends[i - 1] + 1 if i else 0, ends[i])
        for i in range(block, rest):
            at = scratch[i] & (slots.size - 1)
            while slots[at] != _FREE and slots[at] >> 32 != scratch[i] >> 32:
                at = (at + 1) & (slots.size - 1)
            handles[i] = slots[at] & _HANDLE if slots[at] != _FREE else -1
        for i in range(block, rest):
            scratch[i] = start[handles[i]] if handles[i] >= 0 else 0
        for i in range(block, rest):
            scratch[i] = scratch[i] if text[scratch[i]] == id_bytes[ends[i - 1] + 1 if i else 0] else -1
        for i in range(block, rest):
            begin = ends[i - 1] + 1 if i else 0
            if handles[i] >= 0 and (scratch[i] < 0 or not _equals(text, scratch[i], id_bytes, begin, ends[i])):
                at = _probe(slots, start, text, _hash(key, id_bytes, begin, ends[i]), id_bytes, begin, ends[i])
                handles[i] = slots[at] & _HANDLE if at >= 0 else -1


@kernel
def insert_ids(key: _Key, slots: Int64s, start: Int64s, text: _Bytes, handles: Int32s) -> int:
    """Insert handles whose ids are in the text already. Stops at a duplicate id; returns how many were inserted."""
    for i in range(handles.size):
        begin = start[handles[i]]
        end = _end_of(text, begin)
        hash_ = _hash(key, text, begin, end)
        at = _probe(slots, start, text, hash_, text, begin, end)
        if at >= 0:
            return i
        slots[~at] = hash_ >> 32 << 32 | handles[i]
    return int(handles.size)


@kernel
def delete_id(key: _Key, slots: Int64s, start: Int64s, text: _Bytes, handle: int) -> int:
    """Delete a handle that is in the table. Returns the length of its id."""
    begin = start[handle]
    end = _end_of(text, begin)
    slots[_probe(slots, start, text, _hash(key, text, begin, end), text, begin, end)] = _LEFT
    return int(end - begin)


@kernel
def rehash(key: _Key, slots: Int64s, start: Int64s, text: _Bytes, larger: Int64s) -> None:
    """Copy all handles to a larger table of free slots."""
    for slot in slots:
        if slot >= 0:
            begin = start[slot & _HANDLE]
            at = _hash(key, text, begin, _end_of(text, begin)) & (larger.size - 1)
            while larger[at] != _FREE:
                at = (at + 1) & (larger.size - 1)
            larger[at] = slot


@kernel
def pack_ids(text: _Bytes, start: Int64s, packed: _Bytes) -> None:
    """Copy the ids in use one after another, and update their starts. The first byte is unused."""
    n = 1
    packed[0] = _END_BYTE
    for handle in range(start.size):
        at = start[handle]
        if at:
            start[handle] = n
            while text[at] != _END_BYTE:
                packed[n] = text[at]
                at, n = at + 1, n + 1
            packed[n] = _END_BYTE
            n += 1
