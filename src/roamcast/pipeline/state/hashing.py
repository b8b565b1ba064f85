"""Hashes of rows: the same in every process, so that rows can be sorted and divided by them on disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Hashes", "hash_rows", "shard_of_hashes", "shards_of"]

Hashes: TypeAlias = npt.NDArray[np.uint64]

_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_SHARD_BITS: Final = np.uint64(32)


def hash_rows(columns: Sequence[pa.Array]) -> Hashes:
    """A hash of each row of these columns of texts or integers. Different rows may have equal hashes."""
    total: Hashes = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        total = (total + _hash_column(column)) * _FACTOR
        total ^= total >> np.uint64(29)
    return total


def shards_of(columns: Sequence[pa.Array], shards: int) -> npt.NDArray[np.int64]:
    """The shard of each row. It depends on more bits of the hash than the order of the rows of a small shard."""
    return shard_of_hashes(hash_rows(columns), shards)


def shard_of_hashes(hashes: Hashes, shards: int) -> npt.NDArray[np.int64]:
    """The shards of rows with these hashes."""
    numbers: npt.NDArray[np.int64] = (hashes >> _SHARD_BITS).astype(np.int64) % shards
    return numbers


def _hash_column(column: pa.Array) -> Hashes:
    if pa.types.is_integer(column.type):
        integers: Hashes = column.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
        return integers
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    texts = encoded.dictionary.cast(pa.binary()).to_pylist()
    hashed = np.fromiter(map(crc32, texts), np.uint64, len(texts))
    hashes: Hashes = hashed[encoded.indices.to_numpy(zero_copy_only=False)]
    return hashes
