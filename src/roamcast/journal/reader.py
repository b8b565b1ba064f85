"""Journals in the data folder: one folder of segments for each node, and the reader of all of them.

The segments of a node follow each other without gap or overlap. The oldest are deleted once the pipeline has committed
them. Other files in the folder are ignored.
"""

from __future__ import annotations

import os
import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from roamcast.durable import storage_errors, sync_folder
from roamcast.errors import CorruptionError, InputError
from roamcast.journal.port import JournalReader, WrittenSegment
from roamcast.journal.records import MISSING_HINT, Segment, check_readable, read, read_control, read_terms

__all__ = [
    "FileJournalReader", "JournalFolder", "check_node_name", "is_link_name", "is_node_name", "journal_root",
    "open_journal",
]  # fmt: skip

LOCK: Final = ".lock"
_FILES: Final = (LOCK, ".json")
_NODE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}(\+[0-9a-f]{8}\+[0-9]{1,19})?")

# Several changes of a folder may share one modification time: file systems have a resolution of up to two seconds.
_MTIME_RESOLUTION_NS: Final = 2_000_000_000


def journal_root(data: Path) -> Path:
    """Where a data folder has the journals of its nodes."""
    return data / "journal"


def open_journal(data: Path) -> JournalReader:
    """Open the journals of a data folder. There may be none yet. Use the reader from one thread at a time."""
    return FileJournalReader(journal_root(data))


def check_node_name(name: str) -> str:
    """Return `name` if a node may have it, else raise InputError."""
    if not is_node_name(name):
        raise InputError(
            f"{name!r} is not a valid node name",
            where="node",
            hint="use 1 to 64 of A-Z a-z 0-9 . _ - with a letter or digit first, not ending in .lock or .json",
        )
    return name


def is_node_name(name: str) -> bool:
    """Nodes name folders. Files named `*.lock` and `*.json` lie next to these."""
    return bool(_NODE_NAME.fullmatch(name)) and not name.endswith(_FILES)


def is_link_name(name: str) -> bool:
    """Whether the journal with this name has events that come over a link, see `node.peers.links`."""
    return "+" in name


