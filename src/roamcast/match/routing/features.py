"""What an event must have to match a subscription: a point in one of few cells, and one term. As one number of 64 bits.

A subscription has a feature for each cell that its box touches, on one level of a grid, with one of its terms, the
rarest. An event has one for each level and term. If they match they have a feature in common, and also that feature
with the subscription's second term, if it has one. Numbers that collide cost a look in vain, never a match.

A cell has 16 columns and 16 rows, its strips, with a bit each. If they match, the box reaches into the column and
the row that the point is in.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.match.index.dictionary import TermLists, encode_terms
from roamcast.match.index.rows import IndexRows
from roamcast.match.index.seeds import seed_of
from roamcast.match.kernels.probing import MOST_CELLS, NO_TERM, STRIPS, Hashed, mix_cells, mix_terms, number_strips
from roamcast.match.kernels.texts import hash_texts
from roamcast.match.port import Events

__all__ = [
    "INTERVAL",
    "WORLD",
    "Features",
    "Hashed",
    "RarestTerms",
    "Reached",
    "features_of_events",
    "features_of_rows",
    "hashed_events",
    "hashed_terms",
    "least_terms",
    "mixed",
    "rarest_terms",
    "text_hashes",
    "widths_of",
]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Strips = npt.NDArray[np.uint32]

INTERVAL: Final = 1.0
"""The narrowest cells are so wide."""
WORLD: Final = 1 << 10
"""The level of boxes without borders, across the antimeridian, very wide, or far away."""
_FINE: Final = 2  # a box touches at most so many cells and one, along each axis
_WIDEST: Final = 20  # the last level with borders: an event is asked for on each level there is
_SEED: Final = seed_of(b"features")


class Features(NamedTuple):
    """Pairs: the number of a row, or of an event, and a feature it has."""

    of: Integers
    key: Keys


class Reached(NamedTuple):
    """Features of rows; the strips of each cell that a box reaches into; and the levels of the cells."""

    features: Features
    strips: Strips
    levels: Integers


class RarestTerms(NamedTuple):
    """Of each row the rarest term, hashed (without terms a number of its own), and the next one; 0 if there is none."""

    rarest: Keys
    second: Keys


def text_hashes(lists: TermLists) -> Keys:
    """The hash of each text, the same everywhere and always; never 0."""
    hashes: Keys = np.empty(len(lists.texts.start), np.uint64)
    hash_texts(lists.texts, _SEED, hashes)
    return np.maximum(hashes, np.uint64(1))


def hashed_terms(lists: TermLists) -> Keys:
    """For each place in the lists the hash of its term."""
    return text_hashes(lists)[lists.code]


def least_terms(lists: TermLists) -> Keys:
    """For each list the least hash of its terms; the highest number for those without."""
    least: Keys = np.full(len(lists.first) - 1, ~np.uint64(0))
    np.minimum.at(least, np.repeat(np.arange(len(least)), np.diff(lists.first)), hashed_terms(lists))
    return least


def rarest_terms(rows: IndexRows, weight: Integers | None = None) -> RarestTerms:
    """Among these rows. `weight` has for each text how often it was seen elsewhere, if that is known."""
    often = np.bincount(rows.terms.code, minlength=len(rows.terms.texts.start))
    often = often if weight is None else often + weight
    count, each = len(rows.handle), np.diff(rows.terms.first)
    owner = np.repeat(np.arange(count), each)
    hashes = hashed_terms(rows.terms)
    # The rarest comes last; equally rare ones by their hash, so that the order of terms does not matter.
    hashes = hashes[np.lexsort((hashes, -often[rows.terms.code], owner))]
    rarest: Keys = np.full(count, NO_TERM, np.uint64)
    rarest[each > 0] = hashes[rows.terms.first[1:][each > 0] - 1]
    second: Keys = np.zeros(count, np.uint64)
    second[each > 1] = hashes[rows.terms.first[1:][each > 1] - 2]
    return RarestTerms(rarest, second)


def features_of_rows(box: Floats, term: Keys, interval: float = INTERVAL, fine: int = _FINE) -> Reached:
    """Of boxes, each with its rarest term. Boxes that hold nothing have none."""
    level = _levels(box, interval, fine)
    holds = ~np.isnan(box).any(axis=1) & (box[:, 1] <= box[:, 3])
    rows = np.flatnonzero(holds)
    width = widths_of(level[rows])
    west, south, east, north = (_strips(box[rows, side], width) for side in range(4))
    high = north // STRIPS - south // STRIPS + 1
    count = (east // STRIPS - west // STRIPS + 1) * high
    owner = np.repeat(np.arange(len(rows)), count)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    cell_x, cell_y = (west // STRIPS)[owner] + place // high[owner], (south // STRIPS)[owner] + place % high[owner]
    columns, lines = _reached(west[owner], east[owner], cell_x), _reached(south[owner], north[owner], cell_y)
    key = mixed(_keys(level[rows][owner], cell_x, cell_y), term[rows][owner])
    strips = (columns | lines << STRIPS).astype(np.uint32)
    return Reached(Features(rows[owner], key), strips, np.unique(level[rows]))


def widths_of(levels: Integers) -> Floats:
    """How wide cells are on these levels."""
    width: Floats = np.where(levels == WORLD, np.inf, np.exp2(np.minimum(levels, _WIDEST).astype(np.float64)))
    return width


def mixed(key: Keys, term: Keys) -> Keys:
    """One number for each two."""
    found: Keys = np.empty(len(key), np.uint64)
    mix_terms(key, term, found)
    return found


def hashed_events(events: Events) -> Hashed:
    lists = encode_terms(events.terms)
    x, y = np.asarray(events.x, np.float64), np.asarray(events.y, np.float64)
    return Hashed(x, y, lists.first, hashed_terms(lists))


def features_of_events(events: Hashed, levels: Integers) -> Features:
    """On these levels. Events whose point is no number have none."""
    x, y, count = events.x, events.y, len(events.x)
    there = ~(np.isnan(x) | np.isnan(y))
    owner = np.append(np.repeat(np.arange(count), np.diff(events.first)), np.arange(count))
    term = np.append(events.term, np.full(count, NO_TERM, np.uint64))
    found = [Features(np.empty(0, np.int64), np.empty(0, np.uint64))]
    for level in levels.tolist():
        width = np.repeat(widths_of(np.array([level])), count)
        inside = there & ((level == WORLD) | (np.abs(x) < MOST_CELLS * width) & (np.abs(y) < MOST_CELLS * width))
        cell_x, cell_y = (_strips(np.where(inside, c, 0.0), width) // STRIPS for c in (x, y))
        key = _keys(np.full(count, level), cell_x, cell_y)
        kept = np.flatnonzero(inside[owner])
        found.append(Features(owner[kept], mixed(key[owner[kept]], term[kept])))
    of, key = (np.concatenate(column) for column in zip(*found, strict=True))
    return Features(of, key)


def _levels(box: Floats, interval: float, fine: int) -> Integers:
    """The exponent of the width of cells: `fine` of them are at least as wide as a box, and one as the interval."""
    with np.errstate(invalid="ignore", over="ignore"):
        side = np.maximum(np.maximum(box[:, 2] - box[:, 0], box[:, 3] - box[:, 1]) / fine, interval / 2)
        reach = np.abs(box).max(axis=1, initial=0.0)
        bounded = np.isfinite(side) & np.isfinite(reach) & (box[:, 0] <= box[:, 2])
        exponent = np.frexp(np.where(bounded, side, 1.0))[1]  # of a power of two above
        bounded &= (exponent <= _WIDEST) & (reach < np.exp2(np.minimum(exponent, _WIDEST)) * MOST_CELLS)
    return np.where(bounded, exponent, WORLD).astype(np.int64)


def _strips(coordinate: Floats, width: Floats) -> Integers:
    numbers = np.empty(len(coordinate), np.int64)
    number_strips(coordinate, width, numbers)
    return numbers


def _reached(first: Integers, last: Integers, cell: Integers) -> Integers:
    """The strips of each cell that are between two, both of them included: a bit for each."""
    low, high = np.maximum(first - cell * STRIPS, 0), np.minimum(last - cell * STRIPS, STRIPS - 1)
    reached: Integers = (2 << high) - (1 << low)
    return reached


def _keys(level: Integers, cell_x: Integers, cell_y: Integers) -> Keys:
    keys: Keys = np.empty(len(level), np.uint64)
    mix_cells(level, cell_x, cell_y, keys)
    return keys
