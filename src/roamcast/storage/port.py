"""Storage: named files that several hosts share, in a folder or an object store.

Names are relative paths with `/`. A file appears complete or not at all, and is durable when a call returns. Reads and
lists see every earlier write. Methods raise StorageError if the storage does not respond or refuses.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

__all__ = ["Storage", "StoredFile"]


class StoredFile(NamedTuple):
    """A file in storage: its name, its size, and when it was written, in nanoseconds since 1970."""

    name: str
    size: int
    written_at: int


class Storage(Protocol):
    """The port. Implementations are thread-safe."""

    @property
    def url(self) -> str:
        """Where it is, for messages."""

    def check(self) -> None:
        """Raises an error that says what to do if the storage cannot be used, or `create` does not work there.

        A folder is not created: one that is not mounted looks like one that is missing.
        """

    def put(self, name: str, content: bytes) -> None:
        """Write a file, replacing an existing one."""

    def put_file(self, name: str, path: Path) -> None:
        """Write a file with the content of a local one, replacing an existing one."""

    def create(self, name: str, content: bytes) -> bytes | None:
        """Write a file if there is none of this name: of several writers, one succeeds.

        Returns None if this call or an earlier one with the same content wrote it, else the content that is there.
        """

    def get(self, name: str) -> bytes | None:
        """The content of a file; None if there is none."""

    def open(self, name: str) -> BinaryIO | None:
        """A file for reading parts of it; None if there is none. Its methods raise StorageError or OSError."""

    def get_file(self, name: str, path: Path) -> bool:
        """Write the content of a file to a local path, not durably. Returns whether there is one."""

    def files(self, folder: str) -> list[StoredFile]:
        """The files below a folder, ordered by name; empty if there is no such folder."""

    def delete(self, names: Iterable[str]) -> None:
        """Delete files. Missing ones are ignored."""
