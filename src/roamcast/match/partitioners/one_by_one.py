"""The matcher of the DRt-Cluster paper, for experiments: an event is compared with every subscription of a unit.

A unit is a category, or what another partitioner has in its place. The paper's clustering nodes send an event to the
categories whose features admit a match: here, those with a member that shares a feature with the event. With a kd-tree
an event is sent to the leaf that owns its point.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from roamcast.compiled import read_only
from roamcast.match.index.dictionary import Dictionary, encode_terms
from roamcast.match.index.index import Candidates, ScannedPostings
from roamcast.match.index.rows import IndexRows
from roamcast.match.kernels.comparing import (
    ComparedEvents,
    ComparedPairs,
    ComparedRows,
    UnitFeatures,
    compare_in_leaves,
    compare_in_units,
)
from roamcast.match.partitioners.hilbert import bound_boxes, curve_keys_of_rows
from roamcast.match.partitioners.kdtree import KdLeaves
from roamcast.match.port import Events
from roamcast.match.routing.features import MIN_WIDTH, cell_widths, hash_terms, rarest_terms, row_features

__all__ = ["OneByOne"]

Integers = npt.NDArray[np.int64]

_ROOM: Final = 1 << 20  # pairs that are found together, if one event does not have more


class _Units(NamedTuple):
    """The rows of all units (see ComparedRows), and how an event finds its units."""

    first: Integers
    member: Integers
    found_by: UnitFeatures | KdLeaves


class OneByOne:
    """Finds the same candidates as an `Index` over the same rows.

    What `Index` says of postings holds for comparisons here.
    """

    def __init__(self, rows: IndexRows, units: _Units) -> None:
        self._handle, self._residual, self._units = rows.handle, rows.residual, units
        self._dictionary = Dictionary.of(rows.terms.texts)
        self._rows = ComparedRows(
            read_only(rows.box), read_only(rows.terms.first), read_only(rows.terms.code + np.int32(1)),
            read_only(units.first), read_only(units.member),
        )  # fmt: skip

    @classmethod
    def by_label(cls, rows: IndexRows, label: Integers, min_width: float = MIN_WIDTH) -> Self:
        """Rows with the same label are a unit. With an infinite `min_width`, features are terms alone."""
        distinct, unit = np.unique(label, return_inverse=True)
        (of, key), _, levels = row_features(rows.box, rarest_terms(rows).rarest, min_width)
        key, having = np.unique(np.stack([key, unit[of].astype(np.uint64)], axis=1), axis=0).T.copy()
        features = UnitFeatures(key, having.astype(np.int64), levels, cell_widths(levels))
        counts = np.bincount(unit, minlength=len(distinct))
        order = np.argsort(unit, kind="stable")
        return cls(rows, _Units(np.append(0, np.cumsum(counts)), order, features))

    @classmethod
    def by_term(cls, rows: IndexRows) -> Self:
        """Rows with the same rarest term are a unit, wherever their boxes are."""
        return cls.by_label(rows, rarest_terms(rows).rarest.view(np.int64), math.inf)

    @classmethod
    def by_curve(cls, rows: IndexRows, units: int) -> Self:
        """Divide the rows into ranges of the Hilbert curve, with about the same number of rows each."""
        rank = np.argsort(np.argsort(curve_keys_of_rows(rows), kind="stable"), kind="stable")
        return cls.by_label(rows, rank * units // max(len(rank), 1))

    @classmethod
    def by_leaf(cls, rows: IndexRows, units: int) -> Self:
        """Divide the plane into the leaves of a kd-tree. A box is in each leaf that it touches."""
        box = bound_boxes(rows.box)
        leaves = KdLeaves.divide((box[:, :2] + box[:, 2:]) / 2, np.ones(len(box)), units)
        members = [np.flatnonzero(KdLeaves(leaf[np.newaxis]).touch(rows.box)) for leaf in leaves.box]
        first = np.append(0, np.cumsum([len(each) for each in members]))
        return cls(rows, _Units(first, np.concatenate(members), leaves))

    def candidates(self, events: Events) -> Iterator[Candidates]:
        """Yield candidates in chunks, at least one."""
        for pairs, compared in self._compare(events, all_pairs=False):
            handle = self._handle[pairs.row]
            order = np.lexsort((handle, pairs.event))
            yield Candidates(pairs.event[order], handle[order], self._residual[pairs.row[order]], compared)

    def scanned_postings(self, events: Events) -> Iterator[ScannedPostings]:
        """Yield in chunks all pairs that `candidates` compares, matching or not."""
        for pairs, _ in self._compare(events, all_pairs=True):
            yield ScannedPostings(pairs.event, self._handle[pairs.row], np.ones(len(pairs.row), np.int64))

    def _compare(self, events: Events, *, all_pairs: bool) -> Iterator[tuple[ComparedPairs, int]]:
        terms = encode_terms(events.terms)
        x, y = (read_only(np.asarray(c, np.float64)) for c in (events.x, events.y))
        number = self._dictionary.numbers(terms.texts)[terms.code]
        encoded = ComparedEvents(x, y, terms.first, hash_terms(terms), number)
        room, begin = max(_ROOM, len(self._rows.member)), 0
        while True:
            found = ComparedPairs(np.empty(room, np.int64), np.empty(room, np.int64))
            begin, count, compared = self._compare_from(begin, encoded, all_pairs, found)
            yield ComparedPairs(found.event[:count], found.row[:count]), compared
            if begin == len(x):
                return

    def _compare_from(
        self, begin: int, events: ComparedEvents, all_pairs: bool, found: ComparedPairs
    ) -> tuple[int, int, int]:
        found_by = self._units.found_by
        if isinstance(found_by, KdLeaves):
            return compare_in_leaves(events, begin, found_by.box, self._rows, all_pairs, found)
        last_event = np.full(len(self._units.first) - 1, -1, np.int64)
        return compare_in_units(events, begin, found_by, self._rows, last_event, all_pairs, found)
