"""Segments: the Parquet files of a journal in the data folder.

    <root>/<node>/<first:020d>-<last:020d>.parquet   the records of a node with the offsets first..last

A segment appears complete and never changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from roamcast.durable import storage_errors
from roamcast.errors import CorruptionError
from roamcast.journal.records import FORMAT, RECORD_SCHEMA, are_events

__all__ = ["MISSING_HINT", "Segment", "check_readable", "encode", "load_file", "read", "read_control", "read_terms"]

MISSING_HINT: Final = "restore the missing files from a backup, or start a new pipeline with --new"

_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{20})\.parquet")
# Segments are small and many. Rows are returned in batches of about the size Spark uses.
_BATCH_ROWS: Final = 10_000
# What Arrow raises for damaged bytes, invalid text in the footer included.
_UNREADABLE: Final = (pa.ArrowException, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class Segment:
    """A file and the offsets it holds, both ends included."""

    path: Path
    first: int
    last: int

    @classmethod
    def at(cls, folder: Path, first: int, last: int) -> Segment:
        return cls(folder / f"{first:020d}-{last:020d}.parquet", first, last)

    @classmethod
    def from_name(cls, folder: Path, name: str) -> Segment | None:
        """The segment with this file name; None if the name is not that of a segment."""
        match = _NAME.fullmatch(name)
        if not match:
            return None
        first, last = int(match[1]), int(match[2])
        return cls(folder / name, first, last) if 1 <= first <= last else None


def encode(batches: Sequence[pa.RecordBatch]) -> memoryview:
    """The content of a segment file with these rows.

    Most segments are tiny. Without dictionaries, statistics and a second copy of the schema they are half as large and
    take two thirds of the time to write and read. Pages carry checksums.
    """
    content = pa.BufferOutputStream()
    with pq.ParquetWriter(
        content,
        RECORD_SCHEMA,
        compression="lz4",
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
        write_page_checksum=True,
    ) as writer:
        writer.write_table(pa.Table.from_batches(batches, schema=RECORD_SCHEMA))
        writer.add_key_value_metadata({"format": FORMAT})
    return memoryview(content.getvalue())


def load_file(segment: Segment) -> bytes:
    """The content of the file. Raises CorruptionError if it is missing, StorageError if the disk refuses."""
    with storage_errors(segment.path):
        try:
            return segment.path.read_bytes()
        except FileNotFoundError as error:
            raise CorruptionError("the segment is missing", where=str(segment.path), hint=MISSING_HINT) from error


def read(
    segments: Iterable[Segment], after: int, through: int, *, load: Callable[[Segment], bytes] = load_file
) -> Iterator[pa.RecordBatch]:
    """Yield the rows with after < offset <= through, in the order of `segments`. Small segments share a batch.

    Raises CorruptionError if a segment is missing, damaged or of another format, and whatever `load` raises.
    """
    tables: list[pa.Table] = []
    rows = 0
    for segment in segments:
        begin, end = max(after + 1, segment.first), min(through, segment.last)
        if begin > end:
            continue
        tables.append(_read_table(segment, load).slice(begin - segment.first, end - begin + 1))
        rows += end - begin + 1
        if rows >= _BATCH_ROWS:
            yield from _combine(tables)
            tables, rows = [], 0
    yield from _combine(tables)


def read_control(segments: Iterable[Segment], after: int, through: int) -> pa.Table:
    """The rows of `read` that are not events. Of segments with events only, no more than one column is read.

    Raises CorruptionError as `read` does.
    """
    tables = [RECORD_SCHEMA.empty_table()]
    for segment in segments:
        if pc.all(are_events(_read_column(segment, "kind"))).as_py():
            continue
        begin, end = max(after + 1, segment.first), min(through, segment.last)
        rows = _read_table(segment).slice(begin - segment.first, max(0, end - begin + 1)).cast(RECORD_SCHEMA)
        tables.append(rows.filter(pc.invert(are_events(rows["kind"]))))
    return pa.concat_tables(tables).combine_chunks()


def read_terms(segment: Segment) -> pa.ListArray:
    """The terms of all rows. Raises CorruptionError as `read` does."""
    return _read_column(segment, "terms").combine_chunks()


def check_readable(segment: Segment) -> None:
    """Raises CorruptionError if the segment is missing, damaged or of another format."""
    _open(segment)


def _combine(tables: Sequence[pa.Table]) -> Iterator[pa.RecordBatch]:
    if tables:
        yield from pa.concat_tables(tables).combine_chunks().cast(RECORD_SCHEMA).to_batches()


def _open(segment: Segment, load: Callable[[Segment], bytes] = load_file) -> pq.ParquetFile:
    content = load(segment)
    try:
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        format = (file.metadata.metadata or {}).get(b"format", b"none").decode(errors="replace")
    except _UNREADABLE as error:
        raise _damaged(segment, str(error)) from error
    if format != FORMAT:
        raise CorruptionError(
            f"its format is {format}, not {FORMAT}",
            where=str(segment.path),
            hint="read it with the version of roamcast that wrote it",
        )
    if file.metadata.num_rows != segment.last - segment.first + 1 or not file.schema_arrow.equals(RECORD_SCHEMA):
        raise _damaged(segment, "its content contradicts its name or format")
    return file


def _read_column(segment: Segment, name: str) -> pa.ChunkedArray:
    try:
        return _open(segment).read([name], use_threads=False).column(name)
    except _UNREADABLE as error:
        raise _damaged(segment, str(error)) from error


def _read_table(segment: Segment, load: Callable[[Segment], bytes] = load_file) -> pa.Table:
    file = _open(segment, load)
    try:
        table = file.read(use_threads=False).replace_schema_metadata(None)
    except _UNREADABLE as error:
        raise _damaged(segment, str(error)) from error
    if table.num_rows != file.metadata.num_rows or table.column("offset")[0].as_py() != segment.first:
        raise _damaged(segment, "its content contradicts its name")
    return table


def _damaged(segment: Segment, reason: str) -> CorruptionError:
    return CorruptionError(
        f"the segment is damaged: {reason}",
        where=str(segment.path),
        hint="check the disk, and restore the file from a backup",
    )
