"""The writer of a journal in the data folder: group commit into Parquet segments."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import pyarrow as pa

from roamcast.durable import make_folder, storage_errors, write_atomic
from roamcast.errors import ConflictError, InputError, RoamcastError, StorageError, UnavailableError
from roamcast.failures import FailureTracker
from roamcast.group_commit import GroupCommit, Submission, fail
from roamcast.journal.reader import LOCK, JournalFolder
from roamcast.journal.records import ROW_SCHEMA, Record, Records, at_offsets, encode, to_rows

__all__ = ["FileJournal", "lock_journal"]

_MAX_LINGER_S = 0.05
_SEGMENT_ROWS = 50_000
_PROBE = ".probe"


_Append = Submission[Records]


class FileJournal:
    """A JournalWriter that writes the journal of `node` as segments under `root` (see `segments`).

    The first append of a group waits `linger` seconds for others, unless one is `urgent`. The group is written and
    synced as one segment while the next group collects. An append is never split. It cannot be cancelled, and its
    records must not be changed afterwards. An append fails through its future:

    - InputError: the records do not fit the schema, or there are none. Other appends are not affected.
    - StorageError: the disk refused. The records are not in the journal, their offsets are used by others, and later
      appends may succeed. One case is different: the segment is in place, but the folder cannot be synced. A reader may
      have seen it, so it stays; whether it would survive a crash of the machine is unknown. The error says so, and all
      later appends are refused until the journal is opened again.
    - UnavailableError: the journal is closed.

    Opening raises ConflictError if another writer of the node is open, in this process or another. It raises
    CorruptionError if segments are missing, overlap or are of another format.
    """

    def __init__(self, root: Path, node: str, *, linger: float = 0.02) -> None:
        if not 0 <= linger <= _MAX_LINGER_S:
            raise InputError(f"linger is {linger} s", where="linger", hint="use 0 to 0.05 seconds")
        self._node = node
        self._folder = JournalFolder(root, node)
        self._lock = lock_journal(root, node)
        try:
            self._next = self._recover()
        except BaseException:
            os.close(self._lock)
            raise
        self._doubt: StorageError | None = None
        self.failures = FailureTracker()
        """Whether the disk refused the last append."""
        hint = "retry when the node is running again"
        self._commits = GroupCommit[Records](
            f"journal-{node}",
            self._commit,
            closed=UnavailableError(f"the journal of {node} is closed", hint=hint),
            limit=_SEGMENT_ROWS,
            weight=len,
            linger=linger,
        )
        self._commits.start()

    @property
    def last_offset(self) -> int:
        """The offset of the last record on disk; 0 before the first."""
        return self._next - 1

    def append(self, records: Records, *, urgent: bool = False) -> Future[int]:
        """See JournalWriter. Any thread may call; never blocks on the disk."""
        if not len(records):
            empty: Future[int] = Future()
            empty.set_exception(InputError("no records to append", hint="pass at least one record"))
            return empty
        kept = records if isinstance(records, pa.RecordBatch) else tuple(records)
        return self._commits.submit(kept, urgent=urgent)

    def probe(self) -> None:
        """If the disk refused the last append, find out whether it accepts files again. Blocks on the disk."""
        failure = self.failures.current
        if failure is None or self._doubt:
            return
        path = self._folder.path / _PROBE
        try:
            write_atomic(path, bytes(4096))
            path.unlink()
        except (StorageError, OSError):
            return
        if self.failures.current is failure:
            self.failures.succeeded()

    def oldest_after(self, offset: int) -> tuple[int, int] | None:
        return self._folder.oldest_after(offset)

    def close(self) -> None:
        """Write what is pending, then refuse further appends. Idempotent."""
        self._commits.close()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def _recover(self) -> int:
        """Remove what a crash left behind; return the next offset."""
        folder = self._folder.path
        make_folder(folder)
        with storage_errors(folder):
            for leftover in folder.glob("*.tmp"):
                leftover.unlink()
        self._folder.check()
        return self._folder.last_offset() + 1

    def _commit(self, group: Sequence[_Append]) -> None:
        if self._doubt:
            fail(group, self._doubt)
            return
        group, batches = _checked(group)
        if not group:
            return
        last = self._next - 1 + sum(batch.num_rows for batch in batches)
        path = self._folder.path_of(self._next, last)
        try:
            write_atomic(path, encode(list(self._at_offsets(batches))))
        except Exception as error:  # whatever it was, the futures must be completed
            refusal = self._refusal(path, error)
            self.failures.failed(refusal)
            fail(group, refusal)
            return
        self.failures.succeeded()
        offset, self._next = self._next, last + 1
        for append in group:
            append.future.set_result(offset)
            offset += len(append.request)

    def _at_offsets(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        offset = self._next
        for batch in batches:
            yield at_offsets(self._node, offset, batch)
            offset += batch.num_rows

    def _refusal(self, path: Path, error: Exception) -> RoamcastError:
        """The error of a failed write of `path`. If the segment is in place, later appends are refused."""
        refusal = error
        if not isinstance(refusal, StorageError):
            refusal = StorageError(f"not written: {error!r}", where=str(path), hint="check memory and disk")
        try:
            in_place = path.exists()
        except OSError:
            in_place = True
        if in_place:
            self._doubt = refusal = StorageError(
                f"{refusal.message}; it is unknown whether the last records would survive a crash",
                where=str(path),
                hint="check the disk, then restart the node; records that are sent again count once",
            )
        return refusal


def _checked(group: Sequence[_Append]) -> tuple[Sequence[_Append], list[pa.RecordBatch]]:
    """The appends of the group whose records are good, and their rows. The others fail.

    Making rows of all records at once is by far the fastest. Only if that fails are they made append by append.
    """
    try:
        return group, [_rows([append.request for append in group])]
    except Exception:  # records may contain anything
        good: list[_Append] = []
    batches: list[pa.RecordBatch] = []
    for append in group:
        try:
            batches.append(_rows([append.request]))
        except Exception as error:
            reason = InputError(f"not a record: {error}", where="records", hint="see journal/records for the types")
            fail([append], reason)
        else:
            good.append(append)
    return good, batches


def _rows(appends: Sequence[Records]) -> pa.RecordBatch:
    """Raises ValueError for columns that are not those of records, and whatever comes of records that are none."""
    batches: list[pa.RecordBatch] = []
    records: list[Record] = []  # that follow each other
    for append in appends:
        if not isinstance(append, pa.RecordBatch):
            records += append
            continue
        if not append.schema.equals(ROW_SCHEMA):
            raise ValueError("the columns are not those of records")
        if records:
            batches.append(to_rows(records))
            records = []
        batches.append(append)
    if records:
        batches.append(to_rows(records))
    rows = pa.concat_batches(batches)
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if not field.nullable and column.null_count:
            raise ValueError(f"{field.name} is missing")
    return rows


def lock_journal(root: Path, node: str) -> int:
    """Take the writer's lock of `node`. It is held until the descriptor is closed or the process ends.

    The lock file is never removed: otherwise two writers could lock two files with the same name.
    """
    path = root / (node + LOCK)
    make_folder(root)
    with storage_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise ConflictError(
                f"the journal of node {node} already has a writer",
                where=str(path),
                hint=f"stop the other process that runs node {node}, or use another folder with --data",
            ) from error
        except OSError:
            os.close(descriptor)
            raise
    return descriptor
