"""Subscriptions to the arrays of a segment."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.errors import CapacityError
from roamcast.match.index.argsort import order_of
from roamcast.match.index.dictionary import Dictionary, TermLists, select_texts
from roamcast.match.index.grid import Levels, choose_levels
from roamcast.match.index.layout import Body
from roamcast.match.index.rows import IndexRows
from roamcast.match.kernels.cells import number_keys, place_cells
from roamcast.match.kernels.postings import choose_terms, count_words, fill, mark_bits, post, write_wishes
from roamcast.match.kernels.sorting import morton
from roamcast.match.kernels.texts import Texts

__all__ = ["TermFrequency", "build"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint32]

TermFrequency = Callable[[Texts], Integers]
"""How many events with each of these terms were seen, about."""

_MOST: Final = (1 << 30) - 1


class _Posted(NamedTuple):
    """Postings in no order, and the hash tables of the cells."""

    cell: Keys
    row: Numbers
    extent: Words
    cells: int
    table_first: Integers
    cell_key: Keys
    cell_at: Numbers


def build(rows: IndexRows, seen: TermFrequency | None = None) -> Body:
    """The arrays of a segment. Depends on nothing but its arguments.

    Each row is posted under its rarest term, by the rows that name it and the events that were seen with it. Raises
    CapacityError where the numbers of a segment do not reach.
    """
    texts, term = _numbered_terms(rows.terms)
    if len(rows.handle) + len(term) > _MOST:
        raise CapacityError("too many subscriptions for one segment", hint="spread them over several")
    count = len(rows.handle)
    weight = np.bincount(term, minlength=len(texts.start) + 1).astype(np.int64)
    if seen is not None:
        weight[1:] += seen(texts)
    chosen, signature = np.empty(count, np.int32), np.empty(count, np.uint32)
    choose_terms(rows.terms.first, term, weight, chosen, signature)
    levels = choose_levels(rows.box)
    posted = _post(rows.box, levels)
    order, bit, cell_first = _ordered(posted, chosen, len(weight))
    word, rank = np.zeros(cell_first[-1], np.uint64), np.empty(cell_first[-1], np.uint32)
    start, posting = np.empty(len(order) + 1, np.uint32), np.empty((len(order), 2), np.uint64)
    wish_at, order_of_rows = np.full(count, -1, np.int64), np.empty(count, np.int32)
    wish_size = (np.maximum(np.diff(rows.terms.first), 1) + 1).astype(np.int32)
    bits, used = fill(
        order, bit, posted.row, posted.extent, signature, word, rank, start, posting, wish_size, wish_at, order_of_rows
    )
    order_of_rows[used:] = np.flatnonzero(wish_at < 0)
    wish = np.empty(wish_size.sum(), np.uint32)
    write_wishes(order_of_rows, rows.terms.first, term, rows.residual, wish)
    return Body(
        rows.handle[order_of_rows], rows.box[order_of_rows], wish, (chosen == 0).any(keepdims=True),
        *Dictionary.of(texts), levels.scale, levels.wraps, _curve(levels),
        posted.table_first, posted.cell_key, posted.cell_at, cell_first.astype(np.uint32),
        word, rank, start[: bits + 1].copy(), posting,
    )  # fmt: skip


def _numbered_terms(lists: TermLists) -> tuple[Texts, Words]:
    """The texts that are used, and for each place in the lists the number of its text."""
    used = np.bincount(lists.code, minlength=len(lists.texts.start)) > 0
    number = np.cumsum(used)
    return select_texts(lists.texts, np.flatnonzero(used)), number[lists.code].astype(np.uint32)


def _post(box: Floats, levels: Levels) -> _Posted:
    nothing: Any = np.empty(0, np.uint64), np.empty(0, np.int32), np.empty((0, 2), np.uint32)
    by_level = np.argsort(levels.of, kind="stable").astype(np.int32)
    ends = np.searchsorted(levels.of[by_level], np.arange(-1, len(levels.scale)), side="right")
    of_level = [by_level[first:end] for first, end in pairwise(ends)]
    settings = [(float(scale), bool(wraps)) for scale, wraps in zip(levels.scale, levels.wraps, strict=True)]
    each = [post(box, rows, *setting, *nothing) for rows, setting in zip(of_level, settings, strict=True)]
    total = sum(each)
    if total > _MOST:
        raise CapacityError("too many subscriptions for one segment", hint="spread them over several")
    key, row = np.empty(total, np.uint64), np.empty(total, np.int32)
    extent, cell = np.empty((total, 2), np.uint32), np.empty(total, np.uint64)
    tables: list[tuple[Keys, Numbers]] = []
    first, cells = 0, 0
    for rows, setting, size in zip(of_level, settings, each, strict=True):
        here = slice(first, first + size)
        post(box, rows, *setting, key[here], row[here], extent[here])
        number, distinct = _cells(key[here])
        cell[here] = number + cells
        tables.append(_table(distinct, cells))
        first, cells = first + size, cells + len(distinct)
    table_first = np.cumsum([0, *(len(at) for _, at in tables)])
    keys, at = ([np.empty(0, kind), *(table[i] for table in tables)] for i, kind in enumerate((np.uint64, np.int32)))
    return _Posted(cell, row, extent, cells, table_first, np.concatenate(keys), np.concatenate(at))


def _curve(levels: Levels) -> Floats:
    """The scale of the level with the most rows; the world's has no order, and any will do."""
    most = np.bincount(levels.of[levels.of >= 0], minlength=len(levels.scale))
    scale = levels.scale[most.argmax()] if len(most) else 0.0
    return np.array([scale or 1.0])


def _cells(key: Keys) -> tuple[Numbers, Keys]:
    """The cells of a level numbered along the Z-order curve, and their keys in that order."""
    number: Numbers = np.empty(len(key), np.int32)
    distinct = np.empty(len(key), np.uint64)
    count = number_keys(key, np.full(1 << (2 * len(key)).bit_length(), -1, np.int32), distinct, number)
    distinct = distinct[:count]
    along = np.empty(count, np.uint64)
    morton((distinct >> np.uint64(32)).astype(np.int32), distinct.astype(np.uint32).astype(np.int32), along)
    order = order_of(along)
    rank = np.empty(count, np.int32)
    rank[order] = np.arange(count, dtype=np.int32)
    return rank[number], distinct[order]


def _table(key: Keys, first: int) -> tuple[Keys, Numbers]:
    """A hash table of cells; key i is that of cell first + i."""
    size = 1 << (len(key) + len(key) // 2).bit_length()
    keys, at = np.zeros(size, np.uint64), np.full(size, -1, np.int32)
    place_cells(key, first, keys, at)
    return keys, at


def _ordered(posted: _Posted, chosen: Numbers, terms: int) -> tuple[Numbers, Keys, Integers]:
    """Postings by cell and hash of the term: their order, the bit of each, and the first word of each cell."""
    words = np.empty(posted.cells, np.int64)
    count_words(order_of(posted.cell), posted.cell, posted.row, chosen, np.full(terms, -1, np.int32), words)
    cell_first = np.concatenate([np.zeros(1, np.int64), np.cumsum(words)])
    bit = np.empty(len(posted.cell), np.uint64)
    mark_bits(posted.cell, posted.row, chosen, cell_first, bit)
    return order_of(bit), bit, cell_first
