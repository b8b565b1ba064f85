"""The state on shared storage, of which the state folder of a driver is a working copy.

    state/<batch>.json                   the manifest of a batch, and where the files that it names are
    files/<generation>/<batch>-<name>    files, below the generation of the pipeline that uploaded them

A manifest is created once its files are there. That commits the batch: of several processes that try, one succeeds. A
process deletes only files that a manifest of its own time has named, so nothing that a newer generation uploads. Who
replaces the pipeline by another creates an empty manifest after the last batch: then there is none any more.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from roamcast.checked_json import pack, unpack
from roamcast.durable import make_folder, storage_errors, sync_file, sync_folder, write_atomic
from roamcast.errors import ConflictError, CorruptionError, StorageError, UnavailableError
from roamcast.storage.port import Storage
from roamcast.storage.transfers import transfer_all

__all__ = ["FORMAT", "RESTORE_HINT", "SharedState", "stored_numbers"]

log = logging.getLogger(__name__)

FORMAT: Final = "roamcast-shared-state/2"
RESTORE_HINT: Final = "restore the storage from a backup, or start a new pipeline with --new"

_KEPT: Final = 2
_NAME: Final = re.compile(r"(?:\w+/)+([0-9a-f]{64})\.\w+")
_NUMBER: Final = re.compile(r"-1|\d+")


class _Published(NamedTuple):
    """A manifest in storage: who published it, its text, and the stored name of each file that it names.

    The text is empty if the pipeline has ended.
    """

    generation: int
    manifest: bytes
    files: Mapping[str, str]


class SharedState:
    """The state of one pipeline on storage, as one generation reads and writes it.

    `prefix` is where it is in the storage, `folder` the state folder of this driver.
    """

    def __init__(self, storage: Storage, prefix: str, generation: int, folder: Path) -> None:
        self._storage = storage
        self._prefix = prefix
        self._generation = generation
        self._folder = folder
        self._stored: dict[str, str] = {}  # the stored names of files that need not be uploaded
        self._published: dict[int, frozenset[str]] = {}  # by batch, the stored names of files: what may be deleted
        self._garbage: set[str] = set()
        self._is_swept = False  # what earlier generations left

    def publish(self, batch: int, manifest: bytes, names: Iterable[str]) -> None:
        """Upload the files with these names that are not in storage, then commit the batch.

        Raises StorageError, and ConflictError if a newer generation has committed it, or ended the pipeline. If an
        older one has, just before it was overtaken, its manifest counts: raises UnavailableError, and a restart
        continues after it.
        """
        names = list(names)
        self._upload(batch, [name for name in names if name not in self._stored])
        files = {name: self._stored[name] for name in names}
        content = _pack(_Published(self._generation, manifest, files))
        there = self._storage.create(self._manifest_name(batch), content)
        if there is not None:
            earlier = _unpack(there, self._where(batch))
            self._check_ours(earlier, batch)
            files = dict(earlier.files)  # an attempt of this process, to which it got no answer
        self._published[batch] = frozenset(files.values())
        self._sweep(batch)

    def check_uncommitted(self, batch: int) -> None:
        """Raises as `publish` does if another process has committed a batch."""
        there = self._storage.get(self._manifest_name(batch))
        if there is not None:
            self._check_ours(_unpack(there, self._where(batch)), batch)

    def end(self, last: int) -> bool:
        """Let no process commit a batch after this one any more. False if one has done so before."""
        batch = last + 1
        there = self._storage.create(self._manifest_name(batch), _pack(_Published(self._generation, b"", {})))
        return there is None or not _unpack(there, self._where(batch)).manifest

    def committed(self) -> tuple[list[int], bool]:
        """The batches with a manifest, in order, and whether the pipeline has ended."""
        batches = self._batches()
        with suppress(CorruptionError):
            if batches and not self._read(batches[-1]).manifest:
                return batches[:-1], True
        return batches, False

    def restore(self) -> int:
        """Make the newest manifest and its files the content of the state folder; its batch. Raises CorruptionError."""
        batches, _ = self.committed()
        if not batches:
            raise CorruptionError("no state", where=f"{self._storage.url}/{self._prefix}/state", hint=RESTORE_HINT)
        self._published.clear()
        for batch in batches[-_KEPT:-1]:
            with suppress(CorruptionError):  # it may just have been deleted by the process that ran the pipeline
                self._published[batch] = frozenset(self._read(batch).files.values())
        batch = batches[-1]
        newest = self._read(batch)
        for name in newest.files:
            make_folder((self._folder / name).parent)
        transfer_all(self._download, newest.files.items())
        with storage_errors(self._folder):
            for path in self._folder.glob("*.json"):
                path.unlink()
        write_atomic(self._folder / f"{batch}.json", newest.manifest)
        self._published[batch] = frozenset(newest.files.values())
        self._stored = dict(newest.files)
        return batch

    def _check_ours(self, published: _Published, batch: int) -> None:
        if published.generation > self._generation:
            raise ConflictError("another process has started this pipeline", hint="only one process can run it")
        if published.generation < self._generation:
            raise UnavailableError(
                f"the process that ran this pipeline before has committed batch {batch} meanwhile",
                where=self._storage.url,
                hint="start it again",
            )

    def _upload(self, batch: int, names: list[str]) -> None:
        def put(name: str) -> None:
            stored = f"{self._prefix}/files/{self._generation}/{batch}-{name.replace('/', '-')}"
            self._storage.put_file(stored, self._folder / name)
            self._stored[name] = stored

        transfer_all(put, names)

    def _download(self, file: tuple[str, str]) -> None:
        """Get a file, unless a copy with the right checksum is here."""
        name, stored = file
        path = self._folder / name
        match = _NAME.fullmatch(name)
        if match is None:
            raise CorruptionError(
                f"a file of the state has the name {name!r}", where=self._storage.url, hint=RESTORE_HINT
            )
        temporary = path.with_name(path.name + ".tmp")
        with storage_errors(path):
            if path.exists() and _checksum(path) == match[1]:
                return
            if not self._storage.get_file(stored, temporary):
                raise CorruptionError("a file of the state is missing", where=self._where_of(stored), hint=RESTORE_HINT)
            if _checksum(temporary) != match[1]:
                temporary.unlink()
                raise CorruptionError("a file of the state is damaged", where=self._where_of(stored), hint=RESTORE_HINT)
            sync_file(temporary)
            temporary.rename(path)
            sync_folder(path.parent)

    def _sweep(self, newest: int) -> None:
        """Delete what only older manifests name. The batch is committed: what cannot be deleted now is tried again."""
        old = [batch for batch in sorted(self._published) if batch <= newest][:-_KEPT]
        self._garbage.update(map(self._manifest_name, old))
        self._garbage.update(name for batch in old for name in self._published.pop(batch))
        try:
            if not self._is_swept:
                # Only now: until we have committed a batch, an older generation may commit what it has uploaded.
                self._garbage.update(self._left_by_others(newest))
                self._is_swept = True
            kept = frozenset[str]().union(*self._published.values())
            self._garbage.update(self._stored.values())  # what an attempt has uploaded and no manifest names
            self._garbage -= kept
            self._stored = {name: stored for name, stored in self._stored.items() if stored in kept}
            if self._garbage:
                self._storage.delete(sorted(self._garbage))
                self._garbage.clear()
        except StorageError as error:
            log.warning("old state files are deleted later: %s", error)

    def _left_by_others(self, newest: int) -> Iterable[str]:
        """Old manifests, and files that earlier generations have uploaded."""
        start = f"{self._prefix}/files/"
        for file in self._storage.files(start.rstrip("/")):
            generation = file.name.removeprefix(start).partition("/")[0]
            if _NUMBER.fullmatch(generation) and int(generation) < self._generation:
                yield file.name
        yield from (self._manifest_name(batch) for batch in self._batches() if batch < min(newest, *self._published))

    def _batches(self) -> list[int]:
        return stored_numbers(self._storage, f"{self._prefix}/state")

    def _read(self, batch: int) -> _Published:
        content = self._storage.get(self._manifest_name(batch))
        if content is None:
            raise CorruptionError("a manifest is missing", where=self._where(batch), hint=RESTORE_HINT)
        return _unpack(content, self._where(batch))

    def _manifest_name(self, batch: int) -> str:
        return f"{self._prefix}/state/{batch}.json"

    def _where(self, batch: int) -> str:
        return self._where_of(self._manifest_name(batch))

    def _where_of(self, stored: str) -> str:
        return f"{self._storage.url}/{stored}"


def stored_numbers(storage: Storage, folder: str) -> list[int]:
    """The numbers of the files `<number>.json` in a folder, in order."""
    names = (file.name.removeprefix(f"{folder}/") for file in storage.files(folder))
    stems = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return sorted(int(stem) for stem in stems if _NUMBER.fullmatch(stem))


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _pack(published: _Published) -> bytes:
    return pack(FORMAT, {**published._asdict(), "manifest": published.manifest.decode()})


def _unpack(written: bytes, where: str) -> _Published:
    try:
        content = unpack(written, FORMAT)
        return _Published(content["generation"], content["manifest"].encode(), content["files"])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise CorruptionError(f"unreadable manifest: {error}", where=where, hint=RESTORE_HINT) from error
