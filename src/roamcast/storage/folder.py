"""Storage in a folder of this host, or on a file system that several hosts mount."""

from __future__ import annotations

import errno
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from roamcast.durable import check_writable, make_folder, storage_errors, sync_file, sync_folder
from roamcast.errors import StorageError
from roamcast.storage.checks import check_create
from roamcast.storage.port import StoredFile

__all__ = ["FolderStorage"]

_TEMPORARY: Final = ".tmp-"
_TEMPORARY_AGE: Final = 24 * 3600  # seconds: nobody writes a file for that long
_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP)


class FolderStorage:
    """Files in a folder. See `port.Storage`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.url = str(folder)

    def check(self) -> None:
        """Also deletes what killed processes have left half-written, a day ago or earlier."""
        with storage_errors(self._folder):
            self._check_folder()
        check_writable(self._folder)
        check_create(self)
        oldest = time.time() - _TEMPORARY_AGE
        with storage_errors(self._folder):
            for path in self._walk(self._folder):
                with suppress(FileNotFoundError):  # it was just completed
                    if path.name.startswith(_TEMPORARY) and path.stat().st_mtime < oldest:
                        path.unlink()

    def put(self, name: str, content: bytes) -> None:
        self._put(name, lambda path: path.write_bytes(content))

    def put_file(self, name: str, path: Path) -> None:
        self._put(name, lambda temporary: shutil.copyfile(path, temporary))

    def create(self, name: str, content: bytes) -> bytes | None:
        temporary, path = self._write(name, lambda path: path.write_bytes(content))
        is_new = True
        with storage_errors(path):
            try:
                path.hardlink_to(temporary)  # which fails if the name is taken, also on a network file system
            except FileExistsError:
                is_new = False
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                hint = "use another file system, or an object store"
                raise StorageError("this file system has no hard links", where=self.url, hint=hint) from error
            finally:
                temporary.unlink()
            sync_folder(path.parent)
        if is_new:
            return None
        there = self.get(name)
        if there is None:
            raise StorageError("another process has created and deleted it", where=str(path), hint="try again")
        return None if there == content else there

    def get(self, name: str) -> bytes | None:
        path = self._folder / name
        with storage_errors(path):
            try:
                return path.read_bytes()
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                self._check_folder()
                return None

    def open(self, name: str) -> BinaryIO | None:
        path = self._folder / name
        with storage_errors(path):
            try:
                return path.open("rb")
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                self._check_folder()
                return None

    def get_file(self, name: str, path: Path) -> bool:
        with storage_errors(path):
            try:
                shutil.copyfile(self._folder / name, path)
            except FileNotFoundError:
                if not path.parent.is_dir():
                    raise
                self._check_folder()
                return False
        return True

    def files(self, folder: str) -> list[StoredFile]:
        found = []
        with storage_errors(self._folder / folder):
            self._check_folder()
            for path in self._walk(self._folder / folder):
                if path.name.startswith(_TEMPORARY):
                    continue
                try:
                    stat = path.stat()
                except FileNotFoundError:
                    continue  # deleted meanwhile
                found.append(StoredFile(path.relative_to(self._folder).as_posix(), stat.st_size, stat.st_mtime_ns))
        return sorted(found)

    def delete(self, names: Iterable[str]) -> None:
        folders = set()
        for path in (self._folder / name for name in names):
            with storage_errors(path):
                path.unlink(missing_ok=True)
            folders.add(path.parent)
        for folder in folders:
            with storage_errors(folder):
                if folder.is_dir():
                    sync_folder(folder)

    def _check_folder(self) -> None:
        """A folder that is not mounted is not an empty one."""
        if not self._folder.is_dir():
            raise StorageError("no such folder", where=self.url, hint="is it mounted? If it is new, create it")

    def _walk(self, folder: Path) -> Iterator[Path]:
        """The files below a folder; none if there is no such folder. Raises OSError if one cannot be read."""

        def fail(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise error

        for root, _, names in os.walk(folder, onerror=fail):
            yield from (Path(root, name) for name in names)

    def _put(self, name: str, write: Callable[[Path], object]) -> None:
        temporary, path = self._write(name, write)
        with storage_errors(path):
            temporary.rename(path)
            sync_folder(path.parent)

    def _write(self, name: str, write: Callable[[Path], object]) -> tuple[Path, Path]:
        """Write a temporary file durably beside the one that it becomes; both paths."""
        path = self._folder / name
        with storage_errors(path):
            self._check_folder()
        make_folder(path.parent)
        temporary = path.with_name(f"{_TEMPORARY}{uuid.uuid4().hex}")
        with storage_errors(path):
            try:
                write(temporary)
                sync_file(temporary)
            except OSError:
                temporary.unlink(missing_ok=True)
                raise
        return temporary, path
