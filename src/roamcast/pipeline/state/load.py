"""The load of a partitioned index: what tasks report with their results, as integers.

A task adds a row for its shard (`unit` WHOLE_SHARD): all events that it received, the postings that it compared and the
matches that it found. If the partitioner needs it, there are further rows for parts of the shard: categories of
`drtcluster`, cells of events for `kdtree`. Those count the events at every SAMPLED_OFFSETS-th offset of a journal. All
include events that match nothing. Sums do not depend on how Spark divides the work, and a repeated task counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from roamcast.pipeline.schemas import MATCHED_SCHEMA
from roamcast.pipeline.state.lookups import Integers

__all__ = ["SAMPLED_OFFSETS", "WHOLE_SHARD", "LoadRows"]

SAMPLED_OFFSETS: Final = 8
WHOLE_SHARD: Final = -1


class LoadRows(NamedTuple):
    """Load by worker and unit, ordered by both: messages received, postings compared and matches found."""

    worker: Integers
    unit: Integers
    messages: Integers
    checks: Integers
    matches: Integers

    @classmethod
    def of(
        cls,
        worker: int,
        unit: Integers,
        messages: int | Integers = 0,
        checks: int | Integers = 0,
        matches: int | Integers = 0,
    ) -> LoadRows:
        """Load of units of one worker, some of them perhaps repeated."""
        counts = (np.zeros(len(unit), np.int64) + count for count in (messages, checks, matches))
        return cls(np.full(len(unit), worker, np.int64), unit, *counts).summed()

    @classmethod
    def concatenate(cls, parts: Sequence[LoadRows]) -> LoadRows:
        """The sum of several."""
        return cls(*(np.concatenate(column) for column in zip(*parts, strict=True))).summed()

    @classmethod
    def empty(cls) -> LoadRows:
        return cls.of_lists([[]] * len(cls._fields))

    @classmethod
    def of_lists(cls, columns: Sequence[Sequence[int]]) -> LoadRows:
        """From the columns as lists."""
        return cls(*(np.array(column, np.int64) for column in columns))

    @classmethod
    def of_matched(cls, matched: pa.Table) -> LoadRows:
        """Sum up what tasks reported. `matched` has MATCHED_SCHEMA."""
        column = matched["load"].combine_chunks()
        rows = (
            column if isinstance(column, pa.ListArray) else pa.array([], MATCHED_SCHEMA.field("load").type)
        ).flatten()
        return cls(*(rows.field(name).to_numpy(zero_copy_only=False) for name in cls._fields)).summed()

    def summed(self) -> LoadRows:
        """One row for each worker and unit."""
        order = np.lexsort((self.unit, self.worker))
        worker, unit = self.worker[order], self.unit[order]
        first = np.flatnonzero((np.diff(worker, prepend=-1) != 0) | (np.diff(unit, prepend=-2) != 0))
        counts = (np.add.reduceat(column[order], first) if len(first) else column[order] for column in self[2:])
        return LoadRows(worker[first], unit[first], *counts)

    @property
    def of_shards(self) -> LoadRows:
        return LoadRows(*(column[self.unit == WHOLE_SHARD] for column in self))

    @property
    def of_units(self) -> LoadRows:
        """The sample: load of parts of shards."""
        return LoadRows(*(column[self.unit != WHOLE_SHARD] for column in self))

    def to_lists(self, rows: int) -> pa.ListArray:
        """As a column of MATCHED_SCHEMA with this many rows, all in the first."""
        field = MATCHED_SCHEMA.field("load").type
        values = pa.StructArray.from_arrays(
            [pa.array(column, pa.int64()) for column in self], fields=list(field.value_type)
        )
        offsets = [0, *([len(self.worker)] * rows)]
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=field)
