"""Where events must go, without the subscriptions themselves: a table of their features, with a bit for each worker.

The features of subscriptions with several terms are there twice: once without a bit, so that only events that have them
are asked for a second term, and once with that, and the bit.

A stack of tables, each a file by checksum. New subscriptions make a small table on top; neighbours of like size are
merged. Bits of subscriptions that are gone stay until the stack is built anew: they cost messages, never a match.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.match.build import Rows, Seen
from roamcast.match.features import features_of_events, features_of_rows, hashed_events, rarest_terms, with_second
from roamcast.match.holdings import routed
from roamcast.match.kernels.probing import Asked, place_features, probe_features
from roamcast.match.partition import Routed
from roamcast.match.port import Events
from roamcast.match.seeds import seed_of
from roamcast.match.segments import Arrays, Opened, SegmentFolder

__all__ = ["Router", "Routes", "Tables"]

Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

_LIKE: Final = 2  # a neighbour up to so many times as large is merged
_SLACK: Final = 3  # features for each empty slot
_TYPES: Final = (np.uint8, np.uint16, np.uint32, np.uint64)


class Routes(NamedTuple):
    """A table by its checksum, and how many features it has."""

    table: str
    features: int


class Router:
    """Routes events by all tables of a stack."""

    def __init__(self, tables: Sequence[Opened]) -> None:
        self._tables = tables

    def route(self, events: Events) -> Routed:
        """To all workers that hold a match, and some others."""
        found: Keys = np.zeros(len(events.x), np.uint64)
        levels = np.unique(np.concatenate([np.empty(0, np.int64), *(t.arrays["levels"] for t in self._tables)]))
        hashed = hashed_events(events)
        asked = Asked(*features_of_events(hashed, levels), hashed.first, hashed.term)
        for table in self._tables:
            here, arrays = np.zeros(len(found), np.uint64), table.arrays
            probe_features(asked, arrays["seed"], arrays["key"], arrays["mask"], here)
            found |= here
        return routed(np.arange(len(found)), found)

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in self._tables)


class Tables:
    """Stacks of tables in a folder. The same stack and the same rows give the same stack."""

    def __init__(self, folder: Path) -> None:
        self._files = SegmentFolder(folder)

    def open(self, stack: Sequence[Routes]) -> Router:
        return Router([self._files.open(routes.table) for routes in stack])

    def push(
        self, stack: tuple[Routes, ...], rows: Rows, worker: Integers, seen: Seen | None = None
    ) -> tuple[Routes, ...]:
        """With the features of these rows, each held by the worker beside it."""
        weight = None if seen is None else seen(rows.terms.texts)
        term = rarest_terms(rows, weight)
        (of, key), levels = features_of_rows(rows.box, term.rarest)
        if not len(key):
            return stack
        bit = np.uint64(1) << worker[of].astype(np.uint64)
        second = term.second[of]
        more = second > 0
        parts = [
            (key, np.where(more, np.uint64(0), bit), levels),
            (with_second(key[more], second[more]), bit[more], levels),
        ]
        kept, count = list(stack), sum(len(part) for part, _, _ in parts)
        while kept and kept[-1].features <= _LIKE * count:
            count += kept[-1].features
            parts.append(_listed(self._files.open(kept.pop().table).arrays))
        key, masks, levels = (np.concatenate(column) for column in zip(*parts, strict=True))
        table = _table(key, masks, np.unique(levels))
        return (*kept, Routes(self._files.write(table), int((table["key"] != 0).sum())))


def _listed(table: Arrays) -> tuple[Keys, Keys, Integers]:
    used = np.flatnonzero(table["key"])
    return table["key"][used], table["mask"][used].astype(np.uint64), table["levels"]


def _table(key: Keys, mask: Keys, levels: Integers) -> Arrays:
    order = np.argsort(key, kind="stable")
    key, mask = key[order], mask[order]
    first = np.flatnonzero(np.diff(key, prepend=np.uint64(0)))
    key, mask = key[first], np.bitwise_or.reduceat(mask, first)
    size = len(key) + len(key) // _SLACK + 1
    table, masks = np.zeros(size, np.uint64), np.zeros(size, np.uint64)
    seed = seed_of(key.data)
    place_features(key, mask, seed, table, masks)
    narrow = next(kind for kind in _TYPES if int(mask.max()) <= np.iinfo(kind).max)
    return {"seed": seed, "key": table, "mask": masks.astype(narrow), "levels": levels}
