"""Looking rows of the state up by value, without reading it all: each part of a table has an index of its own.

A batch brings a small new part; the indexes of the others are kept. So a change costs what it changes, and a lookup
what it finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.pipeline.parts import Part, PartFolder
from roamcast.pipeline.schemas import TABLES

__all__ = ["Found", "Layers"]

Integers: TypeAlias = npt.NDArray[np.int64]
Hashes: TypeAlias = npt.NDArray[np.uint64]

_ROW_BITS = 40


class Found(NamedTuple):
    """Pairs, ordered by key: number of a key, and a row that has it."""

    key: Integers
    row: Integers


class Layers:
    """The parts of one table, oldest first. Rows have numbers that mean the same wherever these parts are opened."""

    def __init__(self, folder: Path, table: str, parts: Sequence[Part]) -> None:
        self._layers = [_layer(folder, table, part) for part in parts]
        self._table = next(known for known in TABLES if known.name == table)

    def find(self, columns: Sequence[str], keys: Sequence[pa.Array]) -> Found:
        """The rows in force whose `columns` equal a key; `keys` holds a column of values for each of `columns`.

        The columns must be such that they never change for a key of the table.
        """
        hashes = _hashes(keys)
        found = [layer.find(tuple(columns), keys, hashes) for layer in self._layers]
        key = np.concatenate([np.empty(0, np.int64), *(pairs.key for pairs in found)])
        row = np.concatenate(
            [np.empty(0, np.int64), *((level << _ROW_BITS) + pairs.row for level, pairs in enumerate(found))]
        )
        if sum(len(pairs.key) > 0 for pairs in found) > 1:
            newest = self._newest(row, key)
            key, row = key[newest], row[newest]
        order = np.lexsort((row, key))
        return Found(key[order], row[order])

    def take(self, rows: Integers, columns: Sequence[str] | None = None) -> pa.Table:
        """These rows, in this order."""
        level = rows >> _ROW_BITS
        places, tables = [np.empty(0, np.int64)], []
        for number, layer in enumerate(self._layers):
            here = np.flatnonzero(level == number)
            if len(here):
                chosen = layer.rows if columns is None else layer.rows.select(columns)
                tables.append(chosen.take(pa.array(rows[here] & ((1 << _ROW_BITS) - 1))))
                places.append(here)
        if not tables:
            schema = self._table.schema
            return (schema if columns is None else pa.schema([schema.field(c) for c in columns])).empty_table()
        together = pa.concat_tables(tables).combine_chunks()
        return together if len(tables) == 1 else together.take(pa.array(np.argsort(np.concatenate(places))))

    def _newest(self, rows: Integers, keys: Integers) -> Integers:
        """Which of `rows` are the last with their key of the table; equal rows under several `keys` are all kept."""
        own = self.take(rows, self._table.keys)
        codes = [own.column(name).combine_chunks().dictionary_encode().indices.to_numpy() for name in own.column_names]
        order = np.lexsort((rows, *codes, keys))
        ordered = np.stack([keys, *codes])[:, order]
        last = np.append((ordered[:, 1:] != ordered[:, :-1]).any(axis=0), True)
        newest: Integers = order[last]
        return newest


class _Layer:
    """One part, and an index for each set of columns that it was asked for."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        self._indexes: dict[tuple[str, ...], tuple[Hashes, Integers]] = {}

    def find(self, columns: tuple[str, ...], keys: Sequence[pa.Array], hashes: Hashes) -> Found:
        sorted_hashes, order = self._index(columns)
        first = np.searchsorted(sorted_hashes, hashes, "left")
        count = np.searchsorted(sorted_hashes, hashes, "right") - first
        key = np.repeat(np.arange(len(hashes)), count)
        offset = np.arange(len(key)) - np.repeat(np.cumsum(count) - count, count)
        row = order[np.repeat(first, count) + offset]
        equal = np.ones(len(key), np.bool_)
        for column, values in zip(columns, keys, strict=True):
            ours = self.rows.column(column).take(pa.array(row)).combine_chunks()
            equal &= pc.equal(ours, values.take(pa.array(key))).to_numpy(zero_copy_only=False)
        return Found(key[equal], row[equal])

    def _index(self, columns: tuple[str, ...]) -> tuple[Hashes, Integers]:
        if columns not in self._indexes:
            hashes = _hashes([self.rows.column(column).combine_chunks() for column in columns])
            order = np.argsort(hashes, kind="stable")
            self._indexes[columns] = hashes[order], order
        return self._indexes[columns]


@lru_cache(maxsize=128)
def _layer(folder: Path, table: str, part: Part) -> _Layer:
    return _Layer(PartFolder(folder).read(next(known for known in TABLES if known.name == table), part))


def _hashes(columns: Sequence[pa.Array]) -> Hashes:
    """A number for each row, the same in every process. Equal numbers do not mean equal rows."""
    total: Hashes = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        encoded = column.dictionary_encode()
        values = encoded.dictionary.to_numpy(zero_copy_only=False)
        hashed: Hashes = pd.util.hash_array(values, categorize=False)
        total = total * np.uint64(0x9E3779B97F4A7C15) + hashed[encoded.indices.to_numpy()]
    return total
