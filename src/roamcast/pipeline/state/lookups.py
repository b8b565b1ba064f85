"""Lookups of rows by value, without reading the whole table: each part has its own index.

A batch brings a small new part, and the indexes of the others are kept. So a change costs in proportion to what it
changes, and a lookup to what it finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.errors import CorruptionError
from roamcast.match.index.rows import sample_evenly
from roamcast.model import BEFORE_ALL, NO_END
from roamcast.pipeline.schemas import KEY_HASH, PARTITIONING_TABLES, TABLES, StateTable
from roamcast.pipeline.state.hashing import Hashes, hash_rows, shards_of
from roamcast.pipeline.state.parts import RESTORE_HINT, Part, PartFolder

__all__ = [
    "EndLimits", "Integers", "KeyLookup", "KeyRows", "RowLookup", "ShardedLookup", "TableLookup", "Truths",
    "running_max",
]  # fmt: skip

Integers: TypeAlias = npt.NDArray[np.int64]
Truths: TypeAlias = npt.NDArray[np.bool_]

_ROW_BITS: Final = 40
_SHARD_BITS: Final = 52
_FEW_PARTS: Final = 64
_MOST_PARTS: Final = 4_096
_NONE: Final = np.empty(0, np.int64)


class KeyRows(NamedTuple):
    """Pairs of a key's index and a row that has this key, ordered by key."""

    key: Integers
    row: Integers

    def without(self, dropped: Truths) -> KeyRows:
        """The pairs whose key is not dropped."""
        kept = ~dropped[self.key]
        return KeyRows(self.key[kept], self.row[kept])


class EndLimits(NamedTuple):
    """For each key: skip rows whose `until` is at most `offset` and whose `end` is at most `time`."""

    offset: Integers
    time: Integers

    @classmethod
    def live_only(cls, keys: int) -> EndLimits:
        """Limits that skip all rows that have ended."""
        return cls(np.full(keys, NO_END - 1), np.full(keys, NO_END - 1))


