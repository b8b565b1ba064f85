"""The data folder.

roamcast.json                    format, and the space of its coordinates
operator.token                   operator token; readable by its owner only
journal/<domain>/                written by nodes, read by the pipeline
outbox/                          written by the pipeline, read by offices
nodes/<domain>/store.json        where the stores of a node are (see store/location); readable by its owner only
nodes/<domain>/store.sqlite      its registry, unless the stores are in PostgreSQL
nodes/<domain>/office.sqlite     its post office: mailboxes and queued letters
nodes/<domain>/tracked        exists while the node tracks its entities for the archive
nodes/<domain>/peers.json        its peers and the keys shared with them; readable by its owner only
"""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from roamcast.durable import make_folder, storage_errors, sync_folder
from roamcast.errors import ConflictError, CorruptionError

__all__ = ["FORMAT", "DataFolder"]

FORMAT = "roamcast-data/2"


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The paths of a data folder, and its id, which is unique among all data folders. Others must not learn it."""

    root: Path
    id: str = ""

    @classmethod
    def open(cls, root: Path, space: str) -> DataFolder:
        """Create the folder, accessible to its owner only, or check an existing one.

        Raises ConflictError for another format or space.
        """
        path = root / "roamcast.json"
        make_folder(root, mode=0o700)
        new = {"format": FORMAT, "space": space, "id": secrets.token_hex(16)}
        description = _parse(_create_or_read(path, orjson.dumps(new) + b"\n"))
        if description.get("format") != FORMAT or "id" not in description:
            raise ConflictError(
                f"the folder does not have the format {FORMAT}",
                where=str(path),
                hint="choose another folder with --data, or use the version of roamcast that wrote it",
            )
        if (other := description.get("space")) != space:
            raise ConflictError(
                f"the coordinates of this folder are {other}, not {space}",
                where=str(path),
                hint=f"use --space {other} (ROAMCAST_SPACE), or choose another folder with --data",
            )
        return cls(root, str(description["id"]))

    @property
    def journal(self) -> Path:
        return self.root / "journal"

    @property
    def outbox(self) -> Path:
        return self.root / "outbox"

    def peers(self, domain: str) -> Path:
        """The path of a node's peer file. Creates its folder."""
        return self.node_folder(domain) / "peers.json"

    def link_with(self, node: str) -> str:
        """The name of the path from a node to this data folder. Only that node and those of this folder know it.

        Who knows it can take the events that wait there, so each node gets another one.
        """
        return sha256(f"{self.id}\n{node}".encode()).hexdigest()[:32]

    def has_node(self, domain: str) -> bool:
        """Whether the node of this domain uses this data folder."""
        return (self.root / "nodes" / domain).is_dir()

    def node_folder(self, domain: str) -> Path:
        """The folder of a node. Creates it."""
        folder = self.root / "nodes" / domain
        make_folder(folder)
        return folder

    def operator_token(self) -> str:
        """The operator token, created at first use. Concurrent callers get the same one."""
        path = self.root / "operator.token"
        token = _create_or_read(path, f"{secrets.token_urlsafe(32)}\n".encode()).decode(errors="replace").strip()
        if not token:
            raise CorruptionError(
                "the file has no token", where=str(path), hint="delete it: the node creates a new one"
            )
        return token


def _create_or_read(path: Path, content: bytes) -> bytes:
    """The content of the file. If there is none, create it with `content`, atomically and for its owner only.

    Of concurrent callers one creates it, and all get that content.
    """
    with storage_errors(path):
        if not path.exists():
            descriptor, temporary = tempfile.mkstemp(".tmp", f"{path.name}.", path.parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                with suppress(FileExistsError):
                    os.link(temporary, path)
            finally:
                Path(temporary).unlink()
            sync_folder(path.parent)
        return path.read_bytes()


def _parse(content: bytes) -> dict[str, Any]:
    try:
        description = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return description if isinstance(description, dict) else {}
