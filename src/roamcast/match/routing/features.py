"""Features: 64-bit keys of a cell and a term that an event and a subscription share if they match.

A subscription has a feature for each cell that its box touches, on one level of a grid, combined with its rarest term.
An event has one for each level and term. If they match, they share a feature; and if the subscription has a second
term, they also share the combination of that feature with the second term. Keys that collide cost a false positive,
never a match.

A cell is divided into 16 columns and 16 rows, its strips, with a bit each. If event and subscription match, the box
touches the column and the row of the point.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.compiled import read_only
from roamcast.match.index.dictionary import TermLists, encode_terms
from roamcast.match.index.rows import IndexRows
from roamcast.match.kernels.probing import (
    MAX_CELLS,
    NO_TERM,
    STRIPS,
    HashedEvents,
    combine_keys,
    hash_cells,
    number_strips,
)
from roamcast.match.kernels.texts import hash_seed, hash_texts
from roamcast.match.port import Events

__all__ = [
    "MIN_WIDTH",
    "WORLD",
    "FeaturePairs",
    "HashedEvents",
    "RarestTerms",
    "RowFeatures",
    "cell_widths",
    "combine",
    "event_features",
    "hash_events",
    "hash_terms",
    "rarest_terms",
    "row_features",
    "smallest_term_hashes",
    "text_hashes",
]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Strips = npt.NDArray[np.uint32]

MIN_WIDTH: Final = 1.0
"""The width of the smallest cells."""
WORLD: Final = 1 << 10
"""The level of boxes that are unbounded, cross the antimeridian, are very wide or far away."""
_CELLS_PER_BOX: Final = 2  # a box touches at most one cell more, along each axis
_WIDEST: Final = 20  # the widest bounded level; events are looked up on each level in use
_SEED: Final = hash_seed(b"features")


class FeaturePairs(NamedTuple):
    """Pairs of a row number (of a subscription or event) and a feature it has."""

    of: Integers
    key: Keys


class RowFeatures(NamedTuple):
    """Features of subscriptions, the strips of each cell that the box touches, and the levels of the cells."""

    features: FeaturePairs
    strips: Strips
    levels: Integers


class RarestTerms(NamedTuple):
    """The hash of the rarest term of each row, NO_TERM if it has none; and of the second rarest, 0 if it has none."""

    rarest: Keys
    second: Keys


def text_hashes(lists: TermLists) -> Keys:
    """Hash each text. Hashes are the same everywhere and always, and never 0."""
    hashes: Keys = np.empty(len(lists.texts.start), np.uint64)
    hash_texts(lists.texts, _SEED, hashes)
    return np.maximum(hashes, np.uint64(1))


def hash_terms(lists: TermLists) -> Keys:
    """Hash the term of each element of the lists."""
    return text_hashes(lists)[lists.code]


def smallest_term_hashes(lists: TermLists) -> Keys:
    """Return the smallest hash of each list's terms; the largest number for empty lists."""
    smallest: Keys = np.full(len(lists.first) - 1, ~np.uint64(0))
    np.minimum.at(smallest, np.repeat(np.arange(len(smallest)), np.diff(lists.first)), hash_terms(lists))
    return smallest


def rarest_terms(rows: IndexRows, weight: Integers | None = None) -> RarestTerms:
    """Choose the rarest terms, counted over these rows plus the `weight` of each text."""
    count = np.bincount(rows.terms.code, minlength=len(rows.terms.texts.start))
    count = count if weight is None else count + weight
    size, lengths = len(rows.handle), np.diff(rows.terms.first)
    owner = np.repeat(np.arange(size), lengths)
    hashes = hash_terms(rows.terms)
    # The rarest comes last. Ties are broken by hash, so that the order of terms does not matter.
    hashes = hashes[np.lexsort((hashes, -count[rows.terms.code], owner))]
    rarest: Keys = np.full(size, NO_TERM, np.uint64)
    rarest[lengths > 0] = hashes[rows.terms.first[1:][lengths > 0] - 1]
    second: Keys = np.zeros(size, np.uint64)
    second[lengths > 1] = hashes[rows.terms.first[1:][lengths > 1] - 2]
    return RarestTerms(rarest, second)