class TableLookup:
    """The parts of one table, oldest first. Row numbers mean the same wherever these parts are opened."""

    def __init__(self, folder: Path, table: str, parts: Sequence[Part]) -> None:
        self._lookups = [_OPEN_PARTS.open(folder, table, part) for part in parts]
        self._table = _table(table)

    def find(
        self, columns: Sequence[str], keys: Sequence[pa.Array], limits: EndLimits | None = None, *, scan: bool = False
    ) -> KeyRows:
        """Find the current rows whose `columns` equal a key. `keys` has an array of values for each of `columns`.

        Only columns that never change for a key of the table may be used. With `limits`, for tables that have `until`
        (and perhaps `end`), the rows to skip cost almost nothing. `scan` is for very many keys: it reads a column
        instead of building an index.
        """
        if tuple(columns) == (self._table.order,) and limits is None:
            pairs = [lookup.find_ordered(columns[0], keys[0].to_numpy()) for lookup in self._lookups]
        else:
            hashes = hash_rows(keys)
            pairs = [lookup.find(tuple(columns), keys, hashes, limits, scan=scan) for lookup in self._lookups]
        key = np.concatenate([np.empty(0, np.int64), *(each.key for each in pairs)])
        part = np.repeat(np.arange(len(pairs)), [len(each.key) for each in pairs])
        row = np.concatenate([np.empty(0, np.int64), *(each.row for each in pairs)])
        if tuple(columns) == self._table.keys and limits is None:
            order = np.lexsort((part, key))
            order = order[np.diff(key[order], append=-1) != 0]  # the newest row of each key
            return KeyRows(key[order], (part[order] << _ROW_BITS) + row[order])
        current = self._are_current(part, row)
        key, row = key[current], (part[current] << _ROW_BITS) + row[current]
        order = np.lexsort((row, key))
        return KeyRows(key[order], row[order])

    def take(self, rows: Integers, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows with these numbers, in this order."""
        part = rows >> _ROW_BITS
        indices, tables = [np.empty(0, np.int64)], []
        for number, lookup in enumerate(self._lookups):
            here = np.flatnonzero(part == number)
            if len(here):
                chosen = lookup.rows if columns is None else lookup.rows.select(columns)
                tables.append(chosen.take(pa.array(rows[here] & ((1 << _ROW_BITS) - 1))))
                indices.append(here)
        if not tables:
            schema = self._table.schema
            return (schema if columns is None else pa.schema([schema.field(c) for c in columns])).empty_table()
        together = pa.concat_tables(tables).combine_chunks()
        return together if len(tables) == 1 else together.take(pa.array(np.argsort(np.concatenate(indices))))

    def sample(self, size: int) -> Integers:
        """The numbers of at most `size` rows, evenly spread. Some of them may be outdated."""
        first = np.cumsum([0, *(lookup.rows.num_rows for lookup in self._lookups)])
        chosen = sample_evenly(int(first[-1]), size)
        part = np.searchsorted(first, chosen, "right") - 1
        numbers: Integers = (part << _ROW_BITS) + chosen - first[part]
        return numbers

    def _are_current(self, part: Integers, row: Integers) -> Truths:
        """Which rows are not replaced by a row with the same key in a newer part. `part` has the indices of parts."""
        current = np.ones(len(row), np.bool_)
        for number, lookup in enumerate(self._lookups[:-1]):
            here = np.flatnonzero(part == number)
            if not len(here):
                continue
            if (order := self._table.order) is not None:
                numbers = lookup.ordered(order)[row[here]]
                for newer in self._lookups[number + 1 :]:
                    current[here[newer.find_ordered(order, numbers).key]] = False
                continue
            key_rows = lookup.rows.select(self._table.keys).take(pa.array(row[here]))
            keys = [key_rows.column(name).combine_chunks() for name in self._table.keys]
            hashes = hash_rows(keys)
            for newer in self._lookups[number + 1 :]:
                current[here[newer.find(self._table.keys, keys, hashes).key]] = False
        return current


class ShardedLookup:
    """The parts of a divided table, a stack for each shard. A key is looked up in its shard only."""

    def __init__(self, folder: Path, table: StateTable, stacks: Sequence[Sequence[Part]]) -> None:
        self._folder = folder
        self._table = table
        self._stacks = stacks
        self._shards: dict[int, TableLookup] = {}

    def find(self, columns: Sequence[str], keys: Sequence[pa.Array]) -> KeyRows:
        """Find the current rows with a key of the table. `keys` has an array of values for each of its `columns`."""
        shard = shards_of([keys[columns.index(name)] for name in self._table.shard_by], len(self._stacks))
        found = [KeyRows(_NONE, _NONE)]
        for number in np.unique(shard).tolist():
            here = np.flatnonzero(shard == number)
            pairs = self._open(number).find(columns, [values.take(pa.array(here)) for values in keys])
            found.append(KeyRows(here[pairs.key], (number << _SHARD_BITS) + pairs.row))
        key, row = (np.concatenate(each) for each in zip(*found, strict=True))
        order = np.argsort(key, kind="stable")
        return KeyRows(key[order], row[order])

    def take(self, rows: Integers, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows with these numbers, in this order."""
        schema = self._table.schema
        tables = [(schema if columns is None else pa.schema([schema.field(c) for c in columns])).empty_table()]
        shard, indices = rows >> _SHARD_BITS, [_NONE]
        for number in np.unique(shard).tolist():
            here = np.flatnonzero(shard == number)
            tables.append(self._open(number).take(rows[here] & ((1 << _SHARD_BITS) - 1), columns))
            indices.append(here)
        return pa.concat_tables(tables).combine_chunks().take(pa.array(np.argsort(np.concatenate(indices))))

    def _open(self, shard: int) -> TableLookup:
        if shard not in self._shards:
            self._shards[shard] = TableLookup(self._folder, self._table.name, self._stacks[shard])
        return self._shards[shard]


KeyLookup: TypeAlias = TableLookup | ShardedLookup
"""Finds rows by the key of the table."""


class _HashIndex(NamedTuple):
    """Rows sorted by hash, and rows with equal hash by `until`, live rows last.

    `until` and `end` are in this order. `end` is the latest of all rows with equal hash up to this one. `row` is None
    if the rows themselves are in this order; then they have no ends.
    """

    hashes: Hashes
    row: Integers | None
    until: Integers
    end: Integers


class RowLookup:
    """Rows, and an index for each set of columns by which they were looked up.

    Rows that are sorted by the hash of their key, which is in a column, need no index for it.
    """

    def __init__(self, rows: pa.Table, keys: tuple[str, ...] = ()) -> None:
        self._indexes: dict[tuple[str, ...], _HashIndex] = {}
        if KEY_HASH in rows.column_names:
            hashes = _one_array(rows, KEY_HASH)
            self._indexes[keys] = _HashIndex(hashes, None, _NONE, _NONE)
            rows = rows.drop_columns([KEY_HASH])
        self.rows = rows

    def find(
        self,
        columns: tuple[str, ...],
        keys: Sequence[pa.Array],
        hashes: Hashes | None = None,
        limits: EndLimits | None = None,
        *,
        scan: bool = False,
    ) -> KeyRows:
        """Like `TableLookup.find`, among all rows. `hashes` are those of the keys, if they are known."""
        if scan and columns not in self._indexes:
            return self._find_by_scan(columns, keys, hashes, limits)
        index = self._index(columns)
        hashes = hash_rows(keys) if hashes is None else hashes
        first = np.searchsorted(index.hashes, hashes, "left")
        stop = np.searchsorted(index.hashes, hashes, "right")
        if limits is not None:
            first = _skip_ended(index, first, stop, limits)
        count = stop - first
        key = np.repeat(np.arange(len(hashes)), count)
        nth = np.arange(len(key)) - np.repeat(np.cumsum(count) - count, count)
        row = np.repeat(first, count) + nth
        if index.row is not None:
            row = index.row[row]
        equal = np.ones(len(key), np.bool_)
        for column, values in zip(columns, keys, strict=True):
            ours = self.rows.column(column).take(pa.array(row)).combine_chunks()
            equal &= pc.equal(ours, values.take(pa.array(key))).to_numpy(zero_copy_only=False)
        return KeyRows(key[equal], row[equal])

    def _find_by_scan(
        self, columns: tuple[str, ...], keys: Sequence[pa.Array], hashes: Hashes | None, limits: EndLimits | None
    ) -> KeyRows:
        """Filter by the last column first, then look up among the few rows that are left."""
        some = np.flatnonzero(pc.is_in(self.rows.column(columns[-1]), value_set=keys[-1]).to_numpy())
        needed = [name for name in self.rows.column_names if name in {*columns, "until", "end"}]
        few = RowLookup(self.rows.select(needed).take(pa.array(some)))
        pairs = few.find(columns, keys, hashes, limits)
        return KeyRows(pairs.key, some[pairs.row])

    def find_ordered(self, column: str, numbers: Integers) -> KeyRows:
        """Like `TableLookup.find`, by the column that the rows are sorted by. Needs no index."""
        ours = self.ordered(column)
        at = np.searchsorted(ours, numbers)
        key = np.flatnonzero(at < len(ours))
        key = key[ours[at[key]] == numbers[key]]
        return KeyRows(key, at[key])

    def ordered(self, column: str) -> Integers:
        """The column that the rows are sorted by, without a copy."""
        values: Integers = _one_array(self.rows, column)
        return values

    def _index(self, columns: tuple[str, ...]) -> _HashIndex:
        if columns not in self._indexes:
            hashes = hash_rows([self.rows.column(column).combine_chunks() for column in columns])
            until, end = self._ends("until", NO_END), self._ends("end", BEFORE_ALL)
            order = np.lexsort((until, hashes))
            latest = end[order]
            if "end" in self.rows.column_names:
                latest = running_max(latest, hashes[order])
            self._indexes[columns] = _HashIndex(hashes[order], order, until[order], latest)
        return self._indexes[columns]

    def _ends(self, name: str, default: int) -> Integers:
        """The column, or `default` if there is no such column. Live rows have NO_END."""
        if name not in self.rows.column_names:
            return np.full(self.rows.num_rows, default)
        ends: Integers = pc.fill_null(self.rows[name], NO_END).to_numpy()
        return ends


def _one_array(rows: pa.Table, column: str) -> npt.NDArray[Any]:
    """A column of numbers, without a copy. The rows of a part are in one chunk; raises CorruptionError if not."""
    chunks = rows.column(column).chunks
    if len(chunks) > 1:
        raise CorruptionError("a part of the state is in several pieces", hint=RESTORE_HINT)
    return chunks[0].to_numpy() if chunks else np.empty(0, rows.schema.field(column).type.to_pandas_dtype())


def _skip_ended(index: _HashIndex, first: Integers, stop: Integers, limits: EndLimits) -> Integers:
    """By binary search, the first row of each range [first, stop) that is not to be skipped."""
    low, high = first.copy(), stop.copy()
    while (undecided := low < high).any():
        middle = np.where(undecided, (low + high) // 2, 0)
        wanted = (index.until[middle] > limits.offset) | (index.end[middle] > limits.time)
        high = np.where(undecided & wanted, middle, high)
        low = np.where(undecided & ~wanted, middle + 1, low)
    return low


class _OpenParts:
    """The parts that this process has mapped, those used last at the end.

    A part that is opened again is not verified again. When a file was removed, its space is free once nobody has it
    open, so such parts are closed whenever the number of parts has doubled.
    """

    def __init__(self) -> None:
        self._lookups: dict[tuple[Path, str, Part], RowLookup] = {}
        self._close_at = _FEW_PARTS

    def open(self, folder: Path, table: str, part: Part) -> RowLookup:
        key = folder, table, part
        lookup = self._lookups.pop(key, None)
        if lookup is None:
            lookup = RowLookup(PartFolder(folder).read(_table(table), part), _table(table).keys)
            if len(self._lookups) >= self._close_at:
                self._close_unused()
        self._lookups[key] = lookup
        return lookup

    def _close_unused(self) -> None:
        present = {key: lookup for key, lookup in self._lookups.items() if (key[0] / key[2].name).exists()}
        self._lookups = dict(list(present.items())[-_MOST_PARTS:])
        self._close_at = max(_FEW_PARTS, 2 * len(self._lookups))


_OPEN_PARTS: Final = _OpenParts()


def _table(name: str) -> StateTable:
    return next(table for table in (*TABLES, *PARTITIONING_TABLES) if table.name == name)


def running_max(values: Integers, groups: npt.NDArray[Any]) -> Integers:
    """For each value the maximum of its group so far. The values of a group are next to each other."""
    distinct, rank = np.unique(values, return_inverse=True)
    group = np.cumsum(np.diff(groups, prepend=groups[:1]) != 0)
    maximum = np.maximum.accumulate(group * len(distinct) + rank) - group * len(distinct)
    highest: Integers = distinct[maximum]
    return highest
