"""Storage in a folder of this host, or on a file system that several hosts mount."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path

from roamcast.durable import check_writable, make_folder, storage_errors, sync_file, sync_folder
from roamcast.errors import StorageError
from roamcast.storage.port import StoredFile

__all__ = ["FolderStorage"]

_TEMPORARY = ".tmp-"


class FolderStorage:
    """Files in a folder. See `port.Storage`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.url = str(folder)

    def check(self) -> None:
        make_folder(self._folder)
        check_writable(self._folder)

    def put(self, name: str, content: bytes) -> None:
        temporary, path = self._write(name, content)
        with storage_errors(path):
            temporary.rename(path)
            sync_folder(path.parent)

    def put_file(self, name: str, path: Path) -> None:
        with storage_errors(path):
            content = path.read_bytes()
        self.put(name, content)

    def create(self, name: str, content: bytes) -> bytes | None:
        temporary, path = self._write(name, content)
        with storage_errors(path):
            try:
                path.hardlink_to(temporary)  # which fails if the name is taken, also on a network file system
            except FileExistsError:
                pass
            finally:
                temporary.unlink()
            sync_folder(path.parent)
        there = self.get(name)
        return None if there is None or there == content else there

    def get(self, name: str) -> bytes | None:
        path = self._folder / name
        with storage_errors(path):
            try:
                return path.read_bytes()
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
        self._check_folder()
        with storage_errors(self._folder / folder):
            for root, _, names in os.walk(self._folder / folder):
                for path in (Path(root, name) for name in names if not name.startswith(_TEMPORARY)):
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
            raise StorageError("no such folder", where=self.url, hint="is it mounted?")

    def _write(self, name: str, content: bytes) -> tuple[Path, Path]:
        """Write a temporary file durably beside the one that it becomes; both paths."""
        path = self._folder / name
        self._check_folder()
        make_folder(path.parent)
        temporary = path.with_name(f"{_TEMPORARY}{uuid.uuid4().hex}")
        with storage_errors(path):
            try:
                temporary.write_bytes(content)
                sync_file(temporary)
            except OSError:
                temporary.unlink(missing_ok=True)
                raise
        return temporary, path