class FileJournalReader:
    """A JournalReader of the segments under `root`. Use it from one thread at a time.

    It remembers folder listings. A pickled copy starts without them.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders: dict[str, JournalFolder] = {}

    def nodes(self) -> list[str]:
        with storage_errors(self._root):
            try:
                names = [entry.name for entry in os.scandir(self._root) if entry.is_dir()]
            except FileNotFoundError:
                return []
        return sorted(filter(is_node_name, names))

    def location(self, node: str) -> str:
        return str(self._folder(node).path)

    def first_offset(self, node: str) -> int:
        return self._folder(node).first_offset()

    def last_offset(self, node: str) -> int:
        return self._folder(node).last_offset()

    def segment_count(self, node: str, after: int, through: int) -> int:
        return len(self._folder(node).segments_between(after, through))

    def written_segments(self, node: str, after: int, through: int) -> Iterator[WrittenSegment]:
        latest = 0
        for segment in self._folder(node).segments_between(after, through):
            with storage_errors(segment.path):
                status = segment.path.stat()
            latest = max(latest, status.st_mtime_ns)
            yield WrittenSegment(latest, segment.last, status.st_size)

    def read(self, node: str, after: int, through: int) -> Iterator[pa.RecordBatch]:
        return read(self._folder(node).segments_between(after, through), after, through)

    def read_control(self, node: str, after: int, through: int) -> pa.Table:
        return read_control(self._folder(node).segments_between(after, through), after, through)

    def sample_terms(self, node: str, after: int, through: int) -> pa.ListArray:
        return read_terms(self._folder(node).segments_between(after, through)[-1])

    def delete_before(self, node: str, offset: int) -> int:
        return self._folder(node).delete_before(offset)

    def _folder(self, node: str) -> JournalFolder:
        return self._folders.setdefault(node, JournalFolder(self._root, node))

    def __getstate__(self) -> dict[str, Any]:
        return {"_root": self._root, "_folders": {}}


class JournalFolder:
    """The segments of one node, as they are on disk now. Use it from one thread at a time.

    Everything it reports is durable: an offset that it has shown never comes to mean another record.
    """

    def __init__(self, root: Path, node: str) -> None:
        self.path = root / check_node_name(node)
        self._segments: tuple[Segment, ...] = ()
        self._by_name: dict[str, Segment] = {}
        # The folder's modification time when it was listed, unless that was too recent to be trusted.
        self._listed_mtime: int | None = None

    def path_of(self, first: int, last: int) -> Path:
        """The path of the segment with the offsets first..last."""
        return Segment.at(self.path, first, last).path

    def segments(self) -> Sequence[Segment]:
        """All segments, in order. While nothing changes this costs one `stat` of the folder."""
        with storage_errors(self.path):
            now = time.time_ns()
            try:
                mtime = self.path.stat().st_mtime_ns
            except FileNotFoundError:
                self._remember({})
                self._listed_mtime = None
                return self._segments
            if mtime == self._listed_mtime:
                return self._segments
            by_name = self._list()
            if not by_name.keys() <= self._by_name.keys():
                # A new name can be seen before its writer has synced it. If a crash then removed it, its offsets would
                # go to other records, and a reader that had already counted on it would miss those.
                sync_folder(self.path)
            if by_name.keys() != self._by_name.keys():
                self._remember(by_name)
            self._listed_mtime = mtime if now - mtime > _MTIME_RESOLUTION_NS else None
        return self._segments

    def first_offset(self) -> int:
        """The lowest offset that has not been deleted; 1 if there are no segments."""
        segments = self.segments()
        return segments[0].first if segments else 1

    def last_offset(self) -> int:
        """The highest offset; 0 if there are no segments."""
        segments = self.segments()
        return segments[-1].last if segments else 0

    def oldest_after(self, offset: int) -> tuple[int, int] | None:
        """The first record after `offset` that still exists: its offset, and when it was written (microseconds since
        1970). None if there is none. Lists the folder; any thread may call this. Raises StorageError.
        """
        with storage_errors(self.path):
            segments = (Segment.from_name(self.path, name) for name in os.listdir(self.path))  # noqa: PTH208 - names suffice
            later = [segment for segment in segments if segment is not None and segment.last > offset]
            if not later:
                return None
            oldest = min(later, key=lambda segment: segment.first)
            return max(oldest.first, offset + 1), oldest.path.stat().st_mtime_ns // 1_000

    def segments_between(self, after: int, through: int) -> list[Segment]:
        """The segments that hold offsets with after < offset <= through, in order.

        Raises CorruptionError if the record of such an offset is missing or exists twice.
        """
        if after >= through:
            return []
        segments = self.segments()
        begin = bisect_left(segments, after + 1, key=lambda segment: segment.last)
        end = bisect_right(segments, through, key=lambda segment: segment.first)
        chosen = list(segments[begin:end])
        if not chosen or chosen[0].first > after + 1 or chosen[-1].last < through:
            present = f"{segments[0].first} to {segments[-1].last} exist" if segments else "none exists"
            raise CorruptionError(
                f"offsets {after + 1} to {through} are needed, {present}", where=str(self.path), hint=MISSING_HINT
            )
        _check_dense(chosen)
        return chosen

    def check(self) -> None:
        """Raises CorruptionError if there is a gap or an overlap, or if the newest segment is unreadable."""
        segments = self.segments()
        _check_dense(segments)
        if segments:
            check_readable(segments[-1])

    def delete_before(self, offset: int) -> int:
        """Delete the segments that end before `offset`, oldest first; return how many. Idempotent.

        The newest segment always stays: a starting writer learns the next offset from it. If a crash of the machine
        brings segments back, the next call deletes them again.
        """
        removed = 0
        for segment in self.segments()[:-1]:
            if segment.last >= offset:
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

    def _list(self) -> dict[str, Segment]:
        """The segments by file name.

        A directory listing is not a snapshot: files that are renamed or removed meanwhile may show as a gap. Since
        segments come and go in order, a gap that is still there in a second listing is real.
        """
        by_name = self._scan()
        gap = _first_gap(by_name)
        while gap is not None:
            by_name = self._scan()
            before, gap = gap, _first_gap(by_name)
            if gap == before:
                break
        return by_name

    def _scan(self) -> dict[str, Segment]:
        by_name = {}
        for name in os.listdir(self.path):  # noqa: PTH208 - names suffice, and there may be many
            segment = self._by_name.get(name) or Segment.from_name(self.path, name)
            if segment:
                by_name[name] = segment
        return by_name


def _first_gap(by_name: dict[str, Segment]) -> tuple[str, str] | None:
    for name, following in pairwise(sorted(by_name)):
        if by_name[following].first != by_name[name].last + 1:
            return name, following
    return None


def _check_dense(segments: Iterable[Segment]) -> None:
    for segment, following in pairwise(segments):
        if following.first != segment.last + 1:
            what = "overlap" if following.first <= segment.last else "have a gap between them"
            raise CorruptionError(
                f"{segment.path.name} and {following.path.name} {what}",
                where=str(segment.path.parent),
                hint=MISSING_HINT,
            )
