"""The journal's ports. The adapters `writer` and `reader` keep segments in the data folder; `remote` fetches them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import NamedTuple, Protocol

import pyarrow as pa

from roamcast.journal.records import Records

__all__ = ["JournalReader", "JournalWriter", "RecordReader", "WrittenSegment"]


class JournalWriter(Protocol):
    """Appends to the journal of one node. There is one writer per node at a time."""

    @property
    def last_offset(self) -> int:
        """The last offset that is durable; 0 for an empty journal."""

    def append(self, records: Records, *, urgent: bool = False) -> Future[int]:
        """Append `records` at consecutive offsets, all or none, in the order of the calls.

        Rows of ROW_SCHEMA need no Python object for each record: use them for many.

        A writer may wait for further calls, to write them together; not if this one is `urgent`.

        The future returns the first offset once the records would survive a crash of the machine. It fails with
        StorageError if the disk refuses. Then none of the records is in the journal, and later calls may succeed. One
        case is different: if the error says that durability is unknown, the caller should send the records again;
        duplicates count once.
        """

    def close(self) -> None:
        """Write what is pending, then refuse further appends."""


class RecordReader(Protocol):
    """Reads records of the journals of all nodes, on any host."""

    def read(self, node: str, after: int, through: int) -> Iterator[pa.RecordBatch]:
        """The records with after < offset <= through, in order, as batches of RECORD_SCHEMA.

        Raises CorruptionError if records are missing or damaged, StorageError if the disk refuses, UnavailableError if
        they are on another host that does not respond.
        """


class WrittenSegment(NamedTuple):
    """When a segment was written, in nanoseconds of the disk's clock, its last offset, and its size in bytes."""

    time: int
    last: int
    size: int


class JournalReader(RecordReader, Protocol):
    """Reads the journals of all nodes; deletes what is no longer needed. A range is `after < offset <= through`.

    Everything it reports is durable: an offset that was reported never comes to mean another record. Methods raise
    CorruptionError if records are missing or damaged, StorageError if the disk refuses.
    """

    def nodes(self) -> list[str]:
        """The nodes that have a journal, ordered by name."""

    def location(self, node: str) -> str:
        """Where the journal of a node is, for messages to the operator."""

    def first_offset(self, node: str) -> int:
        """The lowest offset that has not been deleted; 1 for an empty journal."""

    def last_offset(self, node: str) -> int:
        """The highest offset; 0 for an empty journal."""

    def segment_count(self, node: str, after: int, through: int) -> int:
        """How many segments the range spans."""

    def written_segments(self, node: str, after: int, through: int) -> Iterator[WrittenSegment]:
        """The segments of the range. Their times never decrease."""

    def read_control(self, node: str, after: int, through: int) -> pa.Table:
        """The records of the range that are not events."""

    def sample_terms(self, node: str, after: int, through: int) -> pa.ListArray:
        """The terms of some records of the range."""

    def delete_before(self, node: str, offset: int) -> int:
        """Delete segments that end before `offset`; return how many. Idempotent.

        The last segment of a journal stays: a starting writer learns the next offset from it.
        """
