"""Where a storage is: a folder, or a URL."""

from __future__ import annotations

from pathlib import Path

from roamcast.errors import InputError
from roamcast.storage.folder import FolderStorage
from roamcast.storage.port import Storage
from roamcast.storage.remote import PROTOCOLS, RemoteStorage

__all__ = ["open_storage"]


def open_storage(place: str) -> Storage:
    """The storage at a path, or at a URL such as file:///path or s3://bucket/prefix. Nothing is read or written yet.

    Raises InputError, or MissingExtraError if a package for the URL is missing.
    """
    if not place.strip():
        raise InputError("no storage", hint="a folder, or a URL such as s3://bucket/prefix")
    if "://" not in place:
        return FolderStorage(Path(place).absolute())
    if place.startswith("file:///"):
        return FolderStorage(Path(place.removeprefix("file://")))
    if (protocol := place.partition("://")[0]) not in PROTOCOLS:
        known = ", ".join(f"{name}://" for name in PROTOCOLS)
        raise InputError(f"unknown kind of storage {protocol!r}", where=place, hint=f"a folder, or one of {known}")
    return RemoteStorage(place)
