"""Writing the archive: a file for each batch, before the batch is committed. A repeated batch replaces its file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from roamcast.archive.erasures import erasures_of
from roamcast.archive.files import recent_name
from roamcast.archive.recent import WrittenTimes, archived_rows, encode_recent, recent_files, recent_metadata
from roamcast.archive.versions import (
    Coverage,
    PipelineBatches,
    Version,
    add_coverage,
    newest_version,
    publish,
)
from roamcast.errors import CorruptionError, UnavailableError
from roamcast.storage.port import Storage

__all__ = ["ArchiveWriter"]

_NO_BATCH: Final = -1


class ArchiveWriter:
    """Archives the batches of one pipeline, in order. Not thread-safe."""

    def __init__(self, storage: Storage, pipeline: str, committed: int) -> None:
        """`committed` is the last committed batch of the pipeline. What later ones have left is replaced.

        Raises StorageError, CorruptionError, and UnavailableError if another process writes to the archive.
        """
        self._storage = storage
        self._pipeline = pipeline
        version = newest_version(storage) or Version()
        self._base, version = _base_of(storage, version, pipeline)
        self._erasures: dict[tuple[str, int], int] = {}  # of pipeline and batch
        coverage = dict(version.coverage)
        for file in recent_files(storage, version):
            if file.pipeline == pipeline and file.batch > committed:
                continue
            if (metadata := recent_metadata(storage, file.name)) is not None:
                coverage = add_coverage(coverage, metadata.coverage)
                self._erasures[file.pipeline, file.batch] = len(metadata.erasures)
        self._batch = committed
        self._coverage = coverage  # through batch `_batch`
        self._next = coverage  # through the batch after it, once that is added

    @property
    def coverage(self) -> Mapping[str, tuple[Coverage, ...]]:
        """What is archived, through the last batch that was added."""
        return self._next

    def erasing(self, version: Version) -> int:
        """How many erasures are not carried out: those of this version, and of batches that it has not compacted."""
        count = len(version.erasures)
        for (pipeline, batch), more in list(self._erasures.items()):
            if batch > version.pipelines[pipeline].compacted:
                count += more
            else:
                del self._erasures[pipeline, batch]
        return count

    def add(
        self,
        batch: int,
        records: Iterable[pa.RecordBatch],
        written: WrittenTimes,
        first_offsets: Mapping[str, int],
        journal_ends: Mapping[str, int],
        dropped: Mapping[str, Collection[int]],
        unfinished: Collection[str] = (),
    ) -> None:
        """Archive the records of a batch, durably. It may be called again for the same batch, which changes nothing.

        `records` are those from `first_offsets` on through the last one in `written`, in any order of nodes. `dropped`
        are the offsets of events that did not count. `unfinished`: of these nodes, more records were written at
        the time of the last one. Raises StorageError, and CorruptionError if the archive has later records of a node
        than its journal, which ends at `journal_ends`: then it is another journal.
        """
        if batch == self._batch + 2:
            self._batch, self._coverage = batch - 1, self._next
        if batch != self._batch + 1:
            raise ValueError(f"batch {batch} does not follow {self._batch}")
        archived = {node: ranges[-1] for node, ranges in self._coverage.items()}
        times = {node: _not_before(archived.get(node), segments) for node, segments in written.items()}
        coverage: dict[str, Coverage] = {}
        for node, segments in times.items():
            last, before = segments[-1][0], archived.get(node)
            if before is not None and journal_ends[node] < before.last_offset:
                raise CorruptionError(
                    f"the archive has {node} up to offset {before.last_offset}, its journal up to {journal_ends[node]}",
                    where=self._storage.url,
                    hint="move the folder of the archive away to begin a new one",
                )
            if before is None or last > before.last_offset:
                first = first_offsets[node] if before is None else max(first_offsets[node], before.last_offset + 1)
                coverage[node] = Coverage(first, last, segments[0][1], segments[-1][1] - (node in unfinished))
        rows = archived_rows(
            records,
            times,
            self._base + batch,
            dropped=dropped,
            archived_through={node: each.last_offset for node, each in archived.items()},
        )
        self._storage.put(recent_name(self._pipeline, batch), encode_recent(rows, coverage))
        if erasures := len(erasures_of(rows)):
            self._erasures[self._pipeline, batch] = erasures
        self._next = add_coverage(self._coverage, coverage)


def _base_of(storage: Storage, version: Version, pipeline: str) -> tuple[int, Version]:
    """The number of the pipeline's batch 0 in the archive, and the version that knows it."""
    if pipeline not in version.pipelines:
        last = max((file.statistics.last_batch for file in version.files), default=_NO_BATCH)
        last = max([last, *(each.base + each.compacted for each in version.pipelines.values())])
        last = max([last, *(file.number for file in recent_files(storage, version))])
        batches = {**version.pipelines, pipeline: PipelineBatches(last + 1, _NO_BATCH)}
        version = replace(version, number=version.number + 1, pipelines=batches)
        if not publish(storage, version):
            raise UnavailableError(
                "another process writes to the archive", where=storage.url, hint="stop it, and start again"
            )
    return version.pipelines[pipeline].base, version


def _not_before(last: Coverage | None, segments: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The disk's clock may have been set back."""
    earliest = 0 if last is None else last.end
    return [(offset, max(time, earliest)) for offset, time in segments]
