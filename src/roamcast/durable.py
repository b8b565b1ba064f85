"""Crash-safe files: write to a temporary file, sync, rename into place."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from roamcast.errors import StorageError

__all__ = ["check_writable", "make_folder", "storage_errors", "sync_file", "sync_folder", "write_atomic"]

_TEMPORARY = ".tmp"

_SPACE_HINT = "free some disk space; acknowledged data is safe"
_OWNER_HINT = "check the owner and mode of the folder, or choose another folder"
_MESSAGES = {
    errno.ENOSPC: ("the disk is full", _SPACE_HINT),
    errno.EDQUOT: ("the disk quota is exceeded", _SPACE_HINT),
    errno.EROFS: ("the file system is read-only", "remount it writable, or choose another folder"),
    errno.EACCES: ("permission denied", _OWNER_HINT),
    errno.EPERM: ("permission denied", _OWNER_HINT),
    errno.EIO: ("input/output error", "check the disk"),
}


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Convert an OSError raised inside the block to a StorageError with a hint."""
    try:
        yield
    except OSError as error:
        message, hint = _MESSAGES.get(error.errno or 0, (error.strerror or str(error), "check the data folder"))
        raise StorageError(message, where=str(path), hint=hint) from error


def check_writable(folder: Path) -> None:
    """Raises StorageError if files cannot be created in `folder`, as far as this can be told without writing one."""
    with storage_errors(folder):
        space = os.statvfs(folder)
        if space.f_flag & os.ST_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
        if space.f_blocks and not (space.f_bavail if os.geteuid() else space.f_bfree):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def sync_folder(folder: Path) -> None:
    """Make new and renamed entries of `folder` durable."""
    _sync(folder, os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """Make the content of an existing file durable. Does not sync its directory entry."""
    _sync(path, 0)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, *, mode: int = 0o777) -> None:
    """Create `folder` and missing parents, durably. An existing folder is left unchanged.

    `mode` applies to `folder` only, not to its parents. Raises StorageError.
    """
    with storage_errors(folder):
        if not folder.is_dir():
            make_folder(folder.parent)
            folder.mkdir(mode, exist_ok=True)
            sync_folder(folder.parent)


def write_atomic(
    path: Path, content: bytes | memoryview, *, durable: bool = True, private: bool = False, shared: bool = False
) -> None:
    """Write `content` to `path` atomically, replacing an existing file. If `private`, only its owner may read it.

    If `durable` (the default), the content is on disk when this returns. If `shared`, others may write the same file at
    the same time. A crash leaves at most a file named `*.tmp`, or many of them if `shared`.
    Raises StorageError; `path` is then unchanged, unless the final sync of the folder failed: in that case the new
    content is in place but may not survive a crash of the machine.
    """
    temporary = path.with_name(f"{path.name}{f'.{uuid.uuid4().hex}' if shared else ''}{_TEMPORARY}")
    with storage_errors(path):
        try:
            if private:
                temporary.unlink(missing_ok=True)
                os.close(os.open(temporary, os.O_CREAT | os.O_EXCL, 0o600))
            with temporary.open("wb") as file:
                file.write(content)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            temporary.rename(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        if durable:
            sync_folder(path.parent)
