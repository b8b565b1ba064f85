"""Build the arrays of a segment from subscriptions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.compiled import read_only
from roamcast.errors import CapacityError
from roamcast.match.index.dictionary import Dictionary, TermLists, select_texts
from roamcast.match.index.grid import Levels, choose_levels
from roamcast.match.index.rows import IndexRows
from roamcast.match.kernels.cells import insert_cells, number_keys
from roamcast.match.kernels.postings import (
    SegmentArrays,
    choose_terms,
    count_words,
    number_bits,
    post_boxes,
    write_postings,
    write_predicates,
)
from roamcast.match.kernels.sorting import cell_curve_keys, radix_argsort
from roamcast.match.kernels.texts import Texts

__all__ = ["TermFrequency", "build"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint32]

TermFrequency = Callable[[Texts], Integers]
"""Estimates how many events had each of these terms."""

_MAX_ROWS: Final = (1 << 30) - 1  # rows and their terms, or postings


class _UnsortedPostings(NamedTuple):
    """Postings in no particular order, and the hash tables of the cells."""

    cell: Keys
    row: Numbers
    extent: Words
    cells: int
    table_first: Integers
    slot_key: Keys
    slot_cell: Numbers


def build(rows: IndexRows, frequency: TermFrequency | None = None) -> SegmentArrays:
    """Build the arrays of a segment. The same arguments give the same arrays.

    Each row is posted under its rarest term, counted over the rows and, by `frequency`, over events. Raises
    CapacityError if the rows do not fit into one segment.
    """
    texts, term = _number_terms(rows.terms)
    count = len(rows.handle)
    _check_capacity(count + len(term))
    weight = np.bincount(term, minlength=len(texts.start) + 1).astype(np.int64)
    if frequency is not None:
        weight[1:] += frequency(texts)
    chosen, signature = np.empty(count, np.int32), np.empty(count, np.uint32)
    choose_terms(rows.terms.first, term, weight, chosen, signature)
    levels = choose_levels(rows.box, chosen)
    posted = _post(rows.box, levels)
    order, bit, cell_first = _sort(posted, chosen, len(weight))
    bitmap, rank = np.zeros(cell_first[-1], np.uint64), np.empty(cell_first[-1], np.uint32)
    start, posting = np.empty(len(order) + 1, np.uint32), np.empty((len(order), 2), np.uint64)
    predicate_at, row_order = np.full(count, -1, np.int64), np.empty(count, np.int32)
    predicate_size = (np.maximum(np.diff(rows.terms.first), 1) + 1).astype(np.int32)
    bits, posted_rows = write_postings(
        order, bit, posted.row, posted.extent, signature, bitmap, rank, start, posting,
        predicate_size, predicate_at, row_order,
    )  # fmt: skip
    row_order[posted_rows:] = np.flatnonzero(predicate_at < 0)
    predicate = np.empty(predicate_size.sum(), np.uint32)
    write_predicates(row_order, rows.terms.first, term, read_only(rows.residual), predicate)
    return SegmentArrays(
        rows.handle[row_order], rows.box[row_order], predicate, (chosen == 0).any(keepdims=True),
        *Dictionary.of(texts), levels.scale, levels.wraps, _curve_scale(levels),
        posted.table_first, posted.slot_key, posted.slot_cell, cell_first.astype(np.uint32),
        bitmap, rank, start[: bits + 1].copy(), posting,
    )  # fmt: skip


def _check_capacity(size: int) -> None:
    if size > _MAX_ROWS:
        raise CapacityError("too many subscriptions for one segment", hint="use several segments")


def _number_terms(lists: TermLists) -> tuple[Texts, Words]:
    """Return the texts that occur, and for each element of the lists the number of its text, from 1."""
    used = np.bincount(lists.code, minlength=len(lists.texts.start)) > 0
    number = np.cumsum(used)
    return select_texts(lists.texts, np.flatnonzero(used)), number[lists.code].astype(np.uint32)


def _post(box: Floats, levels: Levels) -> _UnsortedPostings:
    no_output: Any = np.empty(0, np.uint64), np.empty(0, np.int32), np.empty((0, 2), np.uint32)
    by_level = np.argsort(levels.of, kind="stable").astype(np.int32)
    ends = np.searchsorted(levels.of[by_level], np.arange(-1, len(levels.scale)), side="right")
    level_rows = [by_level[first:end] for first, end in pairwise(ends)]
    settings = [(float(scale), bool(wraps)) for scale, wraps in zip(levels.scale, levels.wraps, strict=True)]
    sizes = [post_boxes(box, rows, *setting, *no_output) for rows, setting in zip(level_rows, settings, strict=True)]
    total = sum(sizes)
    _check_capacity(total)
    key, row = np.empty(total, np.uint64), np.empty(total, np.int32)
    extent, cell = np.empty((total, 2), np.uint32), np.empty(total, np.uint64)
    tables: list[tuple[Keys, Numbers]] = []
    first, cells = 0, 0
    for rows, setting, size in zip(level_rows, settings, sizes, strict=True):
        here = slice(first, first + size)
        post_boxes(box, rows, *setting, key[here], row[here], extent[here])
        number, distinct = _number_cells(key[here])
        cell[here] = number + cells
        tables.append(_cell_table(distinct, cells))
        first, cells = first + size, cells + len(distinct)
    table_first = np.cumsum([0, *(len(slot_cell) for _, slot_cell in tables)])
    slot_key, slot_cell = (
        np.concatenate([np.empty(0, dtype), *(table[i] for table in tables)])
        for i, dtype in enumerate((np.uint64, np.int32))
    )
    return _UnsortedPostings(cell, row, extent, cells, table_first, slot_key, slot_cell)


def _curve_scale(levels: Levels) -> Floats:
    """Return the scale of the level with the most rows; any scale will do for the world level."""
    rows = np.bincount(levels.of[levels.of >= 0], minlength=len(levels.scale))
    scale = levels.scale[rows.argmax()] if len(rows) else 0.0
    return np.array([scale or 1.0])


def _number_cells(key: Keys) -> tuple[Numbers, Keys]:
    """Number the cells of a level along the Z-order curve; return the number of each key and the keys in that order."""
    number: Numbers = np.empty(len(key), np.int32)
    distinct = np.empty(len(key), np.uint64)
    count = number_keys(key, np.full(1 << (2 * len(key)).bit_length(), -1, np.int32), distinct, number)
    distinct = distinct[:count]
    curve_key = np.empty(count, np.uint64)
    cell_x, cell_y = (distinct >> np.uint64(32)).astype(np.int32), distinct.astype(np.uint32).astype(np.int32)
    cell_curve_keys(cell_x, cell_y, curve_key)
    order = radix_argsort(curve_key)
    rank = np.empty(count, np.int32)
    rank[order] = np.arange(count, dtype=np.int32)
    return rank[number], distinct[order]


def _cell_table(key: Keys, first: int) -> tuple[Keys, Numbers]:
    """Return the keys and cells of a hash table; key i is that of cell first + i."""
    size = 1 << (len(key) + len(key) // 2).bit_length()
    slot_key, slot_cell = np.zeros(size, np.uint64), np.full(size, -1, np.int32)
    insert_cells(key, first, slot_key, slot_cell)
    return slot_key, slot_cell


def _sort(posted: _UnsortedPostings, chosen: Numbers, terms: int) -> tuple[Numbers, Keys, Integers]:
    """Return the order of postings by cell and hash of the term, the bit of each, and the first word of each cell."""
    words = np.empty(posted.cells, np.int64)
    by_cell = radix_argsort(posted.cell)
    count_words(by_cell, posted.cell, posted.row, chosen, np.full(terms, -1, np.int32), words)
    cell_first = np.concatenate([np.zeros(1, np.int64), np.cumsum(words)])
    bit = np.empty(len(posted.cell), np.uint64)
    number_bits(posted.cell, posted.row, chosen, cell_first, bit)
    return radix_argsort(bit), bit, cell_first
