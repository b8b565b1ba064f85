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

from roamcast.match.index.rows import sample_evenly
from roamcast.pipeline.schemas import TABLES, Table
from roamcast.pipeline.state.parts import Part, PartFolder

__all__ = ["Ends", "Found", "Lookup", "Lookups"]

Integers: TypeAlias = npt.NDArray[np.int64]
Hashes: TypeAlias = npt.NDArray[np.uint64]
Truths: TypeAlias = npt.NDArray[np.bool_]

_ROW_BITS = 40
_NEVER = np.iinfo(np.int64).max
_EVER = np.iinfo(np.int64).min  # where `until` alone decides


class Found(NamedTuple):
    """Pairs, ordered by key: number of a key, and a row that has it."""

    key: Integers
    row: Integers


class Ends(NamedTuple):
    """For each key: rows that ended at a place up to `offset`, and at a time up to `time`, are not wanted."""

    offset: Integers
    time: Integers

    @classmethod
    def all(cls, keys: int) -> Ends:
        """Nothing that has ended is wanted."""
        return cls(np.full(keys, _NEVER - 1), np.full(keys, _NEVER - 1))


class Lookups:
    """The parts of one table, oldest first. Rows have numbers that mean the same wherever these parts are opened."""

    def __init__(self, folder: Path, table: str, parts: Sequence[Part]) -> None:
        self._layers = [_layer(folder, table, part) for part in parts]
        self._table = _table(table)

    def find(
        self, columns: Sequence[str], keys: Sequence[pa.Array], ends: Ends | None = None, *, scan: bool = False
    ) -> Found:
        """The rows in force whose `columns` equal a key; `keys` holds a column of values for each of `columns`.

        The columns must be such that they never change for a key of the table. With `ends`, for tables that have
        `until` (and perhaps `end`): of rows that have ended only those it wants; the others cost next to nothing. To
        `scan` is for very many keys: it reads a column and leaves no index behind.
        """
        if tuple(columns) == (self._table.order,) and ends is None:
            found = [layer.find_ordered(columns[0], keys[0].to_numpy()) for layer in self._layers]
        else:
            hashes = _hashes(keys)
            found = [layer.find(tuple(columns), keys, hashes, ends, scan=scan) for layer in self._layers]
        key = np.concatenate([np.empty(0, np.int64), *(pairs.key for pairs in found)])
        level = np.repeat(np.arange(len(found)), [len(pairs.key) for pairs in found])
        row = np.concatenate([np.empty(0, np.int64), *(pairs.row for pairs in found)])
        kept = self._in_force(level, row)
        key, row = key[kept], (level[kept] << _ROW_BITS) + row[kept]
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

    def some(self, most: int) -> Integers:
        """The numbers of at most so many rows, evenly spread; some of them may be replaced by others."""
        first = np.cumsum([0, *(layer.rows.num_rows for layer in self._layers)])
        chosen = sample_evenly(int(first[-1]), most)
        level = np.searchsorted(first, chosen, "right") - 1
        numbers: Integers = (level << _ROW_BITS) + chosen - first[level]
        return numbers

    def _in_force(self, level: Integers, row: Integers) -> Truths:
        """Which rows are not replaced by one with their key in a layer above."""
        kept = np.ones(len(row), np.bool_)
        for number, layer in enumerate(self._layers[:-1]):
            here = np.flatnonzero(level == number)
            if not len(here):
                continue
            if (order := self._table.order) is not None:
                numbers = layer.ordered(order)[row[here]]
                for above in self._layers[number + 1 :]:
                    kept[here[above.find_ordered(order, numbers).key]] = False
                continue
            own = layer.rows.select(self._table.keys).take(pa.array(row[here]))
            keys = [own.column(name).combine_chunks() for name in self._table.keys]
            hashes = _hashes(keys)
            for above in self._layers[number + 1 :]:
                kept[here[above.find(self._table.keys, keys, hashes).key]] = False
        return kept


class _Index(NamedTuple):
    """Rows of a part by hash, and among those of equal hash by `until`, the live ones last.

    `until` and `end` tell of each row in this order; `end` is the latest of any up to it among those of equal hash.
    """

    hashes: Hashes
    row: Integers
    until: Integers
    end: Integers


