"""Kernels that look up ids: a table of slots with open addressing, and the ids themselves in one text.

A slot is free (`FREE`), left by an id that is gone (`LEFT`), or holds a handle with part of its id's hash above it.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from roamcast.bind.nearest.kernels.layout import Integers
from roamcast.compiled import kernel

__all__ = ["END", "FREE", "Bytes", "Key", "Longs", "drop", "enter", "find", "pack", "spread"]

Bytes: TypeAlias = npt.NDArray[np.uint8]
Longs: TypeAlias = npt.NDArray[np.int64]
Key: TypeAlias = npt.NDArray[np.uint64]
"""Two words that nobody can foresee."""
_Word: TypeAlias = Any

END: Final = 0xFF
"""Ends an id in the text: no byte of UTF-8 is like it."""
FREE: Final = -1
_LEFT: Final = -2
_HANDLE: Final = 0xFFFFFFFF
_BLOCK: Final = 512

# Of SipHash, see `_hash`.
_V0: Final = np.uint64(0x736F6D6570736575)
_V1: Final = np.uint64(0x646F72616E646F6D)
_V2: Final = np.uint64(0x6C7967656E657261)
_V3: Final = np.uint64(0x7465646279746573)
_LAST: Final = np.uint64(0xFF)
_ONE: Final = np.uintp(1)
_EIGHT: Final = np.uintp(8)


@kernel
def _turned(word: _Word, bits: int) -> _Word:
    return word << np.uint64(bits) | word >> np.uint64(64 - bits)


@kernel
def _round(v0: _Word, v1: _Word, v2: _Word, v3: _Word) -> tuple[_Word, _Word, _Word, _Word]:
    v0, v2 = v0 + v1, v2 + v3
    v1, v3 = _turned(v1, 13) ^ v0, _turned(v3, 16) ^ v2
    v0, v2 = _turned(v0, 32) + v3, v2 + v1
    v1, v3 = _turned(v1, 17) ^ v2, _turned(v3, 21) ^ v0
    return v0, v1, _turned(v2, 32), v3


@kernel
def _word(text: Bytes, at: _Word) -> _Word:
    """Eight bytes as a number. The compiler makes one load of it, if it need not ask whether `at` is negative."""
    word = np.uint64(0)
    for i in range(8):
        word |= np.uint64(text[at + np.uintp(i)]) << np.uint64(8 * i)
    return word


@kernel
def _hash(key: Key, text: Bytes, begin: int, end: int) -> int:
    """SipHash-1-3 without its lowest bit: without the key nobody can make up ids that all want the same slot."""
    v0, v1, v2, v3 = key[0] ^ _V0, key[1] ^ _V1, key[0] ^ _V2, key[1] ^ _V3
    at, last = np.uintp(begin), np.uintp(end)
    while at + _EIGHT <= last:
        word = _word(text, at)
        v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
        v0 ^= word
        at += _EIGHT
    word = np.uint64(end - begin) << np.uint64(56)
    bits = np.uint64(0)
    while at < last:
        word |= np.uint64(text[at]) << bits
        bits += np.uint64(8)
        at += _ONE
    v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
    v0, v1, v2, v3 = _round(v0 ^ word, v1, v2 ^ _LAST, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return int(np.int64((v0 ^ v1 ^ v2 ^ v3) >> np.uint64(1)))


@kernel
def _end(text: Bytes, start: int) -> int:
    while text[start] != END:
        start += 1
    return start


@kernel
def _same(text: Bytes, start: int, given: Bytes, begin: int, end: int) -> bool:
    at, other, last = np.uintp(start), np.uintp(begin), np.uintp(end)
    while other + _EIGHT <= last and at + _EIGHT <= np.uintp(text.size) and _word(text, at) == _word(given, other):
        at, other = at + _EIGHT, other + _EIGHT
    while other < last and text[at] == given[other]:
        at, other = at + _ONE, other + _ONE
    return bool(other == last and text[at] == END)


@kernel
def _look_up(slots: Longs, start: Longs, text: Bytes, hash_: int, given: Bytes, begin: int, end: int) -> int:
    """The slot of this id, or ~slot of where it may be put."""
    at = hash_ & (slots.size - 1)
    while slots[at] != FREE:
        if slots[at] >> 32 == hash_ >> 32 and _same(text, start[slots[at] & _HANDLE], given, begin, end):
            return int(at)
        at = (at + 1) & (slots.size - 1)
    return int(~at)


@kernel
def find(
    first: int,
    last: int,
    key: Key,
    slots: Longs,
    start: Longs,
    text: Bytes,
    given: Bytes,
    ends: Longs,
    room: Longs,
    handles: Integers,
) -> None:
    """Note the handles of some of many ids that lie in a text of their own; -1 for those that nobody has.

    There each ends at one of `ends`, and the next begins a byte later. In blocks, with a loop for each array that is
    read at random: so the cache misses of one id do not wait for those of another, and what was fetched is there still
    when it is needed. `room` is for a number of each id.
    """
    for block in range(first, last, _BLOCK):
        rest = min(block + _BLOCK, last)
        for i in range(block, rest):
            room[i] = _hash(key, given, ends[i - 1] + 1 if i else 0, ends[i])
        for i in range(block, rest):
            at = room[i] & (slots.size - 1)
            while slots[at] != FREE and slots[at] >> 32 != room[i] >> 32:
                at = (at + 1) & (slots.size - 1)
            handles[i] = slots[at] & _HANDLE if slots[at] != FREE else -1
        for i in range(block, rest):
            room[i] = start[handles[i]] if handles[i] >= 0 else 0
        for i in range(block, rest):
            room[i] = room[i] if text[room[i]] == given[ends[i - 1] + 1 if i else 0] else -1
        for i in range(block, rest):
            begin = ends[i - 1] + 1 if i else 0
            if handles[i] >= 0 and (room[i] < 0 or not _same(text, room[i], given, begin, ends[i])):
                at = _look_up(slots, start, text, _hash(key, given, begin, ends[i]), given, begin, ends[i])
                handles[i] = slots[at] & _HANDLE if at >= 0 else -1


@kernel
def enter(key: Key, slots: Longs, start: Longs, text: Bytes, handles: Integers) -> int:
    """Give handles slots whose ids stand in the text already. Stops at an id that is taken; how many."""
    for i in range(handles.size):
        begin = start[handles[i]]
        end = _end(text, begin)
        hash_ = _hash(key, text, begin, end)
        at = _look_up(slots, start, text, hash_, text, begin, end)
        if at >= 0:
            return i
        slots[~at] = hash_ >> 32 << 32 | handles[i]
    return int(handles.size)


@kernel
def drop(key: Key, slots: Longs, start: Longs, text: Bytes, handle: int) -> int:
    """Take its slot from a handle that has one. Returns the length of its id."""
    begin = start[handle]
    end = _end(text, begin)
    slots[_look_up(slots, start, text, _hash(key, text, begin, end), text, begin, end)] = _LEFT
    return int(end - begin)


@kernel
def spread(key: Key, slots: Longs, start: Longs, text: Bytes, larger: Longs) -> None:
    """Put all that is in some slots into others, which are free."""
    for slot in slots:
        if slot >= 0:
            begin = start[slot & _HANDLE]
            at = _hash(key, text, begin, _end(text, begin)) & (larger.size - 1)
            while larger[at] != FREE:
                at = (at + 1) & (larger.size - 1)
            larger[at] = slot


@kernel
def pack(text: Bytes, start: Longs, shorter: Bytes) -> None:
    """Copy the ids that somebody has, one after another. What begins at 0 is nobody's."""
    n = 1
    shorter[0] = END
    for handle in range(start.size):
        at = start[handle]
        if at:
            start[handle] = n
            while text[at] != END:
                shorter[n] = text[at]
                at, n = at + 1, n + 1
            shorter[n] = END
            n += 1
