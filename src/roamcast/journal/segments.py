"""Segments: the files of an embedded journal.

    <root>/<node>/<first:020d>-<last:020d>.parquet   the records at offsets first..last of one node

A segment appears whole and never changes. The segments of a node follow each other without hole or overlap;
the oldest are removed once the pipeline is done with them. Everything else in the folder is ignored.
"""

from __future__ import annotations

import os
import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from roamcast.durable import storage_errors, sync_folder
from roamcast.errors import CorruptionError, InputError
from roamcast.journal.records import EVENT, FORMAT, RECORD_SCHEMA

__all__ = ["JournalFolder", "Segment", "check_node_name", "encode", "nodes", "read", "read_control", "read_terms"]

LOCK = ".lock"
_FILES = (LOCK, ".json")

_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SEGMENT_NAME = re.compile(r"([0-9]{20})-([0-9]{20})\.parquet")

# Changes of a folder may share one modification time: file systems tell time in steps of up to two seconds.
_SETTLED_NS = 2_000_000_000

# Segments are small and many: they are handed on together, in batches of about as many rows as Spark likes.
_BATCH_ROWS = 10_000

# What Arrow raises for damaged bytes, wrong text in the footer among them.
_UNREADABLE = (pa.ArrowException, OSError, ValueError)

_MISSING = "restore the missing files from a copy, or start a new pipeline that goes on from what is there"


@dataclass(frozen=True, slots=True)
class Segment:
    """One file and the offsets it holds, both ends included."""

    path: Path
    first: int
    last: int


def check_node_name(name: str) -> str:
    """The name itself if a node may have it, else InputError."""
    if not _is_node_name(name):
        raise InputError(
            f"{name!r} cannot be the name of a node",
            where="node",
            hint="use 1 to 64 of A-Z a-z 0-9 . _ - with a letter or digit first, not ending in .lock or .json",
        )
    return name


def _is_node_name(name: str) -> bool:
    """It names folders, beside which lie files named `*.lock` and `*.json`: the two must never meet."""
    return bool(_NODE_NAME.fullmatch(name)) and not name.endswith(_FILES)


def nodes(root: Path) -> list[str]:
    """The nodes that have a journal under `root`, ordered by name; none if there is no such folder."""
    with storage_errors(root):
        try:
            found = [entry.name for entry in os.scandir(root) if entry.is_dir()]
        except FileNotFoundError:
            return []
    return sorted(filter(_is_node_name, found))


class JournalFolder:
    """The segments of one node, as they lie on disk now. One thread at a time.

    Whatever it tells of is durable: an offset that it has shown can never come to mean another record.
    """

    def __init__(self, root: Path, node: str) -> None:
        self.path = root / check_node_name(node)
        self._segments: tuple[Segment, ...] = ()
        self._by_name: dict[str, Segment] = {}
        # The folder's time when it was listed, unless that was too recent to trust.
        self._settled: int | None = None

    def path_of(self, first: int, last: int) -> Path:
        """Where the segment with offsets first..last lies."""
        return self.path / f"{first:020d}-{last:020d}.parquet"

    def refresh(self) -> Sequence[Segment]:
        """All segments present, in order. Costs one look at the folder's time while nothing changes."""
        with storage_errors(self.path):
            now = time.time_ns()
            try:
                changed = self.path.stat().st_mtime_ns
            except FileNotFoundError:
                self._remember({})
                self._settled = None
                return self._segments
            if changed == self._settled:
                return self._segments
            names = self._listed()
            if not names.keys() <= self._by_name.keys():
                # A new name can be seen before its writer has made it durable. If a crash took it back, its
                # offsets would go to other records, and a reader that had counted on it would miss those.
                sync_folder(self.path)
            if names.keys() != self._by_name.keys():
                self._remember(names)
            self._settled = changed if now - changed > _SETTLED_NS else None
        return self._segments

    def first_offset(self) -> int:
        """The lowest offset that is still here; 1 when empty."""
        segments = self.refresh()
        return segments[0].first if segments else 1

    def last_offset(self) -> int:
        """The highest offset; 0 when empty."""
        segments = self.refresh()
        return segments[-1].last if segments else 0

    def between(self, after: int, through: int) -> list[Segment]:
        """The segments that hold any offset p with after < p <= through, in order.

        Raises CorruptionError if the record of any such offset is not here, or is here twice.
        """
        if after >= through:
            return []
        segments = self.refresh()
        begin = bisect_left(segments, after + 1, key=lambda segment: segment.last)
        end = bisect_right(segments, through, key=lambda segment: segment.first)
        found = list(segments[begin:end])
        if not found or found[0].first > after + 1 or found[-1].last < through:
            here = f"{segments[0].first} to {segments[-1].last} are" if segments else "none is"
            raise CorruptionError(
                f"offsets {after + 1} to {through} are needed, {here} here",
                where=str(self.path),
                hint=_MISSING,
            )
        _check_dense(found)
        return found

    def dated(self, after: int, through: int) -> Iterator[tuple[int, Segment]]:
        """The same, each with when it was written: in nanoseconds by the clock of the disk, never falling."""
        latest = 0
        for segment in self.between(after, through):
            with storage_errors(segment.path):
                latest = max(latest, segment.path.stat().st_mtime_ns)
            yield latest, segment

    def check(self) -> None:
        """Raises CorruptionError if there is a hole or an overlap, or the newest segment is unreadable."""
        segments = self.refresh()
        _check_dense(segments)
        if segments:
            _open(segments[-1])

    def forget(self, through: int) -> int:
        """Remove the segments that end before `through`, oldest first; how many there were.

        The segment that holds `through`, and in any case the newest, stays: from it a starting writer learns
        the next offset. Idempotent. Should a crash of the machine bring segments back, forget again.
        """
        removed = 0
        for segment in self.refresh()[:-1]:
            if segment.last >= through:
                break
            with storage_errors(segment.path):
                try:
                    segment.path.unlink()
                    removed += 1
                except FileNotFoundError:
                    pass
        return removed

    def _remember(self, by_name: dict[str, Segment]) -> None:
        self._by_name = by_name
        self._segments = tuple(by_name[name] for name in sorted(by_name))

    def _listed(self) -> dict[str, Segment]:
        """The segments by name.

        A listing is no snapshot: what is renamed or removed meanwhile may show as a hole. Since segments come
        and go in order, a hole that is still there when the folder is listed again is a real one.
        """
        found = self._scanned()
        gap = _first_gap(found)
        while gap is not None:
            found = self._scanned()
            before, gap = gap, _first_gap(found)
            if gap == before:
                break
        return found

    def _scanned(self) -> dict[str, Segment]:
        found = {}
        for name in os.listdir(self.path):  # noqa: PTH208  names suffice, and there may be many
            segment = self._by_name.get(name) or self._parsed(name)
            if segment:
                found[name] = segment
        return found

    def _parsed(self, name: str) -> Segment | None:
        match = _SEGMENT_NAME.fullmatch(name)
        if not match:
            return None
        first, last = int(match[1]), int(match[2])
        return Segment(self.path / name, first, last) if 1 <= first <= last else None


