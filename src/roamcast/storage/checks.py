"""What a storage has to be able to do."""

from __future__ import annotations

import uuid

from roamcast.errors import InputError
from roamcast.storage.port import Storage

__all__ = ["check_create"]


def check_create(storage: Storage) -> None:
    """Raises InputError if `create` replaces files, StorageError if the storage does not work."""
    name, contents = f"check-{uuid.uuid4()}", (b"first", b"second")
    found = [storage.create(name, content) for content in contents]
    storage.delete([name])
    if found != [None, contents[0]]:
        raise InputError(
            "this storage replaces files that it should only create if they do not exist",
            where=storage.url,
            hint="use one that honours 'If-None-Match: *'",
        )
