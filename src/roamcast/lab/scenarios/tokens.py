"""Tokens of a scenario's entities, stored between runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from roamcast.durable import storage_errors, write_atomic
from roamcast.errors import CorruptionError

__all__ = ["FORMAT", "Identity", "ScenarioTokens"]

FORMAT = "roamcast-scenario-tokens/1"


class Identity(NamedTuple):
    """The id of an entity at its node, and its token."""

    id: str
    token: str


class ScenarioTokens:
    """A file in `folder`, readable only by its owner. Names of entities are the scenario's own."""

    def __init__(self, folder: Path, scenario: str) -> None:
        """Raises CorruptionError if the file has another format, StorageError if it cannot be read."""
        self._path = folder / f"{scenario}.tokens.json"
        with storage_errors(self._path):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            text = self._path.read_text() if self._path.exists() else json.dumps({"format": FORMAT})
        try:
            content = json.loads(text)
            if content["format"] != FORMAT:
                raise ValueError(f"format {content['format']!r}")
            self._identities = {name: Identity(*pair) for name, pair in content.get("tokens", {}).items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CorruptionError(
                f"not a readable {FORMAT} file: {error}",
                where=str(self._path),
                hint="remove it; the scenario then registers under new names",
            ) from error

    def get(self, name: str) -> Identity | None:
        """The identity of an entity, or None."""
        return self._identities.get(name)

    def put(self, name: str, identity: Identity) -> None:
        """Store an identity durably."""
        self._identities[name] = identity
        content = {"format": FORMAT, "tokens": self._identities}
        write_atomic(self._path, json.dumps(content, indent=1).encode(), private=True)
