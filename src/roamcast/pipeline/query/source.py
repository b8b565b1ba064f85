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
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from roamcast.errors import CorruptionError
from roamcast.journal.segments import JournalFolder, nodes, read
from roamcast.pipeline.schemas import RECORDS
from roamcast.pipeline.state.state_server import Supplier

__all__ = ["JournalSource"]

# A task costs more than reading this many records or segments, so smaller batches stay whole.
_RECORDS_PER_TASK = 25_000
_SEGMENTS_PER_TASK = 500

# A disk may tell time in steps: what it dates this much earlier than now was written before now.
_CLOCK_STEP = 10_000_000  # nanoseconds

Offset = dict[str, int]


class JournalSource(DataSource):
    """Options: `root`, the journal's folder; `records`, the most that one batch takes.

    `supplier_secret`, for executors that do not see that folder: where they get it (see `Supplier.to_json`). By its
    name Spark knows that it is not for logs.
    """

    @classmethod
    def name(cls) -> str:
        return "roamcast-journal"

    def schema(self) -> StructType:
        return RECORDS

    def streamReader(self, schema: StructType) -> JournalReader:  # noqa: N802 - Spark's name
        supplier = self.options.get("supplier_secret")
        return JournalReader(
            Path(self.options["root"]),
            int(self.options["records"]),
            Supplier.from_json(supplier) if supplier else None,
        )


class OffsetRange(InputPartition):
    """The offsets of one node that one task reads: after < offset <= through."""

    def __init__(self, node: str, after: int, through: int) -> None:
        super().__init__((node, after, through))
        self.node, self.after, self.through = node, after, through


class JournalReader(DataSourceStreamReader):
    """Lives in one process of its own for as long as the query; `read` runs in the tasks."""

    def __init__(self, root: Path, records: int, supplier: Supplier | None = None) -> None:
        self._root = root
        self._records = records
        self._supplier = supplier
        self._folders: dict[str, JournalFolder] = {}

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._records)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """As far as the limit allows, the oldest first: with a record comes all that any node had journalled before it.
        So an event of one node finds the bindings that another had made by then.

        Raises CorruptionError for a journal that ends before what was read of it: its offsets were given anew.
        """
        moment = time.time_ns() - _CLOCK_STEP
        ends = self._ends()
        begins = {node: self._begin(node, start) for node in ends}
        for node in ends:
            if ends[node] < begins[node]:
                raise CorruptionError(
                    f"the journal of {node} ends at offset {ends[node]}, but was read up to {begins[node]}",
                    where=str(self._root / node),
                    hint="restore it from a copy, or start a new pipeline with 'roamcast pipeline --new'",
                )
        # If nothing has come while the folders were looked at, one after the other, they were all so at one moment.
        if ends == self._ends():
            moment = sys.maxsize
        left = limit.max_rows if isinstance(limit, ReadMaxRows) else sys.maxsize
        latest = dict(start)
        new = (self._dated(node, begins[node], min(ends[node], begins[node] + left)) for node in ends)
        for written, node, last in heapq.merge(*new):
            if written > moment or not left:
                break
            read = latest.get(node, begins[node])
            take = min(left, last - read)
            latest[node] = read + take
            left -= take
        return latest

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        ranges: list[InputPartition] = []
        for node, through in end.items():
            after = self._begin(node, start)
            segments = len(self._folder(node).between(after, through))
            tasks = -(-max(through - after, 0) // _RECORDS_PER_TASK)
            tasks = max(tasks, -(-segments // _SEGMENTS_PER_TASK))
            bounds = [after + (through - after) * task // max(tasks, 1) for task in range(tasks + 1)]
            ranges += [OffsetRange(node, a, b) for a, b in itertools.pairwise(bounds)]
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, OffsetRange):
            raise TypeError(f"a journal is read in ranges, not {partition!r}")
        if self._supplier is not None:
            yield from self._supplier.journal(partition.node, partition.after, partition.through)
            return
        segments = JournalFolder(self._root, partition.node).between(partition.after, partition.through)
        yield from read(segments, partition.after, partition.through)

    def commit(self, end: Offset) -> None:
        for node, through in end.items():
            self._folder(node).forget(through)

    def _ends(self) -> Offset:
        return {node: self._folder(node).last_offset() for node in nodes(self._root)}

    def _dated(self, node: str, after: int, through: int) -> Iterator[tuple[int, str, int]]:
        """When each new segment of a node was written, and the last new offset in it."""
        return ((written, node, min(one.last, through)) for written, one in self._folder(node).dated(after, through))

    def _begin(self, node: str, start: Offset) -> int:
        """Where a node that Spark has not heard of begins: before the first record that is still there."""
        known = start.get(node)
        return known if known is not None else max(0, self._folder(node).first_offset() - 1)

    def _folder(self, node: str) -> JournalFolder:
        return self._folders.setdefault(node, JournalFolder(self._root, node))

    def __getstate__(self) -> dict[str, Any]:
        """What travels to the tasks: no listing of folders."""
        return {"_root": self._root, "_records": self._records, "_supplier": self._supplier, "_folders": {}}