def row_features(
    box: Floats, term: Keys, min_width: float = MIN_WIDTH, cells_per_box: int = _CELLS_PER_BOX
) -> RowFeatures:
    """Return the features of boxes, each combined with its term. Empty boxes have none."""
    level = _levels(box, min_width, cells_per_box)
    nonempty = ~np.isnan(box).any(axis=1) & (box[:, 1] <= box[:, 3])
    rows = np.flatnonzero(nonempty)
    width = cell_widths(level[rows])
    west, south, east, north = (_strip_numbers(box[rows, side], width) for side in range(4))
    height = north // STRIPS - south // STRIPS + 1
    count = (east // STRIPS - west // STRIPS + 1) * height
    owner = np.repeat(np.arange(len(rows)), count)
    nth = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    cell_x, cell_y = (west // STRIPS)[owner] + nth // height[owner], (south // STRIPS)[owner] + nth % height[owner]
    columns = _touched_strips(west[owner], east[owner], cell_x)
    lines = _touched_strips(south[owner], north[owner], cell_y)
    key = combine(_cell_keys(level[rows][owner], cell_x, cell_y), term[rows][owner])
    strips = (columns | lines << STRIPS).astype(np.uint32)
    return RowFeatures(FeaturePairs(rows[owner], key), strips, np.unique(level[rows]))


def cell_widths(levels: Integers) -> Floats:
    """Return the width of the cells of each level."""
    width: Floats = np.where(levels == WORLD, np.inf, np.exp2(np.minimum(levels, _WIDEST).astype(np.float64)))
    return width


def combine(key: Keys, term: Keys) -> Keys:
    """Combine each key and the term beside it to one key."""
    combined: Keys = np.empty(len(key), np.uint64)
    combine_keys(key, term, combined)
    return combined


def hash_events(events: Events) -> HashedEvents:
    lists = encode_terms(events.terms)
    x, y = (read_only(np.asarray(c, np.float64)) for c in (events.x, events.y))
    return HashedEvents(x, y, lists.first, hash_terms(lists))


def event_features(events: HashedEvents, levels: Integers) -> FeaturePairs:
    """Return the features of events on these levels. Events whose point is NaN have none."""
    x, y, count = events.x, events.y, len(events.x)
    valid = ~(np.isnan(x) | np.isnan(y))
    owner = np.append(np.repeat(np.arange(count), np.diff(events.first)), np.arange(count))
    term = np.append(events.term, np.full(count, NO_TERM, np.uint64))
    parts = [FeaturePairs(np.empty(0, np.int64), np.empty(0, np.uint64))]
    for level in levels.tolist():
        width = np.repeat(cell_widths(np.array([level])), count)
        inside = valid & ((level == WORLD) | (np.abs(x) < MAX_CELLS * width) & (np.abs(y) < MAX_CELLS * width))
        cell_x, cell_y = (_strip_numbers(np.where(inside, c, 0.0), width) // STRIPS for c in (x, y))
        key = _cell_keys(np.full(count, level), cell_x, cell_y)
        kept = np.flatnonzero(inside[owner])
        parts.append(FeaturePairs(owner[kept], combine(key[owner[kept]], term[kept])))
    of, key = (np.concatenate(column) for column in zip(*parts, strict=True))
    return FeaturePairs(of, key)


def _levels(box: Floats, min_width: float, cells_per_box: int) -> Integers:
    """Return the level of each box: the exponent of the cell width, so that `cells_per_box` cells are as wide as it."""
    with np.errstate(invalid="ignore", over="ignore"):
        side = np.maximum(box[:, 2] - box[:, 0], box[:, 3] - box[:, 1])
        side = np.maximum(side / cells_per_box, min_width / 2)
        reach = np.abs(box).max(axis=1, initial=0.0)
        bounded = np.isfinite(side) & np.isfinite(reach) & (box[:, 0] <= box[:, 2])
        exponent = np.frexp(np.where(bounded, side, 1.0))[1]  # of the next power of two
        bounded &= (exponent <= _WIDEST) & (reach < np.exp2(np.minimum(exponent, _WIDEST)) * MAX_CELLS)
    return np.where(bounded, exponent, WORLD).astype(np.int64)


def _strip_numbers(coordinate: Floats, width: Floats) -> Integers:
    numbers = np.empty(len(coordinate), np.int64)
    number_strips(coordinate, width, numbers)
    return numbers


def _touched_strips(first: Integers, last: Integers, cell: Integers) -> Integers:
    """Return a bit for each strip of a cell from `first` to `last`."""
    low, high = np.maximum(first - cell * STRIPS, 0), np.minimum(last - cell * STRIPS, STRIPS - 1)
    bits: Integers = (2 << high) - (1 << low)
    return bits


def _cell_keys(level: Integers, cell_x: Integers, cell_y: Integers) -> Keys:
    keys: Keys = np.empty(len(level), np.uint64)
    hash_cells(level, cell_x, cell_y, keys)
    return keys
