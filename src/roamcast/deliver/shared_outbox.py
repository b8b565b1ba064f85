"""The outbox on shared storage. Pipeline and nodes each have a local copy of what they write or read.

    outbox/status.json                      the status of the pipeline
    outbox/<node>/office/<batch>            a batch for the office of a node, as in a local outbox
    outbox/<node>/@<link>/<batch>           a batch of events for another data folder

A batch is created once: who repeats it finds it there, with the same letters. It is deleted when its letters are
stored.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa

from roamcast.deliver.outbox import Outbox, PipelineStatus
from roamcast.durable import make_folder, storage_errors, write_atomic
from roamcast.errors import CorruptionError
from roamcast.storage.port import Storage, StoredFile

__all__ = ["OutboxCopy", "SharedOutbox"]

log = logging.getLogger(__name__)

_ROOT: Final = "outbox"
_STATUS: Final = f"{_ROOT}/status.json"
_COUNTED_FOR: Final = 2.0  # seconds
_COPIED: Final = 100  # batches at a time that wait in the copy of an office


class SharedOutbox(Outbox):
    """The outbox of a pipeline on storage. `folder` is for files on their way there."""

    def __init__(self, storage: Storage, folder: Path) -> None:
        super().__init__(folder)
        self._storage = storage
        self._fullest = ("", 0)
        self._counted_at = -_COUNTED_FOR

    def put(self, office: str, pipeline: str, batch: int, letters: pa.Table) -> None:
        super().put(office, pipeline, batch, letters)
        for path in self.waiting(office):
            with storage_errors(path):
                content = path.read_bytes()
            self._storage.create(f"{_stored_folder(office)}/{path.name}", content)
            self.remove(path)

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
        super().write_status(status)
        with storage_errors(self.status_path):
            content = self.status_path.read_bytes()
        self._storage.put(_STATUS, content)


class OutboxCopy:
    """Copies what the outbox on storage has for one node into a local outbox, where its readers find it.

    What they have removed there is deleted on the storage. Not thread-safe.
    """

    def __init__(self, storage: Storage, outbox: Outbox, node: str) -> None:
        self._storage = storage
        self._outbox = outbox
        self._node = node
        self._copied: dict[Path, str] = {}  # the stored names of batches, by local path

    def update(self) -> None:
        """Copy what is new and delete what is done. Raises StorageError; then the next call goes on."""
        status = self._storage.get(_STATUS)  # first: what the pipeline has read for it is there, then
        self._delete_done()
        for office, file in _batches(self._storage.files(f"{_ROOT}/{self._node}")):
            path = self._outbox.folder_of(office) / Path(file.name).name
            if path in self._copied:
                continue
            if office == self._node and len(self._copied) >= _COPIED:
                continue  # events for links are few, and whether some wait must be known
            self._copy(file, path)
        if status is not None:
            make_folder(self._outbox.status_path.parent)
            write_atomic(self._outbox.status_path, status, durable=False)

    def _copy(self, file: StoredFile, path: Path) -> None:
        if not path.exists():  # left by an earlier run of this node
            content = self._storage.get(file.name)
            if content is None:
                return
            make_folder(path.parent)
            write_atomic(path, content)
            with storage_errors(path):
                os.utime(path, ns=(file.written_at, file.written_at))
        self._copied[path] = file.name

    def _delete_done(self) -> None:
        done = {path: name for path, name in self._copied.items() if not path.exists()}
        self._storage.delete(done.values())
        for path in done:
            del self._copied[path]


def _stored_folder(office: str) -> str:
    node, at, link = office.partition("@")
    return f"{_ROOT}/{node}/{f'@{link}' if at else 'office'}"


def _batches(files: list[StoredFile]) -> Iterator[tuple[str, StoredFile]]:
    """Batches with their offices, those of an office in order."""
    for file in files:
        steps = file.name.split("/")
        if len(steps) != 4:
            continue
        _, node, folder, _ = steps
        if folder != "office" and not folder.startswith("@"):
            raise CorruptionError("unknown folder in the outbox", where=file.name, hint="remove it")
        yield (node if folder == "office" else node + folder), file
