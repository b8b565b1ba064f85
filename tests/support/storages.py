"""Storages for tests."""

from __future__ import annotations

from pathlib import Path

from roamcast.storage.folder import FolderStorage
from roamcast.storage.location import open_storage
from roamcast.storage.port import Storage
from roamcast.storage.remote import RemoteStorage


def new_folder(folder: Path) -> FolderStorage:
    """A storage in a new folder."""
    folder.mkdir()
    storage = FolderStorage(folder)
    storage.check()
    return storage


def storage_at(place: str) -> Storage:
    """As `open_storage`, or in the memory of this process: an object store without a server."""
    return RemoteStorage(place) if place.startswith("memory://") else open_storage(place)
