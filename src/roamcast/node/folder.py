"""The data folder: where everything lies, and what makes it one of ours.

roamcast.json                    the format
operator.token                   opens what only the operator may do; readable by its owner alone
journal/<domain>/                what nodes write and the pipeline reads
outbox/                          what the pipeline writes and offices read
nodes/<domain>/store.sqlite      a node's registry and mailboxes
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

import orjson

from roamcast.durable import refusals_named, sync_folder, write_whole
from roamcast.errors import ConflictError

__all__ = ["FORMAT", "DataFolder"]

FORMAT = "roamcast-data/1"


@dataclass(frozen=True, slots=True)
class DataFolder:
    root: Path

    @classmethod
    def open(cls, root: Path) -> DataFolder:
        """Make the folder, or check that it is one. Raises ConflictError for another format."""
        card = root / "roamcast.json"
        with refusals_named(root):
            root.mkdir(parents=True, exist_ok=True)
            content = card.read_bytes() if card.exists() else None
        if content is None:
            write_whole(card, orjson.dumps({"format": FORMAT}) + b"\n")
        elif _format_of(content) != FORMAT:
            raise ConflictError(
                f"this folder is not in the format {FORMAT}",
                where=str(card),
                hint="choose another folder with --data, or the version of roamcast that wrote it",
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
        folder = self.root / "nodes" / domain
        with refusals_named(folder):
            folder.mkdir(parents=True, exist_ok=True)
        return folder / "store.sqlite"

    def operator_token(self) -> str:
        """The operator's token, made when it is first asked for."""
        path = self.root / "operator.token"
        with refusals_named(path):
            # A file without its last line is one whose writing was cut short.
            if path.exists() and (token := path.read_text()).endswith("\n"):
                return token.strip()
            token = secrets.token_urlsafe(32)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(token + "\n")
                file.flush()
                os.fsync(file.fileno())
            sync_folder(self.root)
        return token


def _format_of(content: bytes) -> object:
    try:
        card = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    return card.get("format") if isinstance(card, dict) else None
