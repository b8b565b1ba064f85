"""Recent files: the records of one batch each. They are written with the batch, and wait to be compacted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.archive.erasures import erasures_of
from roamcast.archive.files import (
    ARCHIVE_SCHEMA,
    RECENT,
    Statistics,
    encode,
    open_parquet,
    read_metadata,
    split_recent_name,
)
from roamcast.archive.versions import Coverage, Erasure, Version
from roamcast.journal.records import RECORD_SCHEMA, are_events, are_tracking
from roamcast.storage.port import Storage

__all__ = [
    "RecentFile",
    "RecentMetadata",
    "WrittenTimes",
    "archived_rows",
    "encode_recent",
    "recent_files",
    "recent_metadata",
]

WrittenTimes: TypeAlias = Mapping[str, Sequence[tuple[int, int]]]
"""By node: for consecutive segments, the last offset, and when it was written, in microseconds. None decreases."""


class RecentFile(NamedTuple):
    """The file of a batch: its number in the archive, that of its pipeline, and when the file was written (ns)."""

    number: int
    pipeline: str
    batch: int
    name: str
    size: int
    written_at: int


class RecentMetadata(NamedTuple):
    """What a batch brings: the offsets of each node, those without records for the archive included, and erasures.

    `statistics` are of all its rows.
    """

    coverage: Mapping[str, Coverage]
    erasures: Sequence[Erasure]
    statistics: Statistics

    def to_json(self) -> dict[str, Any]:
        return {
            "coverage": {node: list(each) for node, each in self.coverage.items()},
            "erasures": [list(each) for each in self.erasures],
            "statistics": self.statistics.to_json(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        coverage = {node: Coverage(*each) for node, each in values["coverage"].items()}
        erasures = [Erasure(*each) for each in values["erasures"]]
        return cls(coverage, erasures, Statistics.from_json(values["statistics"]))


def recent_files(storage: Storage, version: Version) -> list[RecentFile]:
    """The recent files that count besides what a version has, by number."""
    found = []
    for file in storage.files(RECENT):
        if (name := split_recent_name(file.name)) is None:
            continue
        pipeline, batch = name
        batches = version.pipelines.get(pipeline)
        if batches is not None and batch > batches.compacted:
            found.append(RecentFile(batches.base + batch, pipeline, batch, file.name, file.size, file.written_at))
    return sorted(found)


def recent_metadata(storage: Storage, name: str) -> RecentMetadata | None:
    """What the metadata of a recent file say; None if it is not there any more. Raises CorruptionError."""
    file = open_parquet(storage, name)
    return None if file is None else RecentMetadata.from_json(read_metadata(file))


def archived_rows(
    records: Iterable[pa.RecordBatch],
    written: WrittenTimes,
    number: int,
    *,
    dropped: Mapping[str, Collection[int]],
    archived_through: Mapping[str, int],
) -> pa.Table:
    """Rows of ARCHIVE_SCHEMA for the events and tracking records of a batch, by node and offset.

    Events at `dropped` offsets did not count. What the archive has already through an offset is left out.
    """
    table = pa.Table.from_batches(records, RECORD_SCHEMA)
    table = table.filter(pc.or_(are_events(table["kind"]), are_tracking(table["kind"])))
    parts = [ARCHIVE_SCHEMA.empty_table()]
    for node in sorted(written):
        rows = table.filter(pc.equal(table["node"], node)).sort_by("offset")
        offsets = rows["offset"].to_numpy()
        is_new = offsets > archived_through.get(node, 0)
        if gone := dropped.get(node):
            is_new &= ~np.isin(offsets, np.fromiter(gone, np.int64, len(gone)))
        rows, offsets = rows.filter(pa.array(is_new)), offsets[is_new]
        lasts, times = (np.array(column, np.int64) for column in zip(*written[node], strict=True))
        times = pa.array(times[np.searchsorted(lasts, offsets)]).cast(ARCHIVE_SCHEMA.field("written").type)
        batches = pa.array(np.full(len(offsets), number, np.int64))
        parts.append(pa.Table.from_arrays([*rows.columns, batches, times], schema=ARCHIVE_SCHEMA))
    return pa.concat_tables(parts)


def encode_recent(rows: pa.Table, coverage: Mapping[str, Coverage]) -> bytes:
    """The content of a recent file."""
    return encode(rows, RecentMetadata(coverage, erasures_of(rows), Statistics.of(rows)).to_json())
