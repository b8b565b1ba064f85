"""Where the stores of a node are: in its folder, or in the PostgreSQL database of a URL.

nodes/<node>/store.json    readable by its owner only, because the URL may contain a password

A node records it, so that a pipeline of the same data folder finds its registry. Does not import SQLAlchemy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeAlias

import orjson

from roamcast.durable import make_folder, storage_errors, write_atomic
from roamcast.errors import CorruptionError

__all__ = ["FORMAT", "REGISTRY_FILE", "StoreLocation", "read_location", "record_location"]

FORMAT: Final = "roamcast-store-location/1"
REGISTRY_FILE: Final = "store.sqlite"

StoreLocation: TypeAlias = Path | str
"""A folder of SQLite files, or the URL of a PostgreSQL database."""

_RECORD: Final = "store.json"


def record_location(folder: Path, url: str | None) -> None:
    """Record in a node's folder that its stores are at `url`; None: in the folder itself. Raises StorageError."""
    path = folder / _RECORD
    content = orjson.dumps({"format": FORMAT, "url": url})
    make_folder(folder)
    with storage_errors(path):
        if path.exists() and path.read_bytes() == content:
            return
    write_atomic(path, content, private=True)


def read_location(folder: Path) -> StoreLocation:
    """Where the stores of the node with this folder are. Errors do not show the URL.

    Without a record, a registry in the folder counts: its node crashed during its first start. Raises CorruptionError
    if there is neither, or if the record is unreadable, and StorageError.
    """
    path = folder / _RECORD
    with storage_errors(path):
        if not path.exists():
            if (folder / REGISTRY_FILE).exists():
                return folder
            raise CorruptionError(
                "it is not known where the stores of this node are",
                where=str(folder),
                hint="start the node once; if it is gone for good, remove its folders in nodes/ and journal/",
            )
        content = path.read_bytes()
    try:
        record = orjson.loads(content)
        url = record["url"]
        if record["format"] != FORMAT or not (url is None or isinstance(url, str)):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        # Without its cause, which might show the content.
        raise CorruptionError("unreadable", where=str(path), hint="remove it, and start the node once") from None
    return folder if url is None else url
