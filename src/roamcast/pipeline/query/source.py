"""The journal as a streaming source of Spark.

A Spark offset holds the last journal offset read of each node. Spark's offset log fixes what a batch contains. Records
are deleted from the journal once their batch is committed.
"""

from __future__ import annotations

import heapq
import itertools
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
from roamcast.journal.port import JournalReader, RecordReader
from roamcast.journal.reader import is_link_name, open_journal
from roamcast.journal.records import RECORD_SCHEMA
from roamcast.pipeline.schemas import spark_schema
from roamcast.pipeline.state.state_server import StateFetcher
from roamcast.pipeline.tasks.memory import exclude_modules_from_collection

__all__ = ["JournalSource"]

# A task costs more than reading this many records or segments, so smaller batches are not split.
_RECORDS_PER_TASK: Final = 25_000
_SEGMENTS_PER_TASK: Final = 500

# The resolution of the disk's clock, in nanoseconds: a file that is older than this was written before now.
_CLOCK_STEP: Final = 10_000_000

NodeOffsets: TypeAlias = dict[str, int]


class JournalSource(DataSource):
    """Options: `data`, the data folder; `records`, the maximum of one batch.

    `fetcher_secret`, for executors that do not see that folder: an encoded `StateFetcher`. Spark redacts options with
    `secret` in their name in its logs.
    """

    @classmethod
    def name(cls) -> str:
        return "roamcast-journal"

    def schema(self) -> StructType:
        return spark_schema(RECORD_SCHEMA)

    def streamReader(self, schema: StructType) -> JournalStreamReader:  # noqa: N802 - Spark's name
        fetcher = self.options.get("fetcher_secret")
        return JournalStreamReader(
            open_journal(Path(self.options["data"])),
            int(self.options["records"]),
            StateFetcher.from_json(fetcher).journal() if fetcher else None,
        )


class OffsetRange(InputPartition):
    """The offsets of one node that one task reads: after < offset <= through."""

    def __init__(self, node: str, after: int, through: int) -> None:
        super().__init__((node, after, through))
        self.node, self.after, self.through = node, after, through


class JournalStreamReader(DataSourceStreamReader):
    """Spark keeps one in a process of its own as long as the query runs; `read` runs in tasks.

    Tasks on other hosts read through `remote`.
    """

    def __init__(self, journal: JournalReader, records: int, remote: RecordReader | None = None) -> None:
        self._journal = journal
        self._records = records
        self._remote = remote

    def initialOffset(self) -> NodeOffsets:  # noqa: N802 - Spark's name
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._records)

    def latestOffset(self, start: NodeOffsets, limit: ReadLimit) -> NodeOffsets:  # noqa: N802 - Spark's name
        """The end of the next batch: as much as the limit allows, oldest records first.

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
        latest = dict(start)
        new = (self._segments(node, begins[node], min(ends[node], begins[node] + left)) for node in ends)
        for written, _, node, last in heapq.merge(*new):
            if written > moment or not left:
                break
            read_through = latest.get(node, begins[node])
            take = min(left, last - read_through)
            latest[node] = read_through + take
            left -= take
        return latest

    def partitions(self, start: NodeOffsets, end: NodeOffsets) -> Sequence[InputPartition]:
        ranges: list[InputPartition] = []
        for node, through in end.items():
            after = self._begin(node, start)
            segments = self._journal.segment_count(node, after, through)
            tasks = -(-max(through - after, 0) // _RECORDS_PER_TASK)
            tasks = max(tasks, -(-segments // _SEGMENTS_PER_TASK))
            bounds = [after + (through - after) * task // max(tasks, 1) for task in range(tasks + 1)]
            ranges += [OffsetRange(node, a, b) for a, b in itertools.pairwise(bounds)]
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, OffsetRange):
            raise TypeError(f"expected an OffsetRange, not {partition!r}")
        exclude_modules_from_collection()
        journal = self._journal if self._remote is None else self._remote
        yield from journal.read(partition.node, partition.after, partition.through)

    def commit(self, end: NodeOffsets) -> None:
        for node, through in end.items():
            self._journal.delete_before(node, through)

    def _last_offsets(self) -> NodeOffsets:
        return {node: self._journal.last_offset(node) for node in self._journal.nodes()}

    def _segments(self, node: str, after: int, through: int) -> Iterator[tuple[int, bool, str, int]]:
        """When each new segment of a node was written, and the last new offset in it.

        Of those with equal times, the segments of links are first: a node may have read them before it wrote its own.
        """
        times = self._journal.write_times(node, after, through)
        return ((written, not is_link_name(node), node, min(last, through)) for written, last in times)

    def _begin(self, node: str, start: NodeOffsets) -> int:
        """Where to continue; for a node that is new to Spark, before the first record that it still has."""
        known = start.get(node)
        return known if known is not None else max(0, self._journal.first_offset(node) - 1)
