"""The outbox: files in which the pipeline leaves letters for each office.

    outbox/status.json                                 which pipeline writes here, and its progress
    outbox/<office>/<batch>-<pipeline>.json            the record of one batch: the files with its letters to one office
    outbox/<office>/letters/<batch>-….parquet          letters, of some of its receivers
    outbox/<node>@<link>/…                             events of sources of a node that another data folder wants

Tasks write letter files, perhaps several times; the driver then writes the record of the batch with those that count.
It removes the others, those of later attempts after the next job, and what is left when the pipeline starts.
An office reads nothing else. Records appear in order. Writing that of batch N again replaces it by one with the same
letters. The pipeline is part of its name because every pipeline counts its batches from 0. An office reads the lowest
batch first and removes it once its letters are stored. Reading one twice is harmless: mailboxes drop letters that they
have already received.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from roamcast.deliver.batch_records import FORMAT, LetterFile, batch_name, damaged, pack_records, parse_record
from roamcast.durable import make_folder, storage_errors, sync_file, sync_folder, write_atomic
from roamcast.errors import CorruptionError, RoamcastError
from roamcast.failures import wall_time
from roamcast.model import Letter

__all__ = ["LETTERS_SCHEMA", "LetterFiles", "Outbox", "PipelineStatus", "letter_path", "pack_status"]

LETTERS_SCHEMA = pa.schema(
    [
        pa.field("receiver", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("body", pa.string(), nullable=False),
    ]
)


_LETTERS = "letters"
_STATUS: Final = "status.json"
_PORTION_LETTERS = 20_000
_PORTION_BYTES = 16 << 20


class LetterFiles:
    """Writes the letters of one attempt at a batch, in a file for each office."""

    def __init__(self, outbox: Path, pipeline: str, batch: int, *, durable: bool = True) -> None:
        """They need not be `durable` if they are copied to where they are."""
        self._outbox = outbox
        self._durable = durable
        self._name = f"{batch_name(pipeline, batch)}-{uuid.uuid4().hex}.parquet"
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._counts: Counter[str] = Counter()

    def write(self, office: str, letters: pa.Table) -> None:
        """Add letters to the file of an office."""
        path = letter_path(self._outbox, office, self._name)
        with storage_errors(path):
            if office not in self._writers:
                make_folder(path.parent)
                schema = LETTERS_SCHEMA.with_metadata({"format": FORMAT})
                self._writers[office] = pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True)
            for portion in _portions(letters.select(LETTERS_SCHEMA.names)):
                self._writers[office].write_table(portion.cast(self._writers[office].schema))
        self._counts[office] += letters.num_rows

    def close(self) -> list[LetterFile]:
        """Complete the files; return them."""
        for office, writer in self._writers.items():
            path = letter_path(self._outbox, office, self._name)
            with storage_errors(path):
                writer.close()
                if self._durable:
                    sync_file(path)
                    sync_folder(path.parent)
        return [LetterFile(office, self._name, count) for office, count in self._counts.items()]


def letter_path(outbox: Path, office: str, name: str) -> Path:
    """Where a letter file is."""
    return outbox / office / _LETTERS / name


def _portions(letters: pa.Table) -> Iterator[pa.Table]:
    """In order, and small enough to be read one by one."""
    size = np.cumsum(pc.binary_length(letters["body"]).to_numpy(), dtype=np.int64)
    begin = 0
    while begin < letters.num_rows:
        before = int(size[begin - 1]) if begin else 0
        end = int(np.searchsorted(size, before + _PORTION_BYTES, "right"))
        end = min(max(end, begin + 1), begin + _PORTION_LETTERS)
        yield letters.slice(begin, end - begin)
        begin = end


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """The pipeline's identity, the last batch it committed, and its counters since it was created.

    `metrics` and `step_seconds` describe that batch alone: its sizes and the duration of each step. `read_offsets` has
    the last offset read from each node's journal.

    The pipeline writes its status after every batch and every few seconds, so `written_at` is its last heartbeat.
    While a batch runs, `running_batch` is its number and `running_since` its beginning; `waiting_for_storage` is why it
    cannot go on, if a disk or the shared storage fails. `dead_letters` counts the records in the dead letter files, the
    oldest of which was written at `dead_letters_since`. Times are microseconds since 1970, by the clock of the
    pipeline's host. `partitioning` shows the shards of a partitioned index, see `pipeline.query.partitioning_status`.
    Since this process started, `batches_by_jobs` were matched by Spark jobs, and `batches_here`, which were small or
    had no events, in the driver. `archive` is that of `pipeline.query.archiving`; None without an archive.
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
    archive: Mapping[str, Any] | None = None


