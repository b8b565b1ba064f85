"""The state by batch number: a manifest for each batch names the parts that hold the state after it.

    state/<batch>.json   manifest, the last two
    state/parts/         immutable parts of tables (see `parts`)
    state/segments/      immutable segments of the index, and where moving regions are (see `match.segments`)

Publishing manifest N is the moment at which batch N has happened. Until then a crash repeats N from N-1. A manifest has
a checksum, as everything it names has: what was altered is never taken for a state.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.durable import make_folder, storage_errors, write_atomic
from roamcast.errors import CorruptionError
from roamcast.match.index.lsm import IndexStore, SegmentRef
from roamcast.match.routing.router import RoutingTables
from roamcast.pipeline.schemas import BINDINGS, POSITIONS, SUBSCRIPTIONS, TABLES
from roamcast.pipeline.state.indexing import Indexed, index_changes, with_handles
from roamcast.pipeline.state.moving_regions import Regions
from roamcast.pipeline.state.parts import Part, PartFolder, newest_rows
from roamcast.pipeline.state.shards import Arranger, Partition

__all__ = ["FORMAT", "Manifest", "StateFolder"]

log = logging.getLogger(__name__)

FORMAT = "roamcast-state/7"
BEFORE_FIRST = -1
_KEPT = 2
_NUMBER = re.compile(r"-1|\d+")


@dataclass(frozen=True, slots=True)
class Manifest:
    """The state after `batch`, of one pipeline. Counters run since that pipeline was new.

    `regions` are the files of the moving regions, by space. With a `partition` the index is in its shares.
    """

    pipeline: str
    batch: int = BEFORE_FIRST
    tables: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    index: Indexed = field(default_factory=Indexed)
    regions: Mapping[str, str] = field(default_factory=dict)
    partition: Partition | None = None

    @property
    def layers(self) -> tuple[SegmentRef, ...]:
        """The segments of the index, of all workers."""
        return (*self.index.stack, *(self.partition.layers if self.partition else ()))

    def parts(self, table: str) -> tuple[Part, ...]:
        return self.tables.get(table, ())


class StateFolder:
    """Where manifests and parts lie."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts = PartFolder(folder / "parts")
        self.segments = folder / "segments"
        self.layers = IndexStore(self.segments)
        self.arranger = Arranger(self.layers, RoutingTables(self.segments), self.parts)

    def create(self, pipeline: str, inherited: Mapping[str, pa.Table]) -> None:
        """The state before the first batch, with the rows `inherited` from an earlier pipeline, by table name.

        `positions` among them has POSITIONS: where the subscribers of moving regions are.
        """
        make_folder(self.parts.folder)
        make_folder(self.segments)
        rows = {table: inherited[table.name] for table in TABLES if table.name in inherited}
        index, regions = Indexed(), Regions.none()
        if SUBSCRIPTIONS in rows:
            rows[SUBSCRIPTIONS] = with_handles(_without_handles(rows[SUBSCRIPTIONS]), 0)
            told = regions.after(rows[SUBSCRIPTIONS], inherited.get("positions", POSITIONS.empty_table()))
            index = index_changes(self.layers, index, rows[SUBSCRIPTIONS], told.boxes)
            regions = told.regions
        tables = {t.name: self.parts.push(t, (), rows[t]) for t in rows if rows[t].num_rows}
        live = {t.name: rows[t]["until"].null_count for t in (SUBSCRIPTIONS, BINDINGS) if t in rows}
        counters = {name: count for name, count in live.items() if count}
        versions = regions.versions(self.segments)
        self.publish(Manifest(pipeline, tables=tables, index=index, counters=counters, regions=versions))

    def regions(self, manifest: Manifest) -> Regions:
        """The moving regions of a state that was published."""
        if not manifest.regions:
            return Regions.none()
        rows = [self.parts.read(SUBSCRIPTIONS, part) for part in manifest.parts(SUBSCRIPTIONS.name)]
        around = [some.filter(pc.is_valid(some["around"])) for some in [SUBSCRIPTIONS.schema.empty_table(), *rows]]
        return Regions.open(self.segments, manifest.regions, newest_rows(SUBSCRIPTIONS, pa.concat_tables(around)))

    def newest(self) -> Manifest | None:
        """The last state that was published; None where there is none."""
        batches = self._batches()
        return self._read(batches[-1]) if batches else None

    def publish(self, manifest: Manifest) -> None:
        """Make `manifest` the newest, durably; then forget what only older ones refer to."""
        content = {
            "format": FORMAT,
            "pipeline": manifest.pipeline,
            "batch": manifest.batch,
            "tables": {name: [part._asdict() for part in parts] for name, parts in manifest.tables.items()},
            "index": {**manifest.index._asdict(), "stack": [layer._asdict() for layer in manifest.index.stack]},
            "partition": manifest.partition.to_json() if manifest.partition else None,
            "regions": dict(manifest.regions),
            "counters": dict(manifest.counters),
        }
        whole = {"checksum": _checksum(content), **content}
        write_atomic(self._path(manifest.batch), orjson.dumps(whole, option=orjson.OPT_INDENT_2))
        self._sweep(manifest)

    def nbytes(self) -> int:
        """The size of all that lies here."""
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
        except CorruptionError as error:  # of a state that was needed for nothing else
            log.warning("nothing is cleared away in this batch: %s", error)
            return
        partitions = [m.partition for m in kept if m.partition]
        shared = (part.name for each in partitions for share in each.shares for part in share.rows)
        parts = (part.name for m in kept for table in TABLES for part in m.parts(table.name))
        self.parts.sweep(frozenset([*parts, *shared]))
        versions = (version for m in kept for version in m.regions.values())
        tables = (routes.table for each in partitions for routes in each.routes)
        self.layers.sweep((layer for m in kept for layer in m.layers), [*versions, *tables])

    def _batches(self) -> list[int]:
        return sorted(int(path.stem) for path in self.folder.glob("*.json") if _NUMBER.fullmatch(path.stem))

    def _path(self, batch: int) -> Path:
        return self.folder / f"{batch}.json"

    def _read(self, batch: int) -> Manifest:
        path = self._path(batch)
        with storage_errors(path):
            written = path.read_bytes()
        try:
            content = orjson.loads(written)
            if content["format"] != FORMAT:
                raise ValueError(f"format {content['format']!r}, not {FORMAT!r}")
            if content.pop("checksum") != _checksum(content):
                raise ValueError("it was altered")
            if content["batch"] != batch:
                raise ValueError(f"it is of batch {content['batch']}")
            tables = {name: tuple(Part(**part) for part in parts) for name, parts in content["tables"].items()}
            index = content["index"]
            stack = tuple(SegmentRef(**layer) for layer in index["stack"])
            indexed = Indexed(stack, tuple(index["leaving"]), index["handles"])
            regions = dict(content["regions"])
            partition = Partition.from_json(content["partition"])
            return Manifest(
                content["pipeline"], content["batch"], tables, content["counters"], indexed, regions, partition
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptionError(
                f"the manifest of batch {batch} is unreadable: {error}",
                where=str(path),
                hint="restore the whole pipeline folder, or start a new pipeline with --new",
            ) from error


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(content)).hexdigest()


def _without_handles(rows: pa.Table) -> pa.Table:
    """Those of another index mean nothing here."""
    return rows.set_column(rows.schema.get_field_index("handle"), "handle", pa.nulls(rows.num_rows, pa.int64()))
