"""Terms as numbers: those of a batch in the order of first appearance, those of a segment in a stored dictionary."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from roamcast.compiled import read_only
from roamcast.errors import CapacityError
from roamcast.match.kernels.texts import Texts, TextSlots, copy_texts, find_texts, hash_seed, insert_texts, intern_lists

__all__ = ["Dictionary", "TermLists", "encode_terms", "select_texts", "unify_texts"]

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]

_MAX_BYTES: Final = 1 << 32
_SEED: Final = hash_seed(secrets.token_bytes(16))  # of tables that do not outlive a call
_ALL_VALID: Final = read_only(np.zeros(0, np.bool_))


class TermLists(NamedTuple):
    """Row i has the distinct terms code[first[i]:first[i + 1]]; code c stands for text c."""

    first: Integers
    code: Numbers
    texts: Texts


class Dictionary(NamedTuple):
    """The terms of a segment, numbered from 1, in a hash table as it is stored.

    The seed is a digest of the terms. So the same terms make the same dictionary, and an attacker can only guess
    which terms collide, because every term changes the seed. A term costs its bytes and at most 36 more.
    """

    text: Bytes
    text_first: npt.NDArray[np.uint32]
    text_slots: TextSlots
    seed: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, texts: Texts) -> Dictionary:
        """Make a dictionary of distinct texts; text i gets the number i + 1. Raises CapacityError above 4 GiB."""
        if (texts.end - texts.start).sum() >= _MAX_BYTES:
            raise CapacityError("the terms of one segment exceed 4 GiB", hint="use shorter terms")
        text, first = _concatenate([texts])
        seed = hash_seed(text.data)
        slots: TextSlots = np.zeros((_next_power(2 * len(texts.start) + 1), 2), np.uint32)
        insert_texts(Texts(text, first[:-1], first[1:]), seed, slots)
        return cls(text, first.astype(np.uint32), slots, seed)

    def numbers(self, texts: Texts) -> Numbers:
        """Look up the numbers of terms; -1 for unknown terms."""
        number: Numbers = np.empty(len(texts.start), np.int32)
        hashes = np.empty(len(number), np.uint64)
        find_texts(texts, self.seed, hashes, self.text_slots, self.text, self.text_first, number)
        return number

    def texts(self) -> Texts:
        return Texts(self.text, self.text_first[:-1].astype(np.int64), self.text_first[1:].astype(np.int64))


def encode_terms(lists: pa.ListArray[Any]) -> TermLists:
    """Number the terms of lists. A null list is empty, null terms are dropped, repeated terms count once.

    Texts stay in the memory of `lists`.
    """
    if not pa.types.is_list(lists.type) or not pa.types.is_string(lists.type.value_type):
        lists = lists.cast(pa.list_(pa.string()))
    offsets = lists.offsets.to_numpy().astype(np.int64)
    # Only the values of this slice: the whole array may be far longer.
    values = lists.values.slice(offsets[0], offsets[-1] - offsets[0])
    _, value_offsets, data = values.buffers()
    value_first = (
        np.frombuffer(value_offsets, np.int32, len(values) + 1, 4 * values.offset).astype(np.int64)
        if len(values)
        else np.zeros(1, np.int64)
    )
    text = np.frombuffer(data if data is not None and data.size else b"\0", np.uint8)
    return _intern(offsets - offsets[0], _validity(lists), value_first, _validity(values), read_only(text))


def unify_texts(parts: Sequence[Texts]) -> tuple[Texts, list[Numbers]]:
    """Return the distinct texts of several parts, and for each part the codes of its texts among them."""
    text, first = _concatenate(parts)
    lists = _intern(np.arange(len(first)), _ALL_VALID, first, _ALL_VALID, text)
    return lists.texts, np.split(lists.code, np.cumsum([len(part.start) for part in parts])[:-1])


def select_texts(texts: Texts, selected: Integers) -> Texts:
    """Select some of the texts, in the same memory."""
    return Texts(texts.data, texts.start[selected], texts.end[selected])


def _intern(
    list_first: Integers,
    list_valid: npt.NDArray[np.bool_],
    value_first: Integers,
    value_valid: npt.NDArray[np.bool_],
    text: Bytes,
) -> TermLists:
    size = int(list_first[-1] - list_first[0])
    table = np.empty((_next_power(max(4 * size, 64)), 2), np.uint64)
    texts = Texts(text, np.empty(size, np.int64), np.empty(size, np.int64))
    first: Integers = np.empty(len(list_first), np.int64)
    code: Numbers = np.empty(size, np.int32)
    last_row, hashes = np.full(size, -1, np.int32), np.empty(size, np.uint64)
    count = intern_lists(
        list_first, list_valid, value_first, value_valid, _SEED, hashes, table, texts, last_row, first, code
    )
    return TermLists(first, code[: first[-1]], Texts(text, texts.start[:count], texts.end[:count]))


def _validity(array: pa.Array[Any]) -> npt.NDArray[np.bool_]:
    """Return which elements are not null; an empty array if no element is null."""
    return read_only(array.is_valid().to_numpy(zero_copy_only=False)) if array.null_count else _ALL_VALID


def _concatenate(parts: Sequence[Texts]) -> tuple[Bytes, Integers]:
    """Return the bytes of all texts, and the offsets of the texts in them (one more than texts)."""
    first = np.concatenate([np.zeros(1, np.int64), *(part.end - part.start for part in parts)])
    np.cumsum(first, out=first)
    text, done = np.empty(first[-1], np.uint8), 0
    for part in parts:
        copy_texts(part, first[done:], text)
        done += len(part.start)
    return read_only(text), first


def _next_power(least: int) -> int:
    """Return the smallest power of two that is not below `least`."""
    return 1 << max(least - 1, 0).bit_length()
