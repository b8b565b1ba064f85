"""Files that survive a crash: written whole, synced, renamed into place."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from roamcast.errors import StorageError

__all__ = ["make_folder", "refusals_named", "sync_file", "sync_folder", "write_whole"]

_TEMPORARY = ".tmp"

_REFUSALS = {
    errno.ENOSPC: ("the disk is full", "free some space; what was acknowledged is safe"),
    errno.EDQUOT: ("the disk quota is used up", "free some space; what was acknowledged is safe"),
    errno.EROFS: ("the disk is read-only", "remount it writable, or choose another folder"),
    errno.EACCES: (
        "access is not permitted",
        "check who owns the folder, or choose another folder",
    ),
    errno.EPERM: (
        "access is not permitted",
        "check who owns the folder, or choose another folder",
    ),
    errno.EIO: ("the disk reports an input/output error", "check the disk"),
}


@contextmanager
def refusals_named(path: Path) -> Iterator[None]:
    """Turn what the operating system says about a disk into a StorageError with a hint."""
    try:
        yield
    except OSError as error:
        message, hint = _REFUSALS.get(error.errno or 0, (error.strerror or str(error), "check the data folder"))
        raise StorageError(message, where=str(path), hint=hint) from error


def sync_folder(folder: Path) -> None:
    """Make renames and new names in `folder` durable."""
    _sync(folder, os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """Make the content of a file that another has written durable; its name is the folder's."""
    _sync(path, 0)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, *, mode: int = 0o777) -> None:
    """See that `folder` is there, with all its parents, durably. `mode` is for this one alone, and only if it is new.

    Raises StorageError when the disk refuses.
    """
    with refusals_named(folder):
        if not folder.is_dir():
            make_folder(folder.parent)
            folder.mkdir(mode, exist_ok=True)
            sync_folder(folder.parent)


def write_whole(path: Path, content: bytes | memoryview, *, durable: bool = True) -> None:
    """Put `content` at `path`, whole or not at all, replacing what was there.

    With `durable` (the default) it is on disk when this returns. A crash leaves at most a file named `*.tmp`.
    Raises StorageError when the disk refuses; then `path` is as it was, except where the last step, syncing the folder,
    is what failed: then the new content is in place, but might not survive a crash of the machine.
    """
    temporary = path.with_name(path.name + _TEMPORARY)
    with refusals_named(path):
        try:
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
