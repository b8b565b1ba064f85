"""The outbox: files in which the pipeline leaves letters for each office.

    outbox/status.json                          which pipeline writes here, and its progress
    outbox/<office>/<batch>-<pipeline>.parquet  the letters of one batch to one office
    outbox/<node>@<link>/…                      events of sources of a node that another data folder wants

Batch files appear in order and complete. Writing batch N again replaces it with the same letters. The pipeline is part
of the name because every pipeline counts its batches from 0. An office reads the lowest batch first and removes it once
its letters are stored. Reading one twice is harmless: mailboxes drop letters that they have already received.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from roamcast.durable import make_folder, storage_errors, write_atomic
from roamcast.errors import CorruptionError
from roamcast.failures import wall_time
from roamcast.model import Letter

__all__ = ["FORMAT", "LETTERS_SCHEMA", "Outbox", "PipelineStatus"]

FORMAT = "roamcast-outbox/5"

LETTERS_SCHEMA = pa.schema(
    [
        pa.field("receiver", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("body", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """The pipeline's identity, the last batch it committed, and its counters since it was created.

    `metrics` and `step_seconds` describe that batch alone: its sizes and the duration of each step. `read_offsets` has
    the last offset read from each node's journal.

    The pipeline writes its status after every batch and every few seconds, so `written_at` is its last heartbeat.
    While a batch runs, `running_batch` is its number and `running_since` its beginning; `waiting_for_storage` is why it
    cannot go on, if a disk or the shared storage fails. `dead_letters` counts the
    records in the dead letter files, the oldest of which was written at `dead_letters_since`. Times are microseconds
    since 1970, by the clock of the pipeline's host. `partitioning` shows the shards of a partitioned index, see
    `pipeline.query.partitioning_status`. Since this process started, `batches_by_jobs` were matched by Spark jobs, and
    `batches_here`, which were small or had no events, in the driver.
    """

    pipeline: str
    batch: int
    counters: Mapping[str, int]
    metrics: Mapping[str, float] = field(default_factory=dict)
    step_seconds: Mapping[str, float] = field(default_factory=dict)
    read_offsets: Mapping[str, int] = field(default_factory=dict)
    written_at: int = field(default_factory=wall_time)
    running_batch: int | None = None
    running_since: int | None = None
    dead_letters: int = 0
    dead_letters_since: int | None = None
    partitioning: Mapping[str, Any] | None = None
    batches_by_jobs: int = 0
    batches_here: int = 0
    waiting_for_storage: str | None = None


class Outbox:
    """One folder with one writing pipeline and any number of reading offices."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.status_path = folder / "status.json"

    def put(self, office: str, pipeline: str, batch: int, letters: pa.Table) -> None:
        """Write the letters of `batch` for `office` durably, replacing an earlier attempt at the same batch."""
        folder = self.folder_of(office)
        metadata = {"format": FORMAT, "pipeline": pipeline, "batch": str(batch)}
        buffer = pa.BufferOutputStream()
        table = letters.cast(LETTERS_SCHEMA.with_metadata(metadata))
        pq.write_table(table, buffer, compression="zstd", write_page_checksum=True)
        make_folder(folder)
        write_atomic(folder / f"{batch:020d}-{pipeline}.parquet", memoryview(buffer.getvalue()))

    def folder_of(self, office: str) -> Path:
        """The folder of the batch files for `office`."""
        return self._folder / office

    def links_of(self, node: str) -> list[str]:
        """The offices `<node>@<link>` that have a folder."""
        return sorted(folder.name for folder in self._folder.glob(f"{node}@*"))

    def changed_at(self, office: str) -> int | None:
        """When a batch file for `office` last appeared or was removed, in nanoseconds since 1970; None for never."""
        try:
            return self.folder_of(office).stat().st_mtime_ns
        except OSError:
            return None

    def written_at(self, path: Path) -> int:
        """When a batch file was written, in nanoseconds since 1970."""
        with storage_errors(path):
            return path.stat().st_mtime_ns

    def waiting(self, office: str) -> list[Path]:
        """The batch files for `office`, lowest first."""
        folder = self.folder_of(office)
        return sorted(folder.glob("*.parquet")) if folder.is_dir() else []

    def fullest(self) -> tuple[str, int]:
        """The office with the most waiting batches, and how many; ("", 0) if there are none. Links do not count."""
        if not self._folder.is_dir():
            return "", 0
        offices = [folder.name for folder in self._folder.iterdir() if folder.is_dir() and "@" not in folder.name]
        counts = [(len(self.waiting(office)), office) for office in offices]
        count, office = max(counts, default=(0, ""))
        return office, count

    def read(self, path: Path, name_of: Callable[[str], str] = str) -> list[Letter]:
        """The letters of one batch file, in the order they were written. Raises CorruptionError.

        `name_of` turns a receiver's id, as the pipeline knows it, into the receiver of the letter.
        """
        with storage_errors(path):
            content = path.read_bytes()
        try:
            table = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True).read(use_threads=False)
            metadata = table.schema.metadata or {}
            if metadata.get(b"format") != FORMAT.encode() or not table.schema.equals(LETTERS_SCHEMA):
                raise pa.ArrowInvalid(f"format {metadata.get(b'format')!r}, columns {table.schema.names}")
            sender = metadata[b"pipeline"].decode()
            ids, numbers, bodies = (table.column(name).to_pylist() for name in LETTERS_SCHEMA.names)
        except (pa.ArrowException, OSError, LookupError, UnicodeError) as error:
            raise CorruptionError(
                f"not a readable {FORMAT} file: {error}",
                where=str(path),
                hint="restore it from a backup: its letters exist nowhere else",
            ) from error
        names = {id: name_of(id) for id in set(ids)}
        return [Letter(names[id], sender, number, body) for id, number, body in zip(ids, numbers, bodies, strict=True)]

    def remove(self, path: Path) -> None:
        """Remove a batch file whose letters are stored."""
        with storage_errors(path):
            path.unlink(missing_ok=True)

    def write_status(self, status: PipelineStatus) -> None:
        """Replace the status file atomically. It is not synced, which keeps this cheap."""
        make_folder(self._folder)
        write_atomic(self.status_path, orjson.dumps({"format": FORMAT, **asdict(status)}), durable=False)

    def read_status(self) -> PipelineStatus | None:
        """The status of the pipeline that writes here; None if there is none yet. Raises CorruptionError."""
        path = self.status_path
        if not path.exists():
            return None
        with storage_errors(path):
            content = path.read_bytes()
        if not content.strip(b"\0"):
            return None  # a power cut may leave an unsynced file empty; the pipeline soon writes it again
        try:
            values = orjson.loads(content)
            if values.pop("format") != FORMAT:
                raise ValueError(f"not {FORMAT}")
            if missing := {each.name for each in fields(PipelineStatus)} - values.keys():
                raise ValueError(f"without {', '.join(sorted(missing))}")
            return PipelineStatus(**values)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise CorruptionError(
                f"not a {FORMAT} status file: {error}",
                where=str(path),
                hint="remove it; the pipeline writes it again",
            ) from error
