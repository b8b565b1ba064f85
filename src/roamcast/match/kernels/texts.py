"""Hash tables from texts to numbers, with open addressing. Texts stay where they are in memory."""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.compiled import kernel
from roamcast.match.kernels.intrinsics import Scalar, equal_bytes, fold_multiply, i64, load_word, prefetch, u32, u64

__all__ = [
    "TextSlots",
    "Texts",
    "copy_texts",
    "find_texts",
    "hash_seed",
    "hash_texts",
    "insert_texts",
    "intern_lists",
]

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int32]
Truths = npt.NDArray[np.bool_]
TextSlots = npt.NDArray[np.uint32]
"""Slots of a hash table: the upper half of a text's hash, and its number, which is 0 in an empty slot."""

_HALF: Final = u64(32)
_AHEAD: Final = 16  # texts to prefetch


class Texts(NamedTuple):
    """Texts in UTF-8: text i is data[start[i]:end[i]]. `data` is read-only."""

    data: Bytes
    start: Integers
    end: Integers


def hash_seed(content: bytes | memoryview) -> Keys:
    """Derive the seed of a text hash, three words, from all of `content`. Only the content reveals it."""
    return np.frombuffer(hashlib.blake2b(content, digest_size=24).digest(), np.uint64)


@kernel
def _hash(seed: Keys, data: Bytes, start: int, end: int) -> Scalar:
    """Hash a text with folded multiplications. Without the seed, collisions cannot be constructed."""
    # Short texts, the most common ones, are hashed without a branch that depends on their length.
    h = fold_multiply(u64(load_word(data, start, end)) ^ seed[0], u64(load_word(data, start + 8, end)) ^ seed[1])
    for at in range(start + 16, end, 16):
        h = fold_multiply(u64(load_word(data, at, end)) ^ seed[0], u64(load_word(data, at + 8, end)) ^ h)
    # A text that ends in zero bytes has the words of a shorter one, so the length counts too.
    return fold_multiply(h ^ u64(end - start), seed[2])


@kernel
def hash_texts(texts: Texts, seed: Keys, hashes: Keys) -> None:
    """Write the 64-bit hash of each text. It only depends on the text and the seed."""
    for text in range(len(texts.start)):
        hashes[text] = _hash(seed, texts.data, texts.start[text], texts.end[text])


@kernel
def copy_texts(texts: Texts, first: Integers, out: Bytes) -> None:
    """Copy text i to out[first[i]:]."""
    for text in range(len(texts.start)):
        shift = first[text] - texts.start[text]
        for at in range(texts.start[text], texts.end[text]):
            out[at + shift] = texts.data[at]


@kernel
def intern_lists(
    list_first: Integers,
    list_valid: Truths,
    value_first: Integers,
    value_valid: Truths,
    seed: Keys,
    hashes: Keys,
    table: Keys,
    texts: Texts,
    last_row: Numbers,
    row_first: Integers,
    code: Numbers,
) -> int:
    """Number the distinct texts of ragged lists in the order of their first appearance; return how many there are.

    Writes to `texts` where text c first occurs, and to code[row_first[i]:row_first[i + 1]] the distinct numbers of list
    i. Null lists and null values have none; `list_valid` and `value_valid` may be empty if there are no nulls.

    `table` has 64 slots or more, a power of two and at least four times the number of values; each slot holds a hash
    and a number. `hashes` and `last_row` have an element for each value; those of `last_row` are -1.
    """
    data, base = texts.data, list_first[0]
    for value in range(base, list_first[len(list_first) - 1]):
        hashes[value - base] = _hash(seed, data, value_first[value], value_first[value + 1])
    used, count = 0, i64(0)
    mask = len(table) // 8 - 1  # grows as needed; at first enough if one value in four is new
    _rehash(table, seed, texts, count, mask)
    for row in range(len(list_first) - 1):
        row_first[row] = used
        if len(list_valid) and not list_valid[row]:
            continue
        for value in range(list_first[row], list_first[row + 1]):
            if len(value_valid) and not value_valid[value]:
                continue
            prefetch(table, i64(hashes[min(value - base + _AHEAD, len(hashes) - 1)]) & mask)
            start, end = value_first[value], value_first[value + 1]
            h = hashes[value - base]
            slot = i64(h) & mask
            while True:
                c = i64(table[slot, 1]) - 1
                if c < 0:
                    c = count
                    texts.start[c], texts.end[c] = start, end
                    table[slot, 0], table[slot, 1] = h, c + 1
                    count += 1
                    if 2 * count > mask:
                        mask = 2 * mask + 1
                        _rehash(table, seed, texts, count, mask)
                    break
                if table[slot, 0] == h:
                    first = texts.start[c]
                    if texts.end[c] - first == end - start and equal_bytes(data, start, end, data, first):
                        break
                slot = (slot + 1) & mask
            if last_row[c] != row:
                last_row[c] = row
                code[used] = c
                used += 1
    row_first[len(list_first) - 1] = used
    return int(count)


@kernel
def _rehash(table: Keys, seed: Keys, texts: Texts, count: int, mask: int) -> None:
    """Clear the first mask + 1 slots and insert the first `count` texts."""
    for slot in range(mask + 1):
        table[slot, 1] = 0
    for c in range(count):
        start, end = texts.start[c], texts.end[c]
        h = u64(_hash(seed, texts.data, start, end))
        slot = i64(h) & mask
        while table[slot, 1] != u64(0):
            slot = (slot + 1) & mask
        table[slot, 0], table[slot, 1] = h, c + 1


@kernel
def insert_texts(texts: Texts, seed: Keys, slots: TextSlots) -> None:
    """Insert distinct texts, numbered from 1, into an empty table. Its size is a power of two, more than texts."""
    mask = len(slots) - 1
    for text in range(len(texts.start)):
        h = u64(_hash(seed, texts.data, texts.start[text], texts.end[text]))
        slot = i64(h) & mask
        while slots[slot, 1] != 0:
            slot = (slot + 1) & mask
        slots[slot, 0], slots[slot, 1] = h >> _HALF, text + 1


@kernel
def find_texts(
    texts: Texts,
    seed: Keys,
    hashes: Keys,
    slots: TextSlots,
    known: Bytes,
    known_first: npt.NDArray[np.uint32],
    number: Numbers,
) -> None:
    """Look up the numbers that `insert_texts` gave to texts; -1 for unknown texts.

    Known text i is known[known_first[i]:known_first[i + 1]].
    """
    mask = len(slots) - 1
    for text in range(len(texts.start)):
        hashes[text] = _hash(seed, texts.data, texts.start[text], texts.end[text])
    for text in range(len(texts.start)):
        prefetch(slots, i64(hashes[min(text + _AHEAD, len(hashes) - 1)]) & mask)
        near = i64(hashes[min(text + _AHEAD // 2, len(hashes) - 1)]) & mask
        prefetch(known_first, max(i64(slots[near, 1]) - 1, 0))
        start, end = texts.start[text], texts.end[text]
        slot, tag = i64(hashes[text]) & mask, u32(hashes[text] >> _HALF)
        number[text] = -1
        while slots[slot, 1] != 0:
            if slots[slot, 0] == tag:
                c = i64(slots[slot, 1]) - 1
                first, last = i64(known_first[c]), i64(known_first[c + 1])
                if last - first == end - start and equal_bytes(texts.data, start, end, known, first):
                    number[text] = c + 1
                    break
            slot = (slot + 1) & mask