class Lookup:
    """Rows, and an index for each set of columns that they were looked up by."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        self._indexes: dict[tuple[str, ...], _Index] = {}

    def find(
        self,
        columns: tuple[str, ...],
        keys: Sequence[pa.Array],
        hashes: Hashes | None = None,
        ends: Ends | None = None,
        *,
        scan: bool = False,
    ) -> Found:
        """As `Lookups.find`, of all rows. `hashes` are those of the keys, if they are known."""
        if scan and columns not in self._indexes:
            return self._find_scanning(columns, keys, hashes, ends)
        index = self._index(columns)
        hashes = _hashes(keys) if hashes is None else hashes
        first = np.searchsorted(index.hashes, hashes, "left")
        stop = np.searchsorted(index.hashes, hashes, "right")
        if ends is not None:
            first = _first_wanted(index, first, stop, ends)
        count = stop - first
        key = np.repeat(np.arange(len(hashes)), count)
        offset = np.arange(len(key)) - np.repeat(np.cumsum(count) - count, count)
        row = index.row[np.repeat(first, count) + offset]
        equal = np.ones(len(key), np.bool_)
        for column, values in zip(columns, keys, strict=True):
            ours = self.rows.column(column).take(pa.array(row)).combine_chunks()
            equal &= pc.equal(ours, values.take(pa.array(key))).to_numpy(zero_copy_only=False)
        return Found(key[equal], row[equal])

    def _find_scanning(
        self, columns: tuple[str, ...], keys: Sequence[pa.Array], hashes: Hashes | None, ends: Ends | None
    ) -> Found:
        """Only rows that have the last part of some key can have a key."""
        some = np.flatnonzero(pc.is_in(self.rows.column(columns[-1]), value_set=keys[-1]).to_numpy())
        needed = [name for name in self.rows.column_names if name in {*columns, "until", "end"}]
        few = Lookup(self.rows.select(needed).take(pa.array(some)))
        found = few.find(columns, keys, hashes, ends)
        return Found(found.key, some[found.row])

    def find_ordered(self, column: str, numbers: Integers) -> Found:
        """As `Lookups.find`, by the column in whose order the rows lie: nothing is made for it or kept."""
        ours = self.ordered(column)
        place = np.searchsorted(ours, numbers)
        there = np.flatnonzero(place < len(ours))
        there = there[ours[place[there]] == numbers[there]]
        return Found(there, place[there])

    def ordered(self, column: str) -> Integers:
        """The column in whose order the rows lie, mapped as they are."""
        chunks = self.rows.column(column).chunks
        values: Integers = chunks[0].to_numpy() if chunks else np.empty(0, np.int64)
        return values

    def _index(self, columns: tuple[str, ...]) -> _Index:
        if columns not in self._indexes:
            hashes = _hashes([self.rows.column(column).combine_chunks() for column in columns])
            until, end = self._ends("until", _NEVER), self._ends("end", _EVER)
            order = np.lexsort((until, hashes))
            latest = end[order]
            if "end" in self.rows.column_names:
                latest = pd.Series(latest).groupby(hashes[order], sort=False).cummax().to_numpy()
            self._indexes[columns] = _Index(hashes[order], order, until[order], latest)
        return self._indexes[columns]

    def _ends(self, name: str, default: int) -> Integers:
        """The column, where rows have it; those that are live never end."""
        if name not in self.rows.column_names:
            return np.full(self.rows.num_rows, default)
        ends: Integers = pc.fill_null(self.rows[name], _NEVER).to_numpy()
        return ends


def _first_wanted(index: _Index, first: Integers, stop: Integers, ends: Ends) -> Integers:
    """By halving: before it every row has ended up to the given place and time."""
    low, high = first.copy(), stop.copy()
    while (undecided := low < high).any():
        middle = np.where(undecided, (low + high) // 2, 0)
        wanted = (index.until[middle] > ends.offset) | (index.end[middle] > ends.time)
        high = np.where(undecided & wanted, middle, high)
        low = np.where(undecided & ~wanted, middle + 1, low)
    return low


@lru_cache(maxsize=128)
def _layer(folder: Path, table: str, part: Part) -> Lookup:
    return Lookup(PartFolder(folder).read(_table(table), part))


def _table(name: str) -> Table:
    return next(table for table in TABLES if table.name == name)


def _hashes(columns: Sequence[pa.Array]) -> Hashes:
    """A number for each row, the same in every process. Equal numbers do not mean equal rows."""
    total: Hashes = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        encoded = column.dictionary_encode()
        values = encoded.dictionary.to_numpy(zero_copy_only=False)
        hashed: Hashes = pd.util.hash_array(values, categorize=False)
        total = total * np.uint64(0x9E3779B97F4A7C15) + hashed[encoded.indices.to_numpy()]
    return total
