"""The router: sends events to workers by tables of features, without the subscriptions themselves.

An entry of a table is a feature, a worker that holds a subscription with it, and the strips of the cell that the worker
needs. Events elsewhere in the cell are not sent there, so cells may be as wide as boxes, and few.

A subscription with several terms has two entries. The first, with the feature of its rarest term, has SECOND_TERM
instead of a worker: only events that have this feature are looked up with pairs of terms. The second, with the
combination of two terms, has the worker.

Tables form an LSM stack of files. New subscriptions make a small table on top. Features of removed subscriptions stay
until the stack is rebuilt: they cost messages, never a match.
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
from roamcast.match.index.segments import Arrays, MappedArrays, SegmentFolder
from roamcast.match.kernels.probing import (
    DIGEST_BITS,
    SECOND_TERM,
    FeatureTable,
    ProbeScratch,
    digest_features,
    expand_masks,
    probe,
)
from roamcast.match.kernels.texts import hash_seed
from roamcast.match.port import Events
from roamcast.match.routing.features import RarestTerms, cell_widths, hash_events, rarest_terms, row_features
from roamcast.match.routing.partitioner import RoutedEvents

__all__ = ["Router", "RoutingTableRef", "RoutingTables", "new_secret"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

_RATIO: Final = 2
_CELLS_PER_BOX: Final = 1
_BUCKET_SIZE: Final = 4  # entries of a bucket, on average, are fewer
_MIN_BUCKET_BITS: Final = 8  # at most 32 bits of the digest are left
_MAX_ENTRIES: Final = (1 << 32) - 1
_WORKER_BITS: Final = np.uint64(8)
_WORKER_MASK: Final = np.uint64(0xFF)
_HALF: Final = np.uint64(32)
_LOWER_HALF: Final = np.uint64(0xFFFFFFFF)


def new_secret() -> str:
    """Return a random secret for the tables of a stack."""
    return secrets.token_hex(16)


def _seed(secret: str) -> Keys:
    return hash_seed(secret.encode())


class RoutingTableRef(NamedTuple):
    """One table of a stack: its checksum and number of entries."""

    table: str
    entries: int


class Router:
    """Routes events by all tables of a stack."""

    def __init__(self, tables: Sequence[MappedArrays]) -> None:
        self._tables = tables

    @classmethod
    def of(cls, box: Floats, term: RarestTerms, worker: Integers) -> Self:
        """Make a router in memory for subscriptions, each held by the worker beside it."""
        seed = _seed(new_secret())
        return cls([MappedArrays.in_memory(_build_table(seed, [_TableEntries.of(box, term, worker, seed)]))])

    def route(self, events: Events) -> RoutedEvents:
        """Send events to all workers that hold a match, and to some others."""
        mask: Keys = np.zeros(len(events.x), np.uint64)
        hashed = hash_events(events)
        scratch = ProbeScratch.of(hashed)
        for mapped in self._tables:
            levels, table = mapped.arrays["levels"], _feature_table(mapped.arrays)
            probe(hashed, levels, cell_widths(levels), _bucket_shift(table), table, scratch, mask)
        count = int(np.bitwise_count(mask).sum())
        routed = RoutedEvents(np.empty(count, np.int64), np.empty(count, np.int64))
        expand_masks(mask, routed.event, routed.worker)
        return routed

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table in self._tables)


class RoutingTables:
    """Stacks of routing tables in a folder. The same stack, rows and secret give the same result."""

    def __init__(self, folder: Path) -> None:
        self._files = SegmentFolder(folder)

    def open(self, stack: Sequence[RoutingTableRef]) -> Router:
        return Router([self._files.open(ref.table) for ref in stack])

    def push(
        self,
        stack: tuple[RoutingTableRef, ...],
        rows: IndexRows,
        worker: Integers,
        secret: str,
        frequency: TermFrequency | None = None,
    ) -> tuple[RoutingTableRef, ...]:
        """Add the features of rows, each held by the worker beside it; return the new stack.

        All tables of a stack have the same `secret`. With it, one can construct features that fall into one bucket.
        """
        weight = None if frequency is None else frequency(rows.terms.texts)
        seed = _seed(secret)
        entries = _TableEntries.of(rows.box, rarest_terms(rows, weight), worker, seed)
        if not len(entries.key):
            return stack
        first = first_to_merge([*(ref.entries for ref in stack), len(entries.key)], ratio=_RATIO)
        merged = (self._files.open(ref.table).arrays for ref in stack[first:])
        table = _build_table(seed, [entries, *(_TableEntries.of_table(arrays, seed) for arrays in merged)])
        return (*stack[:first], RoutingTableRef(self._files.write(table), len(table["worker"])))


class _TableEntries(NamedTuple):
    """Digests of features combined with a worker, perhaps repeated; their strips; and the levels in use."""

    key: Keys
    strips: Keys
    levels: Integers

    @classmethod
    def of(cls, box: Floats, term: RarestTerms, worker: Integers, seed: Keys) -> _TableEntries:
        """Make the entries of subscriptions, each held by the worker beside it."""
        (of, feature), strips, levels = row_features(box, term.rarest, cells_per_box=_CELLS_PER_BOX)
        second = row_features(box, term.second, cells_per_box=_CELLS_PER_BOX).features.key
        holder, has_second = worker[of].astype(np.uint8), term.second[of] > 0
        feature = np.append(feature, feature[has_second] ^ second[has_second])
        holders = np.append(np.where(has_second, SECOND_TERM, holder), holder[has_second])
        digest: Keys = np.empty(len(feature), np.uint64)
        digest_features(feature, seed, digest)
        return cls(digest << _WORKER_BITS | holders, np.append(strips, strips[has_second]).astype(np.uint64), levels)

    @classmethod
    def of_table(cls, arrays: Arrays, seed: Keys) -> _TableEntries:
        """Read the entries of a table. Raises CorruptionError if it has another seed."""
        table = _feature_table(arrays)
        if not np.array_equal(table.seed, seed):
            raise CorruptionError("routing tables have different secrets", hint="start a new pipeline with --new")
        bucket = np.repeat(np.arange(len(table.first) - 1, dtype=np.uint64), np.diff(table.first))
        digest = bucket << np.uint64(_bucket_shift(table)) | table.entry >> _HALF
        return cls(digest << _WORKER_BITS | table.worker, table.entry & _LOWER_HALF, arrays["levels"])


def _build_table(seed: Keys, parts: Sequence[_TableEntries]) -> Arrays:
    """Build a table with one entry for each feature and worker."""
    key, strips, levels = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(key, kind="stable")
    key = key[order]
    distinct = np.flatnonzero(np.diff(key, prepend=~key[:1]))
    key, digest = key[distinct], key[distinct] >> _WORKER_BITS
    if len(key) > _MAX_ENTRIES:
        raise CapacityError(f"{len(key)} entries in one routing table", hint=f"the limit is {_MAX_ENTRIES}")
    bits = max((len(key) // _BUCKET_SIZE).bit_length(), _MIN_BUCKET_BITS)
    buckets = np.arange((1 << bits) + 1, dtype=np.uint64) << np.uint64(DIGEST_BITS - bits)
    table = FeatureTable(
        seed,
        np.searchsorted(digest, buckets).astype(np.uint32),
        digest << _HALF | np.bitwise_or.reduceat(strips[order], distinct),
        (key & _WORKER_MASK).astype(np.uint8),
    )
    return {**table._asdict(), "levels": np.unique(levels)}


def _feature_table(arrays: Arrays) -> FeatureTable:
    return FeatureTable(*(arrays[name] for name in FeatureTable._fields))


def _bucket_shift(table: FeatureTable) -> int:
    """Return the number of bits of a digest that are not in its bucket."""
    return DIGEST_BITS + 1 - (len(table.first) - 1).bit_length()
