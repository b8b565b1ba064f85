"""Archiving: each batch goes into the archive before it is committed, and a thread keeps the archive compact."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from roamcast.archive.compaction import Compaction, CompactionLimits
from roamcast.archive.reader import Archive
from roamcast.archive.versions import Version, newest_version
from roamcast.archive.writer import ArchiveWriter
from roamcast.errors import ConflictError, RoamcastError
from roamcast.failures import FailureTracker
from roamcast.journal.port import JournalReader
from roamcast.model import iso
from roamcast.pipeline.letters.context import LetterReport
from roamcast.pipeline.state.control import OffsetRanges
from roamcast.storage.port import Storage

__all__ = ["BatchArchive"]

log = logging.getLogger(__name__)

_PERIOD_S: Final = 5.0
_MANY: Final = 2_000  # recent files: compaction is much slower than the pipeline


class BatchArchive:
    """The archive of a pipeline."""

    def __init__(
        self,
        storage: Storage,
        pipeline: str,
        committed: int,
        days: float,
        check: Callable[[], object],
        limits: CompactionLimits | None = None,
    ) -> None:
        """`check` raises ConflictError if another process runs the pipeline now. Raises as `ArchiveWriter`."""
        self._storage = storage
        self._pipeline = pipeline
        self._committed = committed
        self._check = check
        self._writer = ArchiveWriter(storage, pipeline, committed)
        self._compaction = Compaction(storage, limits or CompactionLimits(days=days))
        self._failures = FailureTracker()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="archive", daemon=True)

    def start(self) -> None:
        """Begin to compact what is committed."""
        self._thread.start()

    def stop(self) -> None:
        """Do not begin another step."""
        self._stopped.set()

    def add(self, batch: int, journal: JournalReader, ranges: OffsetRanges, reports: Iterable[LetterReport]) -> None:
        """Archive a batch whose letters are made. Repeating it changes nothing. Raises StorageError."""
        dropped: dict[str, set[int]] = {}
        for report in reports:
            for node, offsets in report.copies.items():
                dropped.setdefault(node, set()).update(offsets)
            for letter in report.dead_letters:
                dropped.setdefault(letter.node, set()).add(letter.offset)
        begins = {node: after or journal.first_offset(node) - 1 for node, (after, _) in ranges.items()}
        read = {node: (begins[node], through) for node, (_, through) in ranges.items() if begins[node] < through}
        records = (rows for node, (after, through) in read.items() for rows in journal.read(node, after, through))
        written = {node: _times(journal, node, *offsets) for node, offsets in read.items()}
        first_offsets = {node: after + 1 for node, (after, _) in read.items()}
        journal_ends = {node: journal.last_offset(node) for node in read}
        self._writer.add(batch, records, written, first_offsets, journal_ends, dropped, _unfinished(journal, read))

    def open(self) -> Archive:
        """The archive with all batches that were added."""
        return Archive(self._storage, newest_version(self._storage) or Version())

    def committed(self, batch: int) -> None:
        """A batch is committed: it may be compacted."""
        self._committed = batch

    def status(self) -> dict[str, Any]:
        """What the status of the pipeline says of the archive."""
        version, recent = self._compaction.version, self._compaction.recent
        if len(recent) > _MANY:
            self._failures.failed(f"{len(recent)} batches wait to be compacted")
        failure = self._failures.current
        return {
            "place": self._storage.url,
            "nodes": {
                node: {"offset": ranges[-1].last_offset, "time": iso(ranges[-1].end), "since": iso(ranges[-1].begin)}
                for node, ranges in self._writer.coverage.items()
            },
            "files": len(version.files),
            "recent": len(recent),
            "bytes": sum(file.size for file in version.files) + sum(file.size for file in recent),
            "erasing": self._writer.erasing(version),
            "problem": None if failure is None else failure.detail,
            "problem_since": None if failure is None else failure.since,
        }

    def _run(self) -> None:
        while not self._stopped.wait(_PERIOD_S):
            try:
                while not self._stopped.is_set() and self._compaction.step(
                    self._pipeline, self._committed, self._check
                ):
                    pass
                self._failures.succeeded()
            except ConflictError:
                return  # the heartbeat ends the query
            except RoamcastError as error:
                if self._failures.current is None:
                    log.warning("the archive is not compacted: %s; retrying", error)
                self._failures.failed(error)
            except Exception as error:
                log.exception("the archive is not compacted")
                self._failures.failed(str(error))


def _unfinished(journal: JournalReader, read: OffsetRanges) -> set[str]:
    """The nodes of which a batch ends inside a segment: more records were written at the same time."""
    lasts = {
        node: [*journal.written_segments(node, through - 1, through)][-1].last for node, (_, through) in read.items()
    }
    return {node for node, (_, through) in read.items() if lasts[node] > through}


def _times(journal: JournalReader, node: str, after: int, through: int) -> Sequence[tuple[int, int]]:
    segments = journal.written_segments(node, after, through)
    return [(min(segment.last, through), segment.time // 1_000) for segment in segments]
