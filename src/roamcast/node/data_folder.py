"""The data folder: where everything lies, and what makes it one of ours.

roamcast.json                    the format, and the space that its coordinates are in
operator.token                   opens what only the operator may do; readable by its owner alone
journal/<domain>/                what nodes write and the pipeline reads
outbox/                          what the pipeline writes and offices read
nodes/<domain>/store.sqlite      a node's registry
nodes/<domain>/office.sqlite     its post office: mailboxes, and letters on their way
nodes/<domain>/peers.json        the offices it knows, and the keys shared with them; readable by its owner alone
"""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from roamcast.durable import make_folder, storage_errors, sync_folder, write_atomic
from roamcast.errors import ConflictError, CorruptionError

__all__ = ["FORMAT", "DataFolder"]

FORMAT = "roamcast-data/1"


@dataclass(frozen=True, slots=True)
class DataFolder:
    root: Path

    @classmethod
    def open(cls, root: Path, space: str) -> DataFolder:
        """Make the folder, for its owner alone, or check that it is one.

        Raises ConflictError for another format or space. A folder that does not say its space is in the one given, and
        says so from then on.
        """
        path = root / "roamcast.json"
        make_folder(root, mode=0o700)
        given = {"format": FORMAT, "space": space}
        card = _card_of(_first_put(path, orjson.dumps(given) + b"\n"))
        if card.get("format") != FORMAT:
            raise ConflictError(
                f"this folder is not in the format {FORMAT}",
                where=str(path),
                hint="choose another folder with --data, or the version of roamcast that wrote it",
            )
        if "space" not in card:
            write_atomic(path, orjson.dumps(given) + b"\n")
        elif card["space"] != space:
            raise ConflictError(
                f"the coordinates in this folder are {card['space']}, not {space}",
                where=str(path),
                hint=f"start with --space {card['space']} (ROAMCAST_SPACE), or choose another folder with --data",
            )
        return cls(root)

    @property
    def journal(self) -> Path:
        return self.root / "journal"

    @property
    def outbox(self) -> Path:
        return self.root / "outbox"

    def store(self, domain: str) -> Path:
        """The path of a node's store, in a folder that exists."""
        return self._own(domain) / "store.sqlite"

    def peers(self, domain: str) -> Path:
        """The path of the file of offices that a node knows, in a folder that exists."""
        return self._own(domain) / "peers.json"

    def _own(self, domain: str) -> Path:
        folder = self.root / "nodes" / domain
        make_folder(folder)
        return folder

    def operator_token(self) -> str:
        """The operator's token, made when it is first asked for. Nodes that ask at the same time get the same one."""
        path = self.root / "operator.token"
        token = _first_put(path, f"{secrets.token_urlsafe(32)}\n".encode()).decode(errors="replace").strip()
        if not token:
            raise CorruptionError("this file has no token", where=str(path), hint="remove it: another token is made")
        return token


def _first_put(path: Path, content: bytes) -> bytes:
    """What is at `path`: if nothing was, `content`, whole, durable and for its owner alone.

    Of several that come at the same time one is first, and all get what it put.
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


def _card_of(content: bytes) -> dict[str, Any]:
    try:
        card = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return card if isinstance(card, dict) else {}