class Outbox:
    """One folder with one writing pipeline and any number of reading offices."""

    def __init__(self, folder: Path, status: str = _STATUS) -> None:
        """`status` is the name of the status file."""
        self.folder = folder
        self.status_path = folder / status

    def put(self, office: str, pipeline: str, batch: int, letters: pa.Table) -> None:
        """Write a batch durably whose letters are all for one office, replacing an earlier attempt at it."""
        files = LetterFiles(self.folder, pipeline, batch)
        files.write(office, letters)
        written = files.close()
        self.commit(pipeline, batch, written)
        self.sweep_attempts(pipeline, batch, written)

    def commit(self, pipeline: str, batch: int, files: Sequence[LetterFile]) -> None:
        """Write the record of a batch for each office, replacing that of an earlier attempt."""
        for record in pack_records(pipeline, batch, files):
            write_atomic(self.folder_of(record.office) / record.name, record.content)

    def sweep(self) -> None:
        """Remove letter files that no record names. No pipeline may be writing."""
        for record, files in groupby(sorted(self.folder.glob(f"*/{_LETTERS}/*")), _record_of):
            named = _names_in(record)
            for path in files:
                if named is not None and path.name not in named:
                    self._remove_file(path)

    def sweep_attempts(self, pipeline: str, batch: int, files: Sequence[LetterFile]) -> None:
        """Remove the files of a batch but these, and those of earlier batches without a record.

        Tasks of an earlier batch may have written some after it was committed.
        """
        names = {file.name for file in files}
        for folder in self.folder.glob(f"*/{_LETTERS}"):
            waiting = set(self.waiting(folder.parent.name))
            for path in folder.glob(f"*-{pipeline}-*"):
                record = _record_of(path)
                number, _, sender = record.stem.partition("-")
                if sender != pipeline or int(number) > batch:
                    continue
                if path.name not in names if int(number) == batch else record not in waiting:
                    self._remove_file(path)

    def check(self, node: str) -> None:
        """Raises CorruptionError if letters of this node or its links are in an earlier format: nobody reads them."""
        for folder in (self.folder_of(node), *map(self.folder_of, self.links_of(node))):
            for path in folder.glob("*.parquet"):
                hint = "read it with the version of roamcast that wrote it"
                raise CorruptionError("letters in the format of an earlier version", where=str(path), hint=hint)

    def folder_of(self, office: str) -> Path:
        """The folder of the batches for `office`."""
        return self.folder / office

    def links_of(self, node: str) -> list[str]:
        """The offices `<node>@<link>` that have a folder."""
        return sorted(folder.name for folder in self.folder.glob(f"{node}@*"))

    def changed_at(self, office: str) -> int | None:
        """When a batch for `office` last appeared or was removed, in nanoseconds since 1970; None for never."""
        try:
            return self.folder_of(office).stat().st_mtime_ns
        except OSError:
            return None

    def written_at(self, path: Path) -> int:
        """When the record of a batch was written, in nanoseconds since 1970."""
        with storage_errors(path):
            return path.stat().st_mtime_ns

    def waiting(self, office: str) -> list[Path]:
        """The records of batches for `office`, lowest first."""
        folder = self.folder_of(office)
        return sorted(folder.glob("*.json")) if folder.is_dir() else []

    def fullest(self) -> tuple[str, int]:
        """The office with the most waiting batches, and how many; ("", 0) if there are none. Links do not count."""
        if not self.folder.is_dir():
            return "", 0
        offices = [folder.name for folder in self.folder.iterdir() if folder.is_dir() and "@" not in folder.name]
        counts = [(len(self.waiting(office)), office) for office in offices]
        count, office = max(counts, default=(0, ""))
        return office, count

    def read(self, path: Path, name_of: Callable[[str], str] = str) -> list[Letter]:
        """All letters of a batch, given its record; see `portions`."""
        while True:
            record = _read_record(path)
            try:
                return [letter for portion in self._portions(path, record, name_of) for letter in portion]
            except _MissingFileError as error:
                if _read_record(path) == record:
                    raise error.damage from error

    def portions(self, path: Path, name_of: Callable[[str], str] = str) -> Iterator[list[Letter]]:
        """The letters of a batch, some at a time, those of a receiver in order. Raises CorruptionError.

        `name_of` turns a receiver's id, as the pipeline knows it, into the receiver of the letter. If the batch is
        written again meanwhile, some letters come twice.
        """
        while True:
            record = _read_record(path)
            try:
                yield from self._portions(path, record, name_of)
                return
            except _MissingFileError as error:
                if _read_record(path) == record:
                    raise error.damage from error

    def _portions(
        self, path: Path, record: tuple[str, Sequence[tuple[str, int]]], name_of: Callable[[str], str]
    ) -> Iterator[list[Letter]]:
        sender, files = record
        for name, count in files:
            file = path.parent / _LETTERS / name
            found = 0
            for table in _read_letters(file):
                found += table.num_rows
                yield _letters(table, sender, name_of)
            if found != count:
                raise damaged(file, f"it has {found} letters, not {count}")

    def remove(self, path: Path) -> None:
        """Remove a batch whose letters are stored."""
        if not path.exists():
            return
        _, files = _read_record(path)
        with storage_errors(path):
            path.unlink(missing_ok=True)
            sync_folder(path.parent)  # or a crash of the machine could bring it back without its files
        for name, _ in files:
            self._remove_file(path.parent / _LETTERS / name)

    def _remove_file(self, path: Path) -> None:
        with storage_errors(path):
            path.unlink(missing_ok=True)

    def write_status(self, status: PipelineStatus) -> None:
        """Replace the status file atomically. It is not synced, which keeps this cheap."""
        make_folder(self.folder)
        write_atomic(self.status_path, pack_status(status), durable=False)

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


