"""Reading the archive: events and tracks of a range of time, from the files that may have any.

A range is that of `written`: the time at which a node journalled a record. So it is a range of offsets of each node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from roamcast.archive.erasures import erase
from roamcast.archive.files import ARCHIVE_SCHEMA, EVENTS, TRACKS, ArchiveFile, day_of, micros, open_parquet
from roamcast.archive.recent import RecentMetadata, recent_files, recent_metadata
from roamcast.archive.versions import Coverage, Erasure, Version, add_coverage, newest_version
from roamcast.errors import CorruptionError, NotFoundError
from roamcast.journal.records import HISTORY, SNAPSHOT, SNAPSHOT_END, UNTRACKED, are_events, are_tracking
from roamcast.journal.tracking import SnapshotBody
from roamcast.model import Box, iso
from roamcast.space import contains
from roamcast.storage.location import open_storage
from roamcast.storage.port import Storage
from roamcast.storage.transfers import transfer_all

__all__ = [
    "Archive", "Coverage", "CoverageError", "ReadCounts", "ReadPlan", "Source", "Tracks", "open_archive", "read_file",
]  # fmt: skip

Source = tuple[str, str]
"""A source: its home, and its id there."""

Kinds = Callable[[pa.ChunkedArray], pa.ChunkedArray]
"""Which kinds of records are wanted."""

_NEEDED: Final = ("node", "offset", "kind", "entity", "time", "x", "y", "batch", "written")
_SNAPSHOT_AGE: Final = 2 * 24 * 3600 * 1_000_000  # microseconds; nodes write one each day
_COPY_KEY: Final = ["seq", "kind", "entity", "id", "body"]


class CoverageError(NotFoundError):
    """The archive does not have what was asked for."""


class Tracks(NamedTuple):
    """The entities of a node at some time (a snapshot, see `journal.tracking`), and what changed after it, by offset.

    Without copies: the node may have journalled records twice.
    """

    snapshot: pa.Table
    changes: pa.Table
    body: SnapshotBody


@dataclass(slots=True)
class ReadCounts:
    """What was read and what was pruned."""

    files: int = 0
    files_pruned: int = 0
    row_groups: int = 0
    row_groups_pruned: int = 0
    rows: int = 0


class ReadPlan(NamedTuple):
    """Which events to read: written in a range of time, in a closed box, of some sources. None is all."""

    begin: int | None = None
    end: int | None = None
    box: Box | None = None
    sources: frozenset[Source] | None = None


def open_archive(place: str | Path) -> Archive:
    """The archive in a data folder or on a storage, as it is now. Raises NotFoundError if there is none."""
    marker = Path(place) / "pipeline" / "storage"  # of a data folder whose pipeline is on a storage
    if "://" not in str(place) and marker.is_file():
        place = marker.read_text()
    storage = open_storage(str(place))
    version = newest_version(storage)
    if version is None:
        raise NotFoundError(
            "there is no archive", where=storage.url, hint="switch it on with --archive, and check the folder"
        )
    return Archive(storage, version)


class Archive:
    """What the archive had when it was opened. Files stay readable for a quarter of an hour after that."""

    def __init__(self, storage: Storage, version: Version) -> None:
        self._storage = storage
        self.version = version
        recent = {file.name: file for file in recent_files(storage, version)}
        metadata: dict[str, RecentMetadata] = {}

        def load(name: str) -> None:
            if (loaded := recent_metadata(storage, name)) is not None:
                metadata[name] = loaded

        transfer_all(load, recent)
        found = [name for name in recent if name in metadata]
        self._recent = [ArchiveFile(n, "recent", recent[n].size, metadata[n].statistics) for n in found]
        self.erasures: tuple[Erasure, ...] = (
            *version.erasures, *(each for name in found for each in metadata[name].erasures)
        )  # fmt: skip
        self._coverage = dict(version.coverage)
        for name in found:
            self._coverage = add_coverage(self._coverage, metadata[name].coverage)
        self.counts = ReadCounts()

    @property
    def storage(self) -> str:
        """The URL of its storage, or the path of its folder."""
        return self._storage.url

    def coverage(self) -> Mapping[str, Sequence[Coverage]]:
        """By node, the ranges of offsets that are archived completely."""
        return self._coverage

    def erased(self) -> Mapping[str, int]:
        """By node, when something was last erased (`written`): records from before may be missing."""
        latest = dict(self.version.erased)
        for erasure in self.erasures:
            latest[erasure.node] = max(erasure.written, latest.get(erasure.node, 0))
        return latest

    def files(self) -> list[ArchiveFile]:
        """All files that count; read one with `read_file`."""
        return [*self.version.files, *self._recent]

    def events(
        self,
        begin: int | None = None,
        end: int | None = None,
        *,
        box: Box | None = None,
        sources: Collection[Source] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The events with begin <= written < end (microseconds), in the box, of these sources; in any order.

        They have `columns`, or all of ARCHIVE_SCHEMA.
        """
        plan = ReadPlan(begin, end, box, None if sources is None else frozenset(sources))
        for file in self.files():
            if file.kind != TRACKS:
                yield from self._read(file, plan, are_events, columns).to_batches()

    def events_table(
        self,
        begin: int | None = None,
        end: int | None = None,
        *,
        box: Box | None = None,
        sources: Collection[Source] | None = None,
    ) -> pa.Table:
        """As `events`, ordered by batch, node and offset."""
        table = pa.Table.from_batches(self.events(begin, end, box=box, sources=sources), ARCHIVE_SCHEMA)
        return table.sort_by([("batch", "ascending"), ("node", "ascending"), ("offset", "ascending")])

    def batch_times(self, begin: int, end: int) -> Iterator[pa.Table]:
        """The columns `batch` and `written` (microseconds) of everything with begin <= written < end."""
        for file in self.files():
            rows = self._read(file, ReadPlan(begin, end), pc.is_valid, ["batch", "written"])
            yield pa.table({"batch": rows["batch"], "written": micros(rows["written"])})

    def tracks(self, node: str, begin: int, end: int | None = None) -> Tracks:
        """The last complete snapshot of a node before `begin`, and the changes from there on that are before `end`.

        Raises CoverageError if there is none, or if something is missing in between.
        """
        starts = self._snapshots(node, begin - _SNAPSHOT_AGE, begin)
        if not starts.num_rows:
            starts = self._snapshots(node, None, begin)
        if not starts.num_rows:
            raise CoverageError(
                f"what {node} knew of entities at {iso(begin)} is not archived", where=self._storage.url,
                hint=self._hint(node),
            )  # fmt: skip
        first = int(starts["offset"][-1].as_py())
        rows = self._tracking(node, micros(starts["written"])[-1].as_py(), end)
        rows = rows.filter(pc.greater_equal(rows["offset"], first))
        rows = rows.filter(pc.is_in(rows["offset"], _first_copies(rows)))
        last = rows.num_rows and int(rows["offset"][-1].as_py())
        if not any(each.first_offset <= first and last <= each.last_offset for each in self._coverage.get(node, ())):
            raise CoverageError(
                f"records of {node} are missing in the archive", where=self._storage.url, hint=self._hint(node)
            )
        if (gaps := rows.filter(pc.equal(rows["kind"], UNTRACKED))).num_rows:
            since = iso(micros(gaps["written"])[0].as_py())
            raise CoverageError(
                f"{node} was started without the archive at {since}", where=self._storage.url, hint=self._hint(node)
            )
        seq = int(starts["seq"][-1].as_py())
        ended = rows.filter(pc.and_(pc.equal(rows["kind"], SNAPSHOT_END), pc.equal(rows["seq"], seq)))
        size = int(np.searchsorted(rows["offset"].to_numpy(), ended["offset"][0].as_py())) + 1
        body = SnapshotBody.from_json(rows["body"][0].as_py())
        changes = rows.slice(size)
        return Tracks(rows.slice(0, size), changes.filter(pc.not_equal(changes["kind"], HISTORY)), body)

    def histories(self, node: str, begin: int) -> pa.Table:
        """The records of a node, written at a time or later, that ask for letters of the past. Without copies."""
        rows = self._tracking(node, begin, None)
        rows = rows.filter(pc.equal(rows["kind"], HISTORY))
        return rows.filter(pc.is_in(rows["offset"], _first_copies(rows)))

    def first_snapshot(self, node: str, begin: int) -> int | None:
        """When the first complete snapshot after all gaps was written, from a time on; None if there is none."""
        rows = self._tracking(node, begin, None, ["kind", "seq"])
        untracked = pc.max(rows["offset"].filter(pc.equal(rows["kind"], UNTRACKED))).as_py()
        rows = rows.filter(pc.greater(rows["offset"], untracked or 0))
        starts = rows.filter(pc.equal(rows["kind"], SNAPSHOT))
        ends = rows.filter(pc.equal(rows["kind"], SNAPSHOT_END))
        ends = ends.filter(pc.is_in(ends["seq"], starts["seq"]))
        return min(micros(ends["written"]).to_pylist(), default=None)

    def _snapshots(self, node: str, begin: int | None, end: int) -> pa.Table:
        """The beginnings of complete snapshots of a node that were written in a range of time."""
        rows = self._tracking(node, begin, end, ["kind", "seq"])
        ends = rows.filter(pc.equal(rows["kind"], SNAPSHOT_END))["seq"]
        return rows.filter(pc.and_(pc.equal(rows["kind"], SNAPSHOT), pc.is_in(rows["seq"], ends)))

    def newest_events(self, sources: Collection[Source], before: int) -> pa.Table:
        """The event with the highest number of each of these sources, on the last day that it published before a time.

        Those of which nothing is archived are left out.
        """
        open_sources, found = set(sources), [ARCHIVE_SCHEMA.empty_table()]
        by_date: dict[str, list[ArchiveFile]] = {}
        for file in self.files():
            if file.kind == EVENTS and file.statistics.begin < before:
                by_date.setdefault(day_of(file.statistics.begin), []).append(file)
        recent = [file for file in self._recent if file.statistics.rows]
        by_date.setdefault(max(by_date, default=""), []).extend(recent)
        for _, files in sorted(by_date.items(), reverse=True):
            if not open_sources:
                break
            plan = ReadPlan(None, before, None, frozenset(open_sources))
            tables = [self._read(file, plan, are_events, None) for file in files]
            rows = pa.concat_tables([ARCHIVE_SCHEMA.empty_table(), *tables])
            rows = rows.sort_by([("seq", "ascending"), ("offset", "ascending")])
            newest = {source: at for at, source in enumerate(_sources_of(rows))}
            found.append(rows.take(pa.array(sorted(newest.values()), pa.int64())))
            open_sources -= newest.keys()
        return pa.concat_tables(found)

    def _tracking(
        self, node: str, begin: int | None, end: int | None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Tracking records of a node that were written in a range of time; by offset."""
        tables = [ARCHIVE_SCHEMA.empty_table() if columns is None else _empty(columns)]
        for file in self.files():
            if file.kind != EVENTS:
                rows = self._read(file, ReadPlan(begin, end), are_tracking, columns)
                tables.append(rows.filter(pc.equal(rows["node"], node)))
        return pa.concat_tables(tables).sort_by("offset")

    def _read(self, file: ArchiveFile, plan: ReadPlan, are_wanted: Kinds, columns: Sequence[str] | None) -> pa.Table:
        return read_file(self._storage, file, plan, self.erasures, are_wanted, columns, self.counts)

    def _hint(self, node: str) -> str:
        ranges = [f"{iso(each.begin)} to {iso(each.end)}" for each in self._coverage.get(node, ())]
        return f"the archive has {node} from {', '.join(ranges)}" if ranges else f"it has nothing of {node}"


def read_file(
    storage: Storage,
    file: ArchiveFile,
    plan: ReadPlan,
    erasures: Sequence[Erasure] = (),
    are_wanted: Kinds = are_events,
    columns: Sequence[str] | None = None,
    counts: ReadCounts | None = None,
) -> pa.Table:
    """The rows of a file that are wanted: of these kinds, in the plan, not erased. Raises CorruptionError."""
    counts = counts or ReadCounts()
    read = None if columns is None else list(dict.fromkeys([*columns, *_NEEDED]))
    if not _may_match(file, plan):
        counts.files_pruned += 1
        return _empty(read)
    opened = open_parquet(storage, file.name)
    if opened is None:
        raise CorruptionError(
            "the file is missing", where=f"{storage.url}/{file.name}", hint="open the archive again, or restore it"
        )
    try:
        groups = _groups_with(storage, file.name, _matching_groups(opened, plan), plan)
        counts.files += 1
        counts.row_groups += len(groups)
        counts.row_groups_pruned += opened.metadata.num_row_groups - len(groups)
        rows = opened.read_row_groups(groups, read) if groups else _empty(read)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptionError(
            f"unreadable: {error}", where=f"{storage.url}/{file.name}", hint="restore it from a backup"
        ) from error
    counts.rows += rows.num_rows
    schema = _empty(read).schema
    rows = rows.select(schema.names).cast(schema)
    return erase(rows.filter(_wanted(rows, plan, are_wanted)), erasures)


def _empty(columns: Sequence[str] | None) -> pa.Table:
    if columns is None:
        return ARCHIVE_SCHEMA.empty_table()
    names = dict.fromkeys([*columns, *_NEEDED])
    return pa.schema([ARCHIVE_SCHEMA.field(name) for name in names]).empty_table()


def _may_match(file: ArchiveFile, plan: ReadPlan) -> bool:
    has = file.statistics
    if not has.rows:
        return False
    return _overlaps(plan, has.begin, has.end, has.box if file.kind == EVENTS else None)


def _overlaps(plan: ReadPlan, begin: int, end: int, box: Box | None) -> bool:
    if (plan.begin is not None and end < plan.begin) or (plan.end is not None and begin >= plan.end):
        return False
    if plan.box is None or box is None:
        return True
    west, south, east, north = plan.box
    if box.min_y > north or box.max_y < south:
        return False
    return box.max_x >= west or box.min_x <= east if west > east else box.max_x >= west and box.min_x <= east


def _matching_groups(file: pq.ParquetFile, plan: ReadPlan) -> list[int]:
    """The row groups that may have rows of the plan, by their statistics."""
    metadata = file.metadata
    names = {metadata.schema.column(at).path: at for at in range(len(metadata.schema))}
    groups = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        written, x, y = (group.column(names[name]).statistics for name in ("written", "x", "y"))
        has_box = x is not None and x.has_min_max and y.has_min_max
        box = Box(x.min, y.min, x.max, y.max) if has_box and x.null_count == 0 else None
        times = [round(time.timestamp() * 1e6) for time in (written.min, written.max)]
        if _overlaps(plan, times[0] - 1, times[1] + 1, box):  # as floats, times are not exact
            groups.append(number)
    return groups


def _groups_with(storage: Storage, name: str, groups: list[int], plan: ReadPlan) -> list[int]:
    """Those of some row groups that have sources of the plan. Only one column is read for that."""
    if plan.sources is None or not groups:
        return groups
    file = open_parquet(storage, name, dictionaries=["entity"])
    if file is None:
        return groups
    wanted = _entities_of(plan.sources)
    found = [
        pc.fill_null(pc.take(pc.is_in(chunk.dictionary, wanted), chunk.indices), False).to_numpy(zero_copy_only=False)
        for chunk in file.read_row_groups(groups, ["entity"])["entity"].chunks
    ]
    rows = [file.metadata.row_group(group).num_rows for group in groups]
    hits = np.logical_or.reduceat(np.concatenate(found), np.cumsum([0, *rows[:-1]]))
    return [group for group, hit in zip(groups, hits.tolist(), strict=True) if hit]


def _entities_of(sources: Collection[Source]) -> pa.Array:
    """The names that they have in journals."""
    return pa.array(sorted({name for home, id in sources for name in (id, f"{id}@{home}")}), pa.string())


def _wanted(rows: pa.Table, plan: ReadPlan, are_wanted: Kinds) -> pa.ChunkedArray:
    wanted = are_wanted(rows["kind"])
    written = micros(rows["written"])
    if plan.begin is not None:
        wanted = pc.and_(wanted, pc.greater_equal(written, plan.begin))
    if plan.end is not None:
        wanted = pc.and_(wanted, pc.less(written, plan.end))
    if plan.box is not None:
        x, y = (pc.fill_null(rows[name], float("nan")).to_numpy() for name in ("x", "y"))
        wanted = pc.and_(wanted, pa.chunked_array([pa.array(contains(*plan.box, x, y))]))
    if plan.sources is not None:
        wanted = pc.and_(wanted, pc.is_in(rows["entity"], _entities_of(plan.sources)))
        candidates = np.flatnonzero(wanted.to_numpy())
        of_plan = [source in plan.sources for source in _sources_of(rows.take(pa.array(candidates)))]
        exact = np.zeros(rows.num_rows, np.bool_)
        exact[candidates[np.array(of_plan, np.bool_)]] = True
        wanted = pa.chunked_array([pa.array(exact)])
    return wanted


def _sources_of(rows: pa.Table) -> list[Source]:
    pairs = zip(rows["node"].to_pylist(), rows["entity"].to_pylist(), strict=True)
    return [(entity.partition("@")[2] or node, entity.partition("@")[0]) for node, entity in pairs]


def _first_copies(rows: pa.Table) -> pa.ChunkedArray:
    """The offsets of records, without those that say the same as an earlier one."""
    return rows.group_by(_COPY_KEY).aggregate([("offset", "min")])["offset_min"]
