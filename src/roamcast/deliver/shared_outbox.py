"""The outbox on shared storage. Pipeline and nodes each have a local copy of what they write or read.

    outbox/status.json                     the status of the pipeline
    outbox/<node>/office/<batch>.json      the record of a batch for the office of a node, as in a local outbox
    outbox/<node>/office/letters/…         its letter files, which are there before it
    outbox/<node>/@<link>/…                events for another data folder

A record is created once: who repeats a batch finds it there, with the same letters in other files. It is deleted when
the letters are stored, and then its files are. Nobody deletes files that a record may come to name.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from roamcast.deliver.batch_records import BatchRecord, LetterFile, pack_records, parse_record
from roamcast.deliver.outbox import Outbox, PipelineStatus, letter_path, pack_status
from roamcast.durable import make_folder, storage_errors, sync_file, sync_folder, write_atomic
from roamcast.errors import CorruptionError
from roamcast.storage.port import Storage, StoredFile
from roamcast.storage.transfers import transfer_all

__all__ = ["OutboxCopy", "SharedOutbox"]

_ROOT: Final = "outbox"
_STATUS: Final = f"{_ROOT}/status.json"
_COUNTED_FOR: Final = 2.0  # seconds
_GARBAGE_AGE: Final = 24 * 3600 * 1_000_000_000  # nanoseconds: no process that has uploaded a file waits that long
_COPIED: Final = 100  # batches at a time that wait in the copy of an office


class SharedOutbox(Outbox):
    """The outbox of a pipeline on storage. `folder` is for files on their way there."""

    def __init__(self, storage: Storage, folder: Path) -> None:
        super().__init__(folder)
        self._storage = storage
        self._fullest = ("", 0)
        self._counted_at = -_COUNTED_FOR

    def commit(self, pipeline: str, batch: int, files: Sequence[LetterFile]) -> None:
        """Upload the letter files, then create the record of the batch for each office that has none yet."""
        transfer_all(self._upload, files)
        transfer_all(lambda record: self._create_record(record, files), pack_records(pipeline, batch, files))
        self.sweep_attempts(pipeline, batch, ())

    def sweep(self) -> None:
        """Also delete letter files on storage that killed processes have left, a day ago or earlier."""
        super().sweep()
        files = self._storage.files(_ROOT)
        records = {file.name.removesuffix(".json") for file in files}
        oldest = time.time_ns() - _GARBAGE_AGE
        for file in files:
            *folder, part, name = file.name.split("/")
            is_old = part == "letters" and len(folder) == 3 and file.written_at < oldest  # a node may have that name
            if is_old and "/".join([*folder, name.rpartition("-")[0]]) not in records:
                self._storage.delete([file.name])

    def _upload(self, file: LetterFile) -> None:
        self._storage.put_file(_stored_letters(file), letter_path(self.folder, file.office, file.name))

    def _create_record(self, record: BatchRecord, files: Sequence[LetterFile]) -> None:
        if self._storage.create(f"{_stored_folder(record.office)}/{record.name}", record.content) is not None:
            self._storage.delete(_stored_letters(file) for file in files if file.office == record.office)

    def fullest(self) -> tuple[str, int]:
        """As it was at most two seconds ago."""
        if time.monotonic() - self._counted_at >= _COUNTED_FOR:
            counts: dict[str, int] = {}
            for office, _ in _batches(self._storage.files(_ROOT)):
                counts[office] = counts.get(office, 0) + ("@" not in office)
            count, name = max(((count, office) for office, count in counts.items()), default=(0, ""))
            self._fullest = name, count
            self._counted_at = time.monotonic()
        return self._fullest

    def write_status(self, status: PipelineStatus) -> None:
        """The local disk is not needed, so that the status can say that it is full."""
        self._storage.put(_STATUS, pack_status(status))


class OutboxCopy:
    """Copies what the outbox on storage has for one node into a local outbox, where its readers find it.

    What they have removed there is deleted on the storage. Nodes of one data folder each have a status file of their
    own: it tells what has been copied for them. Not thread-safe.
    """

    def __init__(self, storage: Storage, outbox: Outbox, node: str) -> None:
        self._storage = storage
        self._outbox = outbox
        self._node = node
        self._copied: dict[Path, list[str]] = {}  # by local path, the stored names of a record and its files

    def update(self) -> None:
        """Copy what is new and delete what is done. Raises StorageError; then the next call goes on."""
        status = self._storage.get(_STATUS)  # first: what the pipeline has read for it is there, then
        self._delete_done()
        waiting = sum(path.parent.name == self._node for path in self._copied)
        for office, file in _batches(self._storage.files(f"{_ROOT}/{self._node}")):
            path = self._outbox.folder_of(office) / Path(file.name).name
            if path in self._copied:
                continue
            if office == self._node:
                if waiting >= _COPIED:
                    continue
                waiting += 1  # events for links are few, and whether some wait must be known
            self._copy(file, path)
        if status is not None:
            make_folder(self._outbox.status_path.parent)
            write_atomic(self._outbox.status_path, status, durable=False)

    def _copy(self, file: StoredFile, path: Path) -> None:
        """Copy a batch, its record last."""
        content, is_here = None, False
        with storage_errors(path), suppress(FileNotFoundError):
            content, is_here = path.read_bytes(), True  # left by an earlier run of this node
        content = content or self._storage.get(file.name)
        if content is None:
            return
        stored = file.name.rpartition("/")[0] + "/letters/"
        names = [name for name, _ in parse_record(content, path)[1]]
        if not is_here:
            make_folder(path.parent / "letters")
            for name in names:
                self._copy_letters(stored + name, path.parent / "letters" / name)
            write_atomic(path, content)
            with storage_errors(path), suppress(FileNotFoundError):  # it may have been read already
                os.utime(path, ns=(file.written_at, file.written_at))
        self._copied[path] = [file.name, *(stored + name for name in names)]

    def _copy_letters(self, stored: str, path: Path) -> None:
        with storage_errors(path):
            if not self._storage.get_file(stored, path):
                raise CorruptionError(
                    "a file of letters is missing", where=f"{self._storage.url}/{stored}", hint="restore it"
                )
            sync_file(path)
            sync_folder(path.parent)

    def _delete_done(self) -> None:
        done = {path: names for path, names in self._copied.items() if not path.exists()}
        for path, (record, *files) in done.items():
            self._storage.delete([record])  # and then the files, or it could not be read if that is interrupted
            self._storage.delete(files)
            del self._copied[path]


def _stored_letters(file: LetterFile) -> str:
    return f"{_stored_folder(file.office)}/letters/{file.name}"


def _stored_folder(office: str) -> str:
    node, at, link = office.partition("@")
    return f"{_ROOT}/{node}/{f'@{link}' if at else 'office'}"


def _batches(files: list[StoredFile]) -> Iterator[tuple[str, StoredFile]]:
    """Batches with their offices, those of an office in order."""
    for file in files:
        steps = file.name.split("/")
        if len(steps) != 4:
            continue  # letters, or the status
        _, node, folder, _ = steps
        if folder != "office" and not folder.startswith("@"):
            raise CorruptionError("unknown folder in the outbox", where=file.name, hint="remove it")
        yield (node if folder == "office" else node + folder), file
