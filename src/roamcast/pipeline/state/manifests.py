"""The state by batch number: the manifest of a batch names the files that hold the state after it.

    state/<batch>.json   manifests, the last two
    state/parts/         immutable parts of tables (see `parts`)
    state/segments/      immutable segments of the index, and files of the moving regions

Publishing manifest N commits batch N. Until then a crash repeats N from the state after N-1. A manifest has a checksum,
as has everything it names.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.checked_json import pack, unpack
from roamcast.durable import make_folder, storage_errors, write_atomic
from roamcast.errors import CorruptionError
from roamcast.match.index.lsm import IndexStore
from roamcast.match.index.segments import file_name
from roamcast.match.routing.router import RoutingTables
from roamcast.pipeline.schemas import BINDINGS, SHARDED_TABLES, SUBSCRIPTIONS, TABLES, StateTable
from roamcast.pipeline.state.hashing import shards_of
from roamcast.pipeline.state.index_state import IndexState, assign_handles
from roamcast.pipeline.state.index_updater import IndexUpdater
from roamcast.pipeline.state.moving_regions import MovingRegionFiles, MovingRegionState
from roamcast.pipeline.state.parts import RESTORE_HINT, Part, PartFolder, newest_rows
from roamcast.pipeline.state.shared_state import SharedState
from roamcast.pipeline.state.state_rows import StateRows

__all__ = ["BEFORE_FIRST", "FORMAT", "Manifest", "StateFolder", "shard_name", "split_rows"]

log = logging.getLogger(__name__)

FORMAT: Final = "roamcast-state/13"
BEFORE_FIRST: Final = -1
"""The batch number of the state that a new pipeline starts with."""
_KEPT: Final = 2
_NUMBER: Final = re.compile(r"-1|\d+")


@dataclass(frozen=True, slots=True)
class Manifest:
    """The state of a pipeline after `batch`. Counters run since the pipeline was created.

    `tables` has a stack of parts for each table, and one for each of the `shards` of a table that is divided (see
    `shard_name`). `moving_regions` are the files of the moving regions of each space, without trails. `history` says
    how long the next batch keeps ended bindings, in microseconds (None: for good): all attempts at it do the same.
    """

    pipeline: str
    batch: int = BEFORE_FIRST
    tables: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    index: IndexState = field(default_factory=IndexState)
    moving_regions: tuple[MovingRegionFiles, ...] = ()
    shards: int = 1
    history: int | None = None

    def parts(self, table: StateTable) -> tuple[Part, ...]:
        """All parts of a table. Those of different shards have different keys."""
        names = [shard_name(table, shard) for shard in range(self.shards)] if table.shard_by else [table.name]
        return tuple(part for name in names for part in self.tables.get(name, ()))


class StateFolder:
    """The folder with manifests, parts and segments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shared: SharedState | None = None
        """Where manifests are published first, if another host is to continue from them."""
        self.parts = PartFolder(folder / "parts")
        self.segments = folder / "segments"
        self.index = IndexStore(self.segments)
        self.updater = IndexUpdater(self.index, RoutingTables(self.segments), self.parts)

    def create(
        self, pipeline: str, inherited: Mapping[str, pa.Table], regions: MovingRegionState | None = None
    ) -> None:
        """Create the state before the first batch, with the rows `inherited` from an earlier pipeline, by table name.

        `regions` are the moving regions among the subscriptions, by their handles.
        """
        make_folder(self.parts.folder)
        make_folder(self.segments)
        rows = {table: inherited[table.name] for table in TABLES if table.name in inherited}
        index, moving = IndexState(), (regions or MovingRegionState.empty()).anchor()
        if SUBSCRIPTIONS in rows:
            rows[SUBSCRIPTIONS] = assign_handles(rows[SUBSCRIPTIONS], 0)
            index = self.updater.update(index, rows[SUBSCRIPTIONS], moving.boxes, StateRows.empty())
        names = {t: shard_name(t, 0) if t.shard_by else t.name for t in rows}
        tables = {names[t]: self.parts.push(t, (), rows[t]) for t in rows if rows[t].num_rows}
        live = {t.name: rows[t]["until"].null_count for t in (SUBSCRIPTIONS, BINDINGS) if t in rows}
        counters = {name: count for name, count in live.items() if count}
        files = moving.save(self.segments)
        self.publish(Manifest(pipeline, tables=tables, index=index, counters=counters, moving_regions=files))

    def open_regions(self, manifest: Manifest) -> MovingRegionState:
        """The moving regions of a published state."""
        if not manifest.moving_regions:
            return MovingRegionState.empty()
        tables = [SUBSCRIPTIONS.schema.empty_table()]
        tables += [self.parts.read(SUBSCRIPTIONS, part) for part in manifest.parts(SUBSCRIPTIONS)]
        moving = [rows.filter(pc.is_valid(rows["moving_radius"])) for rows in tables]
        newest = newest_rows(SUBSCRIPTIONS, pa.concat_tables(moving))
        return MovingRegionState.open(self.segments, manifest.moving_regions, newest)

    def read_table(self, manifest: Manifest, table: StateTable) -> pa.Table:
        """All current rows of a table."""
        return self.parts.read_all(table, manifest.parts(table))

    def divide(self, manifest: Manifest, shards: int) -> Manifest:
        """The same state with this number of shards. Its files are durable. Rows are read a shard at a time."""
        if shards == manifest.shards:
            return manifest
        sharded = {shard_name(table, shard) for table in SHARDED_TABLES for shard in range(manifest.shards)}
        tables = {name: parts for name, parts in manifest.tables.items() if name not in sharded}
        for table in SHARDED_TABLES:
            for before in range(manifest.shards):
                rows = self.parts.read_all(table, manifest.tables.get(shard_name(table, before), ()))
                for shard, those in split_rows(table, rows, shards):
                    name = shard_name(table, shard)
                    tables[name] = self.parts.push(table, tables.get(name, ()), those)
        return replace(manifest, tables=tables, shards=shards)

    def open_rows(self, manifest: Manifest) -> StateRows:
        return StateRows(self.parts.folder, manifest.tables)

    def newest(self) -> Manifest | None:
        """The manifest that was published last; None if there is none. Raises CorruptionError."""
        batches = self._batches() if self.folder.is_dir() else []
        return self._read(batches[-1]) if batches else None

    def publish(self, manifest: Manifest) -> None:
        """Make `manifest` the newest one durably, then delete files that only older ones name."""
        content = _pack(manifest)
        if self.shared is not None:
            self.shared.publish(manifest.batch, content, self.file_names(manifest))
        write_atomic(self._path(manifest.batch), content)
        self._sweep(manifest)

    def share(self, shared: SharedState) -> None:
        """Publish the newest manifest there, as it is here."""
        manifest = self.newest()
        if manifest is not None:
            shared.publish(manifest.batch, _pack(manifest), self.file_names(manifest))

    def file_names(self, manifest: Manifest) -> list[str]:
        """The files that a manifest names, relative to this folder."""
        parts, others = _named_files(manifest)
        segments = [name for ref in manifest.index.segments for name in (ref.segment, ref.tombstones) if name]
        folders = {self.parts.folder.name: parts, self.segments.name: map(file_name, {*segments, *others})}
        return sorted(f"{folder}/{name}" for folder, names in folders.items() for name in set(names))

    def nbytes(self) -> int:
        """The size of all files."""
        with storage_errors(self.folder):
            folders = (self.folder, self.parts.folder, self.segments)
            return sum(path.stat().st_size for folder in folders for path in folder.iterdir() if path.is_file())

    def _sweep(self, newest: Manifest) -> None:
        batches = [batch for batch in self._batches() if batch <= newest.batch]
        with storage_errors(self.folder):
            for batch in batches[:-_KEPT]:
                self._path(batch).unlink(missing_ok=True)
        try:
            kept = [newest, *(self._read(batch) for batch in batches[-_KEPT:] if batch != newest.batch)]
        except CorruptionError as error:  # of an older state, which nothing else needs
            log.warning("not deleting old state files after this batch: %s", error)
            return
        parts, others = zip(*map(_named_files, kept), strict=True)
        self.parts.sweep(frozenset(chain.from_iterable(parts)))
        segments = (segment for manifest in kept for segment in manifest.index.segments)
        self.index.sweep(segments, chain.from_iterable(others))

    def _batches(self) -> list[int]:
        return sorted(int(path.stem) for path in self.folder.glob("*.json") if _NUMBER.fullmatch(path.stem))

    def _path(self, batch: int) -> Path:
        return self.folder / f"{batch}.json"

    def _read(self, batch: int) -> Manifest:
        path = self._path(batch)
        with storage_errors(path):
            written = path.read_bytes()
        try:
            content = unpack(written, FORMAT)
            if content["batch"] != batch:
                raise ValueError(f"it is of batch {content['batch']}")
            tables = {name: tuple(Part(**part) for part in parts) for name, parts in content["tables"].items()}
            index = IndexState.from_json(content["index"])
            regions = tuple(MovingRegionFiles(**files) for files in content["moving_regions"])
            counters, shards, history = content["counters"], content["shards"], content["history"]
            return Manifest(content["pipeline"], content["batch"], tables, counters, index, regions, shards, history)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptionError(
                f"the manifest of batch {batch} is unreadable: {error}", where=str(path), hint=RESTORE_HINT
            ) from error


