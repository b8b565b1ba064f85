"""The tokens of the entities that were registered from this machine. Programs and commands share them."""

from __future__ import annotations

import fcntl
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from roamcast.client.defaults import client_defaults
from roamcast.durable import storage_errors, write_atomic
from roamcast.errors import CorruptionError, StorageError
from roamcast.security.tokens import new_token

__all__ = ["TokenFile"]

_FORMAT: Final = "roamcast-tokens/1"
_OTHERS: Final = 0o077  # permissions of other users


class TokenFile:
    """A JSON file with tokens by node URL and entity id. Only its owner may have access to it.

    `localhost`, `127.0.0.1` and `[::1]` are the same node. Several programs can use the file at the same time.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or client_defaults().tokens

    def get(self, url: str, id: str) -> str | None:
        return self._read().get(_key(url, id))

    def urls(self, id: str) -> list[str]:
        """The nodes for which a token of this id is stored."""
        return sorted(url for url, known in map(_split_key, self._read()) if known == id)

    def ids(self, url: str) -> list[str]:
        """The ids whose tokens for this node are stored."""
        return sorted(id for known, id in map(_split_key, self._read()) if known == _filed_url(url))

    def get_or_create(self, url: str, id: str) -> str:
        """The stored token, or a new one, which is stored before it is returned."""
        if (known := self.get(url, id)) is not None:
            return known
        with storage_errors(self.path), self._lock():
            tokens = self._read()
            token = tokens.setdefault(_key(url, id), new_token())
            self._write(tokens)
            return token

    def put(self, url: str, id: str, obtain: Callable[[], str]) -> None:
        """Store the token that `obtain` returns. It is called once the file is known to be writable: a node shows a
        token only once.
        """
        with storage_errors(self.path), self._lock():
            tokens = self._read()
            self._write(tokens)
            self._write({**tokens, _key(url, id): obtain()})

    def remove(self, url: str, id: str) -> None:
        with storage_errors(self.path), self._lock():
            self._write({key: token for key, token in self._read().items() if key != _key(url, id)})

    def _write(self, tokens: Mapping[str, str]) -> None:
        content = json.dumps({"format": _FORMAT, "tokens": tokens}, indent=1)
        write_atomic(self.path, content.encode(), private=True)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Exclude other programs: a token that is overwritten cannot be recovered."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.path.with_name(self.path.name + ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self) -> dict[str, str]:
        try:
            with storage_errors(self.path):
                if not self.path.exists():
                    return {}
                self._check_permissions()
                text = self.path.read_text()
            content = json.loads(text)
            if content["format"] != _FORMAT:
                raise ValueError(f"format {content['format']!r}")
            return {_key(*_split_key(key)): str(token) for key, token in content["tokens"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            hint = "repair it, or set ROAMCAST_TOKENS to another file"
            raise CorruptionError("not a token file", where=str(self.path), hint=hint) from error

    def _check_permissions(self) -> None:
        if self.path.is_file() and self.path.stat().st_mode & _OTHERS:
            hint = f"run `chmod 600 {self.path}`; if somebody may have read it, `roamcast renew-token`"
            raise StorageError("other users have access to these tokens", where=str(self.path), hint=hint)


def _filed_url(url: str) -> str:
    return re.sub(r"(?i)^(https?://)(localhost|\[::1\])(?=:|$)", r"\g<1>127.0.0.1", url.rstrip("/"))


def _key(url: str, id: str) -> str:
    return f"{_filed_url(url)} {id}"


def _split_key(key: str) -> tuple[str, str]:
    url, _, id = key.rpartition(" ")
    return url, id
