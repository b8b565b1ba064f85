"""Where events must go, without the subscriptions themselves: a table of their features, once for each worker.

Beside a feature are the strips of its cell that the worker wants: an event elsewhere in the cell does not go there. So
cells may be as wide as boxes, and few.

The features of subscriptions with several terms are there twice: once without a worker, so that only events that have
them are asked for a second term, and once with that, and the worker.

A stack of tables, each a file by checksum. New subscriptions make a small table on top; neighbours of like size are
merged. Features of subscriptions that are gone stay until the stack is built anew: they cost messages, never a match.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from roamcast.match.build import Rows, Seen
from roamcast.match.features import (
    RarestTerms,
    features_of_events,
    features_of_rows,
    hashed_events,
    rarest_terms,
    with_second,
)
from roamcast.match.holdings import routed
from roamcast.match.kernels.probing import ANYONE, Asked, Slots, place_features, probe_features
from roamcast.match.partition import Routed
from roamcast.match.port import Events
from roamcast.match.seeds import seed_of
from roamcast.match.segments import Arrays, Opened, SegmentFolder

__all__ = ["Router", "Routes", "Tables"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

_LIKE: Final = 2  # a neighbour up to so many times as large is merged
_SLACK: Final = 3  # features for each empty slot
_FINE: Final = 1  # cells as wide as a box


class Routes(NamedTuple):
    """A table by its checksum, and how many slots of it are used."""

    table: str
    features: int


class Router:
    """Routes events by all tables of a stack."""

    def __init__(self, tables: Sequence[Opened]) -> None:
        self._tables = tables

    @classmethod
    def of(cls, box: Floats, term: RarestTerms, worker: Integers) -> Self:
        """Of subscriptions, each with the worker that holds it."""
        return cls([Opened.in_memory(_table([_Wanted.of(box, term, worker)]))])

    def route(self, events: Events) -> Routed:
        """To all workers that hold a match, and some others."""
        found: Keys = np.zeros(len(events.x), np.uint64)
        levels = np.unique(np.concatenate([np.empty(0, np.int64), *(t.arrays["levels"] for t in self._tables)]))
        hashed = hashed_events(events)
        asked = Asked(*features_of_events(hashed, levels), hashed.first, hashed.term)
        for table in self._tables:
            probe_features(asked, table.arrays["seed"], _slots(table.arrays), found)
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
        parts = [_Wanted.of(rows.box, rarest_terms(rows, weight), worker)]
        count = len(parts[0].slots.key)
        if not count:
            return stack
        kept = list(stack)
        while kept and kept[-1].features <= _LIKE * count:
            count += kept[-1].features
            parts.append(_Wanted.of_table(self._files.open(kept.pop().table).arrays))
        table = _table(parts)
        return (*kept, Routes(self._files.write(table), int((table["key"] != 0).sum())))


class _Wanted(NamedTuple):
    """Features, perhaps several times; and the levels they are on."""

    slots: Slots
    levels: Integers

    @classmethod
    def of(cls, box: Floats, term: RarestTerms, worker: Integers) -> _Wanted:
        (of, key, strips), levels = features_of_rows(box, term.rarest, fine=_FINE)
        second, holder = term.second[of], worker[of].astype(np.uint8)
        more = second > 0
        return cls(
            Slots(
                np.append(key, with_second(key[more], second[more])),
                np.append(np.where(more, ANYONE, holder), holder[more]),
                np.append(strips, strips[more]),
            ),
            levels,
        )

    @classmethod
    def of_table(cls, table: Arrays) -> _Wanted:
        used = np.flatnonzero(table["key"])
        return cls(Slots(*(table[name][used] for name in Slots._fields)), table["levels"])


def _table(parts: Sequence[_Wanted]) -> Arrays:
    """Each feature once for each worker."""
    listed = [np.concatenate(column) for column in zip(*(part.slots for part in parts), strict=True)]
    key, worker, _ = listed
    order = np.lexsort((worker, key))
    key, worker, strips = (column[order] for column in listed)
    first = np.flatnonzero((np.diff(key, prepend=np.uint64(0)) != 0) | (np.diff(worker, prepend=ANYONE) != 0))
    key, worker, strips = key[first], worker[first], np.bitwise_or.reduceat(strips, first)
    size = len(key) + len(key) // _SLACK + 1
    table = Slots(np.zeros(size, np.uint64), np.zeros(size, np.uint8), np.zeros(size, np.uint32))
    seed = seed_of(key.data)
    place_features(Slots(key, worker, strips), seed, table)
    levels = np.unique(np.concatenate([part.levels for part in parts]))
    return {"seed": seed, **table._asdict(), "levels": levels}


def _slots(table: Arrays) -> Slots:
    return Slots(*(table[name] for name in Slots._fields))