def shard_name(table: StateTable, shard: int) -> str:
    """The name of the stack of a shard among the tables of a manifest."""
    return f"{table.name}/{shard}"


def split_rows(table: StateTable, rows: pa.Table, shards: int) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each shard that has some."""
    if shards == 1 or not rows.num_rows:
        yield from [(0, rows)] if rows.num_rows else []
        return
    shard = shards_of([rows.column(name).combine_chunks() for name in table.shard_by], shards)
    for number in np.unique(shard).tolist():
        yield number, rows.filter(pa.array(shard == number))


def _pack(manifest: Manifest) -> bytes:
    content = {
        "pipeline": manifest.pipeline,
        "batch": manifest.batch,
        "shards": manifest.shards,
        "history": manifest.history,
        "tables": {name: [part._asdict() for part in parts] for name, parts in manifest.tables.items()},
        "index": manifest.index.to_json(),
        "moving_regions": [files._asdict() for files in manifest.moving_regions],
        "counters": dict(manifest.counters),
    }
    return pack(FORMAT, content, indent=True)


def _named_files(manifest: Manifest) -> tuple[list[str], list[str]]:
    """The names of the parts that a manifest names, and the checksums of its files in `segments/` but the segments."""
    sharded = manifest.index.sharded
    parts = [part.name for stack in manifest.tables.values() for part in stack]
    others = [name for files in manifest.moving_regions for name in files.names]
    if sharded is not None:
        parts += [part.name for shard in sharded.shards for part in shard.rows]
        parts += [part.name for table in sharded.partitioning.tables.values() for part in table]
        others += [routes.table for routes in sharded.routes]
    return parts, others
