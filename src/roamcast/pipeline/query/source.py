"""The journal as a streaming source of Spark, which has offsets only.

A Spark offset holds the last journal offset read of each node. Spark's offset log fixes what a batch contains. The
tasks that match a batch read its records themselves: as rows of Spark, they would be copied twice more. Records are
deleted from the journal once their batch is committed.
"""

from __future__ import annotations

import heapq
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from roamcast.errors import CorruptionError
from roamcast.journal.port import JournalReader
from roamcast.journal.reader import is_link_name, open_journal
from roamcast.journal.records import RECORD_SCHEMA
from roamcast.pipeline.schemas import spark_schema

__all__ = ["JournalSource"]

# The resolution of the disk's clock, in nanoseconds: a file that is older than this was written before now.
_CLOCK_STEP: Final = 10_000_000

# Of the segments that a batch reads. Records may be large: a task may have to hold all of a batch.
_MOST_BYTES: Final = 128 << 20

NodeOffsets: TypeAlias = dict[str, int]


class JournalSource(DataSource):
    """Options: `data`, the data folder; `records`, the maximum of one batch."""

    @classmethod
    def name(cls) -> str:
        return "roamcast-journal"

    def schema(self) -> StructType:
        return spark_schema(RECORD_SCHEMA)

    def streamReader(self, schema: StructType) -> JournalStreamReader:  # noqa: N802 - Spark's name
        return JournalStreamReader(open_journal(Path(self.options["data"])), int(self.options["records"]))


class JournalStreamReader(DataSourceStreamReader):
    """Spark keeps one in a process of its own as long as the query runs."""

    def __init__(self, journal: JournalReader, records: int) -> None:
        self._journal = journal
        self._records = records

    def initialOffset(self) -> NodeOffsets:  # noqa: N802 - Spark's name
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._records)

    def latestOffset(self, start: NodeOffsets, limit: ReadLimit) -> NodeOffsets:  # noqa: N802 - Spark's name
        """The end of the next batch: as much as the limit and `_MOST_BYTES` allow, oldest records first.

        If a batch contains a record, this or an earlier batch contains everything that any node had journalled before
        that record. So an event of one node finds the bindings that another node had made by then. Raises
        CorruptionError for a journal that ends before `start`: its offsets were assigned again.
        """
        moment = time.time_ns() - _CLOCK_STEP
        ends = self._last_offsets()
        begins = {node: self._begin(node, start) for node in ends}
        for node in ends:
            if ends[node] < begins[node]:
                raise CorruptionError(
                    f"the journal of {node} ends at offset {ends[node]}, but was read up to {begins[node]}",
                    where=self._journal.location(node),
                    hint="restore it from a backup, or start a new pipeline with 'roamcast pipeline --new'",
                )
        # If nothing was added while the folders were listed one after the other, the listings are consistent.
        if ends == self._last_offsets():
            moment = sys.maxsize
        left = limit.max_rows if isinstance(limit, ReadMaxRows) else sys.maxsize
        latest, size = dict(start), 0
        new = (self._segments(node, begins[node], min(ends[node], begins[node] + left)) for node in ends)
        for written, _, node, last, more in heapq.merge(*new):
            if written > moment or not left or (size and size + more > _MOST_BYTES):
                break
            read_through = latest.get(node, begins[node])
            take = min(left, last - read_through)
            latest[node] = read_through + take
            left, size = left - take, size + more
        return latest

    def partitions(self, start: NodeOffsets, end: NodeOffsets) -> Sequence[InputPartition]:
        """None: the tasks that match a batch read it themselves, see `tasks.match_job`."""
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Spark does not call this without partitions."""
        raise TypeError(f"the journal has no partition {partition!r}")

    def commit(self, end: NodeOffsets) -> None:
        for node, through in end.items():
            self._journal.delete_before(node, through)

    def _last_offsets(self) -> NodeOffsets:
        return {node: self._journal.last_offset(node) for node in self._journal.nodes()}

    def _segments(self, node: str, after: int, through: int) -> Iterator[tuple[int, bool, str, int, int]]:
        """When each new segment of a node was written, the last new offset in it, and its size.

        Of those with equal times, the segments of links are first: a node may have read them before it wrote its own.
        """
        is_own = not is_link_name(node)
        segments = self._journal.written_segments(node, after, through)
        return ((each.time, is_own, node, min(each.last, through), each.size) for each in segments)

    def _begin(self, node: str, start: NodeOffsets) -> int:
        """Where to continue; for a node that is new to Spark, before the first record that it still has."""
        known = start.get(node)
        return known if known is not None else max(0, self._journal.first_offset(node) - 1)
