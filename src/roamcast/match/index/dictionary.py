"""Terms as numbers: those of a batch by first appearance, those of a segment for as long as it lives."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from roamcast.errors import CapacityError
from roamcast.match.index.seeds import seed_of
from roamcast.match.kernels.texts import Slots, Texts, copy_texts, find_texts, intern, place_texts

__all__ = ["Dictionary", "TermLists", "encode_terms", "select_texts", "unify_texts"]

Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]

_MOST_BYTES: Final = 1 << 32
_SEED: Final = seed_of(secrets.token_bytes(16))  # of tables that do not outlive a call
_NONE: Final = np.zeros(0, np.bool_)


class TermLists(NamedTuple):
    """Row i has the terms code[first[i]:first[i + 1]], each once; code c stands for text c."""

    first: Integers
    code: Numbers
    texts: Texts


class Dictionary(NamedTuple):
    """The terms of a segment, numbered from 1, in a hash table; as it lies in the file.

    The seed is a digest of the terms: the same terms make the same dictionary, and who wants terms that collide in it
    can only try, for every term changes the seed. A term costs its bytes and at most 36 more.
    """

    text: npt.NDArray[np.uint8]
    text_first: npt.NDArray[np.uint32]
    slots: Slots
    seed: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, texts: Texts) -> Dictionary:
        """Text i gets the number i + 1. Texts must be distinct."""
        if (texts.end - texts.start).sum() >= _MOST_BYTES:
            raise CapacityError("the terms of one segment exceed 4 GiB", hint="use shorter terms")
        text, first = _gathered([texts])
        seed = seed_of(text.data)
        slots: Slots = np.zeros((_power(2 * len(texts.start) + 1), 2), np.uint32)
        place_texts(Texts(text, first[:-1], first[1:]), seed, slots)
        return cls(text, first.astype(np.uint32), slots, seed)

    def numbers(self, texts: Texts) -> Numbers:
        """-1 for terms that are not in it."""
        found: Numbers = np.empty(len(texts.start), np.int32)
        find_texts(texts, self.seed, np.empty(len(found), np.uint64), self.slots, self.text, self.text_first, found)
        return found

    def texts(self) -> Texts:
        return Texts(self.text, self.text_first[:-1].astype(np.int64), self.text_first[1:].astype(np.int64))


def encode_terms(lists: pa.ListArray[Any]) -> TermLists:
    """Number the terms of lists. An absent list is empty, an absent term is left out, a repeated one counts once.

    Texts stay in the memory of `lists`.
    """
    if not pa.types.is_list(lists.type) or not pa.types.is_string(lists.type.value_type):
        lists = lists.cast(pa.list_(pa.string()))
    offsets = lists.offsets.to_numpy().astype(np.int64)
    # Of a slice its own terms only: the array it is of may be far longer.
    values = lists.values.slice(offsets[0], offsets[-1] - offsets[0])
    _, value_offsets, data = values.buffers()
    value_first = (
        np.frombuffer(value_offsets, np.int32, len(values) + 1, 4 * values.offset).astype(np.int64)
        if len(values)
        else np.zeros(1, np.int64)
    )
    text = np.frombuffer(data, np.uint8) if data is not None and data.size else np.frombuffer(b"\0", np.uint8)
    return _interned(offsets - offsets[0], _here(lists), value_first, _here(values), text)


def unify_texts(parts: Sequence[Texts]) -> tuple[Texts, list[Numbers]]:
    """The distinct texts of several parts, and for each part the codes of its texts among them."""
    text, first = _gathered(parts)
    lists = _interned(np.arange(len(first)), _NONE, first, _NONE, text)
    return lists.texts, np.split(lists.code, np.cumsum([len(part.start) for part in parts])[:-1])


def _interned(
    list_first: Integers,
    lists_here: npt.NDArray[np.bool_],
    value_first: Integers,
    values_here: npt.NDArray[np.bool_],
    text: npt.NDArray[np.uint8],
) -> TermLists:
    most = int(list_first[-1] - list_first[0])
    table = np.empty((_power(max(4 * most, 64)), 2), np.uint64)
    texts = Texts(text, np.empty(most, np.int64), np.empty(most, np.int64))
    first: Integers = np.empty(len(list_first), np.int64)
    code: Numbers = np.empty(most, np.int32)
    last = np.full(most, -1, np.int32)
    hashes = np.empty(most, np.uint64)
    count = intern(list_first, lists_here, value_first, values_here, _SEED, hashes, table, texts, last, first, code)
    return TermLists(first, code[: first[-1]], Texts(text, texts.start[:count], texts.end[:count]))


def _here(array: pa.Array[Any]) -> npt.NDArray[np.bool_]:
    """Which elements are not absent; empty where all are there."""
    return array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else _NONE


def select_texts(texts: Texts, chosen: Integers) -> Texts:
    """Some of the texts, in the same memory."""
    return Texts(texts.data, texts.start[chosen], texts.end[chosen])


def _gathered(parts: Sequence[Texts]) -> tuple[npt.NDArray[np.uint8], Integers]:
    """The bytes of all texts one after another, and where each begins; one beginning more at the end."""
    first = np.concatenate([np.zeros(1, np.int64), *(part.end - part.start for part in parts)])
    np.cumsum(first, out=first)
    text, done = np.empty(first[-1], np.uint8), 0
    for part in parts:
        copy_texts(part, first[done:], text)
        done += len(part.start)
    return text, first


def _power(least: int) -> int:
    """The smallest power of two that is not below `least`."""
    return 1 << max(least - 1, 0).bit_length()