def _first_gap(found: dict[str, Segment]) -> tuple[str, str] | None:
    for one, other in pairwise(sorted(found)):
        if found[other].first != found[one].last + 1:
            return one, other
    return None


def _check_dense(segments: Iterable[Segment]) -> None:
    for one, other in pairwise(segments):
        if other.first != one.last + 1:
            what = "overlap" if other.first <= one.last else "leave a hole between them"
            raise CorruptionError(
                f"{one.path.name} and {other.path.name} {what}", where=str(one.path.parent), hint=_MISSING
            )


def encode(batches: Sequence[pa.RecordBatch]) -> memoryview:
    """The content of a segment file with these rows.

    Most segments are tiny: without dictionaries, statistics and a second copy of the schema they are half as
    large, and are written and read in two thirds of the time. Pages carry checksums.
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


def read(segments: Iterable[Segment], after: int, through: int) -> Iterator[pa.RecordBatch]:
    """The rows with after < offset <= through, in the order of `segments`; small segments share a batch.

    Raises CorruptionError for a segment that is gone, damaged or of another format.
    """
    tables: list[pa.Table] = []
    rows = 0
    for segment in segments:
        begin, end = max(after + 1, segment.first), min(through, segment.last)
        if begin > end:
            continue
        tables.append(_table(segment).slice(begin - segment.first, end - begin + 1))
        rows += end - begin + 1
        if rows >= _BATCH_ROWS:
            yield from _together(tables)
            tables, rows = [], 0
    yield from _together(tables)


def read_control(segments: Iterable[Segment], after: int, through: int) -> pa.Table:
    """Of the rows that `read` would give those that are no events. Segments of events alone are hardly looked at.

    Raises CorruptionError as `read` does.
    """
    tables = [RECORD_SCHEMA.empty_table()]
    for segment in segments:
        kinds = _column(segment, "kind")
        if pc.all(pc.equal(kinds, EVENT)).as_py():
            continue
        begin, end = max(after + 1, segment.first), min(through, segment.last)
        rows = _table(segment).slice(begin - segment.first, max(0, end - begin + 1)).cast(RECORD_SCHEMA)
        tables.append(rows.filter(pc.not_equal(rows["kind"], EVENT)))
    return pa.concat_tables(tables).combine_chunks()


def read_terms(segment: Segment) -> pa.ListArray:
    """The terms of its rows. Raises CorruptionError as `read` does."""
    return _column(segment, "terms").combine_chunks()


def _together(tables: Sequence[pa.Table]) -> Iterator[pa.RecordBatch]:
    if tables:
        yield from pa.concat_tables(tables).combine_chunks().cast(RECORD_SCHEMA).to_batches()


def _open(segment: Segment) -> pq.ParquetFile:
    with storage_errors(segment.path):
        try:
            content = segment.path.read_bytes()
        except FileNotFoundError as error:
            raise CorruptionError("the segment is gone", where=str(segment.path), hint=_MISSING) from error
    try:
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        written = (file.metadata.metadata or {}).get(b"format", b"none").decode(errors="replace")
    except _UNREADABLE as error:
        raise _damaged(segment, str(error)) from error
    if written != FORMAT:
        raise CorruptionError(
            f"its format is {written}, not {FORMAT}",
            where=str(segment.path),
            hint="read it with the version of roamcast that wrote it",
        )
    if file.metadata.num_rows != segment.last - segment.first + 1 or not file.schema_arrow.equals(RECORD_SCHEMA):
        raise _damaged(segment, "its content contradicts its name or format")
    return file


def _column(segment: Segment, name: str) -> pa.ChunkedArray:
    try:
        return _open(segment).read([name], use_threads=False).column(name)
    except _UNREADABLE as error:
        raise _damaged(segment, str(error)) from error


def _table(segment: Segment) -> pa.Table:
    file = _open(segment)
    try:
        table = file.read(use_threads=False).replace_schema_metadata(None)
    except _UNREADABLE as error:
        raise _damaged(segment, str(error)) from error
    if table.num_rows != file.metadata.num_rows or table.column("offset")[0].as_py() != segment.first:
        raise _damaged(segment, "its content contradicts its name")
    return table


def _damaged(segment: Segment, why: str) -> CorruptionError:
    return CorruptionError(
        f"not a whole segment: {why}",
        where=str(segment.path),
        hint="check the disk, and restore it from a copy",
    )
