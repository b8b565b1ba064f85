"""Compaction: recent files become sorted files by date and cell, and small ones are merged to large ones.

In the same way, what is erased or too old is removed. Each step ends with a new version, and a crash in between leaves
files that do not count.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.archive.cells import split_by_cell
from roamcast.archive.erasures import erase, has_erased
from roamcast.archive.files import (
    ARCHIVE_SCHEMA,
    EVENTS,
    ROOT,
    TRACKS,
    ArchiveFile,
    FileKind,
    Statistics,
    day_of,
    encode,
    micros,
    open_parquet,
    read_metadata,
    split_recent_name,
)
from roamcast.archive.recent import RecentFile, RecentMetadata, recent_files
from roamcast.archive.versions import Coverage, Version, add_coverage, newest_version, publish
from roamcast.errors import CorruptionError, RoamcastError
from roamcast.journal.records import are_events
from roamcast.lsm import first_to_merge
from roamcast.storage.port import Storage
from roamcast.storage.transfers import transfer_all

__all__ = ["Compaction", "CompactionLimits"]

log = logging.getLogger(__name__)

_DAY: Final = 24 * 3600 * 1_000_000
_TRACK_DAYS: Final = 2  # that tracks are kept longer than events: a replay begins with the snapshot before
_ORPHAN_AGE: Final = 24 * 3600 * 1_000_000_000  # nanoseconds: nobody writes a file and publishes it so much later
_RATIO: Final = 2


@dataclass(frozen=True, slots=True)
class CompactionLimits:
    """When there is something to do, and how much at a time.

    Recent files are compacted if there are `recent` of them, if together they have `recent_bytes`, or once one is
    `recent_age` seconds old. A step has at most about `rows` rows in memory; a run with half as many is not merged any
    more. A file has at most `cell` events. What is erased is removed from files that already existed every
    `erase_every` seconds. Files that do not count any more are deleted after `grace` seconds: readers may use them.
    """

    days: float = 30.0
    recent: int = 64
    recent_bytes: int = 64 << 20
    recent_age: float = 600.0
    rows: int = 500_000
    small: int = 20_000
    cell: int = 125_000
    erase_every: float = 600.0
    checked: int = 50
    grace: float = 900.0


@dataclass(slots=True)
class _Change:
    """What a step changes."""

    added: list[ArchiveFile] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


class Compaction:
    """Keeps the archive compact, a step at a time. One process at a time; not thread-safe."""

    def __init__(
        self, storage: Storage, limits: CompactionLimits | None = None, *, now: Callable[[], int] = time.time_ns
    ) -> None:
        """`now` is in nanoseconds since 1970."""
        self._storage = storage
        self._limits = limits or CompactionLimits()
        self._now = now
        self._token = uuid.uuid4().hex[:8]  # files of a process that was overtaken are not overwritten
        self._is_erasing = False
        self._erased_at = 0  # when that was begun
        self._swept_at: int | None = None
        self.version = newest_version(storage) or Version()
        self.recent: Sequence[RecentFile] = ()
        """Those that counted besides the version at the last step."""

    def run(self, pipeline: str, committed: int, check: Callable[[], object] = lambda: None) -> None:
        """Do everything that is due. Batches of the pipeline after the committed one are left alone.

        Before each publication, `check` may raise an error. Raises StorageError, or CorruptionError for damaged files.
        """
        while self.step(pipeline, committed, check):
            pass

    def step(self, pipeline: str, committed: int, check: Callable[[], object] = lambda: None) -> bool:
        """Do one thing that is due; whether there was any. Raises as `run`."""
        files = recent_files(self._storage, self.version)
        self.recent = [file for file in files if file.pipeline != pipeline or file.batch <= committed]
        for due in (self._compact_recent, self._merge, self._erase, self._expire, self._delete_garbage):
            version = due()
            if version is not None:
                self._publish(version, check)
                return True
        self._sweep()
        return False

    def _publish(self, version: Version, check: Callable[[], object]) -> None:
        check()
        version = replace(version, number=self.version.number + 1)
        if publish(self._storage, version):
            self.version = version
        else:  # what is written now will be swept
            self.version = newest_version(self._storage) or version

    def _compact_recent(self) -> Version | None:
        limits = self._limits
        is_due = len(self.recent) >= limits.recent or sum(file.size for file in self.recent) >= limits.recent_bytes
        oldest = min((file.written_at for file in self.recent), default=self._now())
        if not self.recent or not (is_due or self._now() - oldest >= limits.recent_age * 1e9):
            return None
        tables: list[pa.Table] = []
        taken: list[RecentFile] = []
        coverage: Mapping[str, tuple[Coverage, ...]] = self.version.coverage
        erasures = list(self.version.erasures)
        count = self.version.erasure_count
        for file in self.recent:
            if tables and sum(table.num_rows for table in tables) >= limits.rows:
                break
            rows, metadata = self._read_recent(file)
            tables.append(rows)
            taken.append(file)
            coverage = add_coverage(coverage, metadata.coverage)
            for erasure in metadata.erasures:
                count += 1
                erasures.append(erasure._replace(number=count))
        rows = erase(pa.concat_tables(tables), erasures)
        pipelines = dict(self.version.pipelines)
        for file in taken:
            pipelines[file.pipeline] = pipelines[file.pipeline]._replace(compacted=file.batch)
        version = replace(
            self.version, pipelines=pipelines, coverage=coverage, erasures=tuple(erasures), erasure_count=count
        )
        return self._with(version, self._write(rows, count), [file.name for file in taken])

    def _merge(self) -> Version | None:
        """Merge the runs of one date."""
        most = self._limits.rows // 2
        groups: dict[tuple[str, FileKind], dict[int, list[ArchiveFile]]] = {}
        for file in self.version.files:
            groups.setdefault((file.date, file.kind), {}).setdefault(file.run, []).append(file)
        newest = max((date for date, _ in groups), default="")
        for (date, _), by_run in sorted(groups.items()):
            runs = [by_run[run] for run in sorted(by_run)]
            sizes = [sum(file.statistics.rows for file in run) for run in runs]
            open_runs = [(run, size) for run, size in zip(runs, sizes, strict=True) if size < most]
            first = 0
            if date == newest:
                first = first_to_merge([size for _, size in open_runs], ratio=_RATIO, small=self._limits.small)
            chosen: list[ArchiveFile] = []
            total = 0
            for run, size in islice(reversed(open_runs), len(open_runs) - first):
                if chosen and total + size > self._limits.rows:
                    break
                chosen += run
                total += size
            if len({file.run for file in chosen}) > 1:
                rows = erase(pa.concat_tables(map(self._read, chosen)), self.version.erasures)
                added = self._write(rows, self.version.erasure_count)
                return self._with(self.version, added, [file.name for file in chosen])
        return None

    def _erase(self) -> Version | None:
        """Remove what is erased from some of the files that have not been checked for it."""
        version = self.version
        if not version.erasures:
            return None
        unchecked = [file for file in version.files if file.erased < version.erasure_count]
        if not unchecked:
            erased = dict(version.erased)
            for erasure in version.erasures:
                erased[erasure.node] = max(erasure.written, erased.get(erasure.node, 0))
            self._is_erasing = False
            return replace(version, erasures=(), erased=erased)
        if not self._is_erasing and self._now() - self._erased_at < self._limits.erase_every * 1e9:
            return None
        if not self._is_erasing:
            self._is_erasing, self._erased_at = True, self._now()
        checked: dict[str, ArchiveFile] = {}
        added: list[ArchiveFile] = []
        for file in unchecked[: self._limits.checked]:
            erasures = [each for each in version.erasures if each.number > file.erased]
            is_concerned = any(file.statistics.first_batch <= erasure.batch for erasure in erasures)
            if is_concerned and has_erased(self._read(file, ["node", "entity", "offset", "batch"]), erasures):
                added += self._write(erase(self._read(file), erasures), version.erasure_count, file.run)
                checked[file.name] = file
            else:
                checked[file.name] = file._replace(erased=version.erasure_count)
        removed = [name for name, file in checked.items() if file.erased < version.erasure_count]
        files = tuple(checked.get(file.name, file) for file in version.files)
        return self._with(replace(version, files=files), added, removed)

    def _expire(self) -> Version | None:
        """Drop files that are older than they are kept."""
        oldest = self._now() // 1_000 - round(self._limits.days * _DAY)
        limits = {EVENTS: oldest, TRACKS: oldest - _TRACK_DAYS * _DAY}
        expired = [file.name for file in self.version.files if file.statistics.end < limits[file.kind]]
        coverage = {
            node: tuple(_since(each, oldest) for each in ranges if each.end >= oldest)
            for node, ranges in self.version.coverage.items()
        }
        for node, ranges in coverage.items():
            if not ranges:  # its next record continues this range
                last = self.version.coverage[node][-1]
                coverage[node] = (last._replace(first_offset=max(last.first_offset, 2), begin=oldest, end=oldest),)
        if not expired:
            return None
        return self._with(replace(self.version, coverage=coverage), [], expired)

    def _delete_garbage(self) -> Version | None:
        until = self._now() - round(self._limits.grace * 1e9)
        old = [name for name, since in self.version.garbage.items() if since <= until]
        if not old:
            return None
        self._storage.delete(old)
        garbage = {name: since for name, since in self.version.garbage.items() if since > until}
        return replace(self.version, garbage=garbage)

    def _sweep(self) -> None:
        """Once a day, delete what a crash or an overtaken process has left."""
        if self._swept_at is not None and self._now() - self._swept_at < _ORPHAN_AGE:
            return
        self._swept_at = self._now()
        known = {*self.version.garbage, *(file.name for file in self.version.files)}
        known.update(file.name for file in recent_files(self._storage, self.version))
        orphans = []
        for file in self._storage.files(ROOT):
            folder = file.name.removeprefix(f"{ROOT}/").partition("/")[0]
            is_ours = folder in (EVENTS, TRACKS) or split_recent_name(file.name) is not None
            if is_ours and file.name not in known and self._now() - file.written_at >= _ORPHAN_AGE:
                orphans.append(file.name)
        self._storage.delete(orphans)

    def _with(self, version: Version, added: Iterable[ArchiveFile], removed: Iterable[str]) -> Version:
        gone = dict.fromkeys(removed, self._now())
        files = (*(file for file in version.files if file.name not in gone), *added)
        return replace(version, files=files, garbage={**version.garbage, **gone})

    def _read_recent(self, file: RecentFile) -> tuple[pa.Table, RecentMetadata]:
        opened = open_parquet(self._storage, file.name)
        if opened is None:
            raise _missing(self._storage, file.name)
        return opened.read().cast(ARCHIVE_SCHEMA), RecentMetadata.from_json(read_metadata(opened))

    def _read(self, file: ArchiveFile, columns: Sequence[str] | None = None) -> pa.Table:
        opened = open_parquet(self._storage, file.name)
        if opened is None:
            raise _missing(self._storage, file.name)
        schema = ARCHIVE_SCHEMA if columns is None else pa.schema([ARCHIVE_SCHEMA.field(name) for name in columns])
        return opened.read(columns).select(schema.names).cast(schema)

    def _write(self, rows: pa.Table, erased: int, run: int | None = None) -> list[ArchiveFile]:
        """Write files with these rows, of as many dates and cells as they have."""
        run = self.version.number + 1 if run is None else run
        named = []
        for number, (folder, kind, part) in enumerate(self._parts(rows)):
            named.append(
                (f"{ROOT}/{kind}/{folder}/{self.version.number + 1}-{self._token}-{number}.parquet", kind, part)
            )
        written: dict[str, ArchiveFile] = {}

        def put(item: tuple[str, FileKind, pa.Table]) -> None:
            name, kind, part = item
            content = encode(part)
            self._storage.put(name, content)
            written[name] = ArchiveFile(name, kind, len(content), Statistics.of(part), run, erased)

        transfer_all(put, named)
        return [written[name] for name, _, _ in named]

    def _parts(self, rows: pa.Table) -> Iterator[tuple[str, FileKind, pa.Table]]:
        days = micros(rows["written"]).to_numpy() // _DAY
        for day in np.unique(days).tolist():
            of_day = rows.filter(pa.array(days == day))
            is_event = are_events(of_day["kind"])
            date = f"date={day_of(day * _DAY)}"
            for cell, events in split_by_cell(of_day.filter(is_event), self._limits.cell):
                yield f"{date}/cell={cell}", EVENTS, events
            tracks = of_day.filter(pc.invert(is_event)).sort_by([("node", "ascending"), ("offset", "ascending")])
            if tracks.num_rows:
                yield date, TRACKS, tracks


def _since(coverage: Coverage, oldest: int) -> Coverage:
    """What is left when older records are deleted."""
    if coverage.begin >= oldest:
        return coverage
    return coverage._replace(first_offset=max(coverage.first_offset, 2), begin=oldest)


def _missing(storage: Storage, name: str) -> RoamcastError:
    return CorruptionError("the file is missing", where=f"{storage.url}/{name}", hint="restore it from a backup")