class _MissingFileError(Exception):
    """A letter file is missing. That is damage, unless the record has been replaced meanwhile."""

    def __init__(self, file: Path) -> None:
        super().__init__(str(file))
        self.damage = damaged(file, "it is missing")


def _record_of(file: Path) -> Path:
    """The record that names a letter file, if one does."""
    return file.parent.parent / f"{file.name.rpartition('-')[0]}.json"


def _names_in(record: Path) -> set[str] | None:
    """The letter files of a batch: none if it has no record; None if that is unreadable."""
    if not record.exists():
        return set()
    try:
        return {name for name, _ in _read_record(record)[1]}
    except RoamcastError:
        return None


def _read_record(path: Path) -> tuple[str, list[tuple[str, int]]]:
    with storage_errors(path):
        return parse_record(path.read_bytes(), path)


def pack_status(status: PipelineStatus) -> bytes:
    """The content of the status file."""
    return orjson.dumps({"format": FORMAT, **asdict(status)})


def _read_letters(file: Path) -> Iterator[pa.Table]:
    """The letters of a file, some at a time. Raises CorruptionError."""
    with storage_errors(file):
        try:
            source = pa.memory_map(str(file))
        except FileNotFoundError as error:
            raise _MissingFileError(file) from error
        except pa.ArrowInvalid as error:  # an empty file cannot be mapped
            raise damaged(file, error) from error
    try:
        content = pq.ParquetFile(source, page_checksum_verification=True)
        schema = content.schema_arrow
        metadata = schema.metadata or {}
        if metadata.get(b"format") != FORMAT.encode() or not schema.equals(LETTERS_SCHEMA):
            raise pa.ArrowInvalid(f"format {metadata.get(b'format')!r}, columns {schema.names}")
        for group in range(content.num_row_groups):
            yield content.read_row_group(group, use_threads=False)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise damaged(file, error) from error


def _letters(table: pa.Table, sender: str, name_of: Callable[[str], str]) -> list[Letter]:
    ids, numbers, bodies = (table.column(name).to_pylist() for name in LETTERS_SCHEMA.names)
    names = {id: name_of(id) for id in set(ids)}
    return [Letter(names[id], sender, number, body) for id, number, body in zip(ids, numbers, bodies, strict=True)]
