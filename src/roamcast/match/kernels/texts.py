"""Texts to numbers: hash tables with open addressing, over bytes that stay where they are."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.compiled import kernel
from roamcast.match.kernels.memory import eight_bytes, expect, folded_product, same_bytes
from roamcast.match.kernels.scalars import Whole, i64, u32, u64

__all__ = ["Slots", "Texts", "copy_texts", "find_texts", "hash_texts", "intern", "place_texts"]

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int32]
Truths = npt.NDArray[np.bool_]
Slots = npt.NDArray[np.uint32]
"""A table of pairs: the upper half of a text's hash, and its number, which is 0 where a slot is empty."""

_HALF: Final = u64(32)
_AHEAD: Final = 16  # texts


class Texts(NamedTuple):
    """Texts in UTF-8: text i is data[start[i]:end[i]]."""

    data: Bytes
    start: Integers
    end: Integers


@kernel
def _hash(seed: Keys, data: Bytes, start: int, end: int) -> Whole:
    """Folded products of words that are hidden by secrets: who does not know the seed cannot tell what changes what."""
    # Short texts, which are most, without a branch that depends on their length.
    h = folded_product(u64(eight_bytes(data, start, end)) ^ seed[0], u64(eight_bytes(data, start + 8, end)) ^ seed[1])
    for at in range(start + 16, end, 16):
        h = folded_product(u64(eight_bytes(data, at, end)) ^ seed[0], u64(eight_bytes(data, at + 8, end)) ^ h)
    # The length apart from the words: texts that end in zero bytes have the words of shorter ones.
    return folded_product(h ^ u64(end - start), seed[2])


@kernel
def hash_texts(texts: Texts, seed: Keys, hashes: Keys) -> None:
    """Numbers of 64 bits for texts: the same seed, three words, gives equal texts the same, everywhere and always."""
    for text in range(len(texts.start)):
        hashes[text] = _hash(seed, texts.data, texts.start[text], texts.end[text])


@kernel
def copy_texts(texts: Texts, first: Integers, out: Bytes) -> None:
    """Lay texts out anew: text i from first[i] on."""
    for text in range(len(texts.start)):
        away = first[text] - texts.start[text]
        for at in range(texts.start[text], texts.end[text]):
            out[at + away] = texts.data[at]


@kernel
def intern(
    list_first: Integers,
    list_here: Truths,
    value_first: Integers,
    value_here: Truths,
    seed: Keys,
    hashes: Keys,
    table: Keys,
    texts: Texts,
    last: Numbers,
    row_first: Integers,
    code: Numbers,
) -> int:
    """Number the distinct values of lists of texts, in the order of their first appearance; returns how many.

    Text c is the first value with number c, in the memory of all; row i has code[row_first[i]:row_first[i + 1]], each
    number once. Absent lists have no numbers, absent values none; where all are there, `list_here` and `value_here` may
    be empty. `table` has a power of two of slots, four for each value and 64 at least, for the hash of a text and its
    number; `hashes` has room for each value, `last` has -1 for each.
    """
    data, base = texts.data, list_first[0]
    for value in range(base, list_first[len(list_first) - 1]):
        hashes[value - base] = _hash(seed, data, value_first[value], value_first[value + 1])
    used, mask, count = 0, len(table) // 8 - 1, 0  # as if one in four were new
    _spread(table, seed, texts, count, mask)
    for row in range(len(list_first) - 1):
        row_first[row] = used
        if len(list_here) and not list_here[row]:
            continue
        for value in range(list_first[row], list_first[row + 1]):
            if len(value_here) and not value_here[value]:
                continue
            expect(table, i64(hashes[min(value - base + _AHEAD, len(hashes) - 1)]) & mask)
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
                        _spread(table, seed, texts, count, mask)
                    break
                if table[slot, 0] == h:
                    first = texts.start[c]
                    if texts.end[c] - first == end - start and same_bytes(data, start, end, data, first):
                        break
                slot = (slot + 1) & mask
            if last[c] != row:
                last[c] = row
                code[used] = c
                used += 1
    row_first[len(list_first) - 1] = used
    return count


@kernel
def _spread(table: Keys, seed: Keys, texts: Texts, count: int, mask: int) -> None:
    """Fill the first mask + 1 slots anew."""
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
def place_texts(texts: Texts, seed: Keys, slots: Slots) -> None:
    """Enter distinct texts as the numbers 1, 2, … into an empty table with a power of two of slots, more than texts."""
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
    slots: Slots,
    known: Bytes,
    known_first: npt.NDArray[np.uint32],
    number: Numbers,
) -> None:
    """The numbers that `place_texts` gave to equal texts; -1 for those it was not given."""
    mask = len(slots) - 1
    hash_texts(texts, seed, hashes)
    for text in range(len(texts.start)):
        expect(slots, i64(hashes[min(text + _AHEAD, len(hashes) - 1)]) & mask)
        near = i64(hashes[min(text + _AHEAD // 2, len(hashes) - 1)]) & mask
        expect(known_first, max(i64(slots[near, 1]) - 1, 0))
        start, end = texts.start[text], texts.end[text]
        slot, tag = i64(hashes[text]) & mask, u32(hashes[text] >> _HALF)
        number[text] = -1
        while slots[slot, 1] != 0:
            if slots[slot, 0] == tag:
                c = i64(slots[slot, 1]) - 1
                first, beyond = i64(known_first[c]), i64(known_first[c + 1])
                if beyond - first == end - start and same_bytes(texts.data, start, end, known, first):
                    number[text] = c + 1
                    break
            slot = (slot + 1) & mask
