"""Where events must go, without the subscriptions themselves: a table of their features, once for each worker.

Beside a feature are the strips of its cell that the worker wants: an event elsewhere in the cell does not go there. So
cells may be as wide as boxes, and few.

The features of subscriptions with several terms are there twice: once without a worker, so that only events that have
them are asked for a second term, and once with that, in either order, and the worker.

A stack of tables, each a file by checksum. New subscriptions make a small table on top; neighbours of like size are
merged. Features of subscriptions that are gone stay until the stack is built anew: they cost messages, never a match.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from roamcast.errors import CapacityError, CorruptionError
from roamcast.lsm import first_to_merge
from roamcast.match.index.build import TermFrequency
from roamcast.match.index.rows import IndexRows
from roamcast.match.index.seeds import seed_of
from roamcast.match.index.segments import Arrays, Opened, SegmentFolder
from roamcast.match.kernels.probing import ANYONE, DIGEST, Scratch, Table, digest_features, list_holders, probe
from roamcast.match.port import Events
from roamcast.match.routing.features import (
    RarestTerms,
    features_of_rows,
    hashed_events,
    rarest_terms,
    widths_of,
)
from roamcast.match.routing.partitioner import Routed

__all__ = ["Router", "RoutingTableRef", "RoutingTables", "new_secret"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

_RATIO: Final = 2
_FINE: Final = 1  # cells as wide as a box
_CROWDED: Final = 4  # entries in a bucket, on average, are fewer
_FEWEST_BITS: Final = 8  # of a bucket: 32 at most are left
_MOST_ENTRIES: Final = (1 << 32) - 1
_WORKER: Final = np.uint64(8)  # bits
_HALF: Final = np.uint64(32)
_LAST: Final = np.uint64(0xFFFFFFFF)


def new_secret() -> str:
    return secrets.token_hex(16)


def _seed(secret: str) -> Keys:
    return seed_of(secret.encode())


class RoutingTableRef(NamedTuple):
    """A table by its checksum, and how many entries it has."""

    table: str
    entries: int


class Router:
    """RoutingTableRef events by all tables of a stack."""

    def __init__(self, tables: Sequence[Opened]) -> None:
        self._tables = tables

    @classmethod
    def of(cls, box: Floats, term: RarestTerms, worker: Integers) -> Self:
        """Of subscriptions, each with the worker that holds it."""
        seed = _seed(new_secret())
        return cls([Opened.in_memory(_table(seed, [_Features.of(box, term, worker).wanted(seed)]))])

    def route(self, events: Events) -> Routed:
        """To all workers that hold a match, and some others."""
        found: Keys = np.zeros(len(events.x), np.uint64)
        hashed = hashed_events(events)
        scratch = Scratch.of(hashed)
        for opened in self._tables:
            levels, table = opened.arrays["levels"], _opened(opened.arrays)
            probe(hashed, levels, widths_of(levels), _bits_left(table), table, scratch, found)
        count = int(np.bitwise_count(found).sum())
        sent = Routed(np.empty(count, np.int64), np.empty(count, np.int64))
        list_holders(found, sent.event, sent.worker)
        return sent

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in self._tables)


class RoutingTables:
    """Stacks of tables in a folder. The same stack, rows and secret give the same stack."""

    def __init__(self, folder: Path) -> None:
        self._files = SegmentFolder(folder)

    def open(self, stack: Sequence[RoutingTableRef]) -> Router:
        return Router([self._files.open(routes.table) for routes in stack])

    def push(
        self,
        stack: tuple[RoutingTableRef, ...],
        rows: IndexRows,
        worker: Integers,
        secret: str,
        seen: TermFrequency | None = None,
    ) -> tuple[RoutingTableRef, ...]:
        """With the features of these rows, each held by the worker beside it.

        `secret` is one for all of a stack, for tables have digests, not features. Who knows it can choose features that
        are all in one bucket.
        """
        weight = None if seen is None else seen(rows.terms.texts)
        features = _Features.of(rows.box, rarest_terms(rows, weight), worker)
        if not len(features.key):
            return stack
        seed = _seed(secret)
        first = first_to_merge([*(ref.entries for ref in stack), len(features.key)], ratio=_RATIO)
        merged = (self._files.open(ref.table).arrays for ref in stack[first:])
        table = _table(seed, [features.wanted(seed), *(_Wanted.listed(arrays, seed) for arrays in merged)])
        return (*stack[:first], RoutingTableRef(self._files.write(table), len(table["worker"])))


class _Features(NamedTuple):
    """Features of subscriptions, for each a worker that holds it, and the strips wanted; and the levels they are on."""

    key: Keys
    worker: npt.NDArray[np.uint8]
    strips: Keys
    levels: Integers

    @classmethod
    def of(cls, box: Floats, term: RarestTerms, worker: Integers) -> _Features:
        (of, key), strips, levels = features_of_rows(box, term.rarest, fine=_FINE)
        also = features_of_rows(box, term.second, fine=_FINE).features
        holder, more = worker[of].astype(np.uint8), term.second[of] > 0
        return cls(
            np.append(key, key[more] ^ also.key[more]),
            np.append(np.where(more, ANYONE, holder), holder[more]),
            np.append(strips, strips[more]).astype(np.uint64),
            levels,
        )

    def wanted(self, seed: Keys) -> _Wanted:
        digest: Keys = np.empty(len(self.key), np.uint64)
        digest_features(self.key, seed, digest)
        return _Wanted(digest << _WORKER | self.worker, self.strips, self.levels)


class _Wanted(NamedTuple):
    """Digests of features with their workers, perhaps several times; strips; and the levels there are."""

    by: Keys
    strips: Keys
    levels: Integers

    @classmethod
    def listed(cls, arrays: Arrays, seed: Keys) -> _Wanted:
        """What a table with this seed has."""
        table = _opened(arrays)
        if not np.array_equal(table.seed, seed):
            raise CorruptionError("tables of the router have different secrets", hint="start a new pipeline with --new")
        bucket = np.repeat(np.arange(len(table.first) - 1, dtype=np.uint64), np.diff(table.first))
        digest = bucket << np.uint64(_bits_left(table)) | table.entry >> _HALF
        return cls(digest << _WORKER | table.worker, table.entry & _LAST, arrays["levels"])


def _table(seed: Keys, parts: Sequence[_Wanted]) -> Arrays:
    """Each feature once for each worker."""
    by, strips, levels = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(by, kind="stable")
    by = by[order]
    distinct = np.flatnonzero(np.diff(by, prepend=~by[:1]))
    by, digest = by[distinct], by[distinct] >> _WORKER
    if len(by) > _MOST_ENTRIES:
        raise CapacityError(f"a router of {len(by)} entries", hint=f"it has room for {_MOST_ENTRIES}")
    bits = max((len(by) // _CROWDED).bit_length(), _FEWEST_BITS)
    buckets = np.arange((1 << bits) + 1, dtype=np.uint64) << np.uint64(DIGEST - bits)
    table = Table(
        seed,
        np.searchsorted(digest, buckets).astype(np.uint32),
        digest << _HALF | np.bitwise_or.reduceat(strips[order], distinct),
        (by & np.uint64(0xFF)).astype(np.uint8),
    )
    return {**table._asdict(), "levels": np.unique(levels)}


def _opened(arrays: Arrays) -> Table:
    return Table(*(arrays[name] for name in Table._fields))


def _bits_left(table: Table) -> int:
    """Of a digest, without those of its bucket."""
    return DIGEST + 1 - (len(table.first) - 1).bit_length()
