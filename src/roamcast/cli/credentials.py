"""The tokens of the entities that the commands speak for, kept between calls."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from roamcast.client import Client
from roamcast.client.calls import Attributes
from roamcast.durable import storage_errors
from roamcast.errors import AuthenticationError, ConflictError, CorruptionError, InputError, NotFoundError

__all__ = ["DELAYS", "Kind", "Tokens", "connect", "known", "operator", "register"]

Kind = Literal["source", "subscriber"]

DELAYS = (0.1, 0.4)
"""A person waits at the other end: give up sooner than a program would."""


class Tokens:
    """One file, readable by its owner alone, by address of the node and id of the entity."""

    def __init__(self, path: Path | None = None) -> None:
        given = os.environ.get("ROAMCAST_TOKENS")
        self.path = path or (Path(given) if given else Path.home() / ".config" / "roamcast" / "tokens.json")

    def get(self, url: str, id: str) -> str | None:
        return self._read().get(_key(url, id))

    def put(self, url: str, id: str, register: Callable[[], str]) -> None:
        """Keep the token that `register` gets. It is called once the file can be written: a token is told only once."""
        with storage_errors(self.path), self._locked():
            tokens = self._read()
            self._write(tokens)
            self._write({**tokens, _key(url, id): register()})

    def forget(self, url: str, id: str) -> None:
        with storage_errors(self.path), self._locked():
            self._write({key: token for key, token in self._read().items() if key != _key(url, id)})

    def _write(self, tokens: Mapping[str, str]) -> None:
        temporary = self.path.with_name(self.path.name + ".tmp")
        temporary.unlink(missing_ok=True)
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump({"format": "roamcast-tokens/1", "tokens": tokens}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(self.path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone among commands: a token that another one overwrites could not be had again."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.path.with_name(self.path.name + ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self) -> dict[str, str]:
        try:
            with storage_errors(self.path):
                text = self.path.read_text() if self.path.exists() else '{"tokens": {}}'
            return {str(key): str(token) for key, token in json.loads(text)["tokens"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptionError(
                "this is no file of tokens", where=str(self.path), hint="mend it, or choose another: ROAMCAST_TOKENS"
            ) from error


def connect(url: str, kind: Kind, id: str, x: float | None = None, y: float | None = None) -> Client:
    """A client that speaks for this entity, which is registered when it is first used.

    A name in full is that of a subscriber which has migrated to the node. Raises NotFoundError if it has not from here.
    """
    tokens = Tokens()
    if id.count(".") in (2, 3) and kind == "subscriber":
        if (visit := tokens.get(url, id)) is None:
            hint = f"bring its mailbox there first: roamcast migrate ID {url} --url HOME; looked in {tokens.path}"
            raise NotFoundError(f"no token of {id} at {url} is kept here", where=id, hint=hint)
        return Client(url, visit, delays=DELAYS)
    client = Client(url, tokens.get(url, id), delays=DELAYS)
    if client.token is not None:
        try:
            known = client.me()
        except AuthenticationError:
            pass  # the node has been set up anew since
        else:
            if known["kind"] != kind:
                raise ConflictError(f"{id} is a {known['kind']}", where="id", hint=f"choose another id for the {kind}")
            return client
    return register(url, kind, id, {}, x, y)


def register(
    url: str, kind: Kind, id: str, attributes: Attributes, x: float | None = None, y: float | None = None
) -> Client:
    """A client that speaks for this entity, which is new; its token is kept."""
    tokens = Tokens()
    client = Client(url, delays=DELAYS)
    asked = client.register_source if kind == "source" else client.register_subscriber
    try:
        tokens.put(url, id, lambda: asked(id, attributes=attributes, x=x, y=y))
    except ConflictError as error:
        hint = f"choose another, or set ROAMCAST_TOKENS to the file that has its token; looked in {tokens.path}"
        if _speaks_for(url, tokens.get(url, id)):
            hint = (
                f"it was registered from here, and its token is kept: see `roamcast where {id}`, or change and move it"
            )
        raise ConflictError(error.message, where=error.where, hint=hint) from error
    return client


def known(url: str, id: str) -> Client:
    """A client that speaks for this entity, which has been registered from here. Raises NotFoundError."""
    tokens = Tokens()
    token = tokens.get(url, id)
    if token is None:
        hint = f"register it: roamcast register; or set ROAMCAST_TOKENS; looked in {tokens.path}"
        raise NotFoundError(f"no token of {id} at {url} is kept here", where=id, hint=hint)
    return Client(url, token, delays=DELAYS)


def operator(url: str, file: Path | None, data: Path) -> Client:
    """A client that sees everybody: with the token in `file`, or else of the node whose data is in `data`."""
    path = file or data / "operator.token"
    if not path.is_file():
        hint = "it is DATA/operator.token of the node: give --operator-token-file, or --data (ROAMCAST_DATA)"
        raise InputError("there is no such file with the operator's token", where=str(path), hint=hint)
    with storage_errors(path):
        return Client(url, path.read_text().strip(), delays=DELAYS)


def _speaks_for(url: str, token: str | None) -> bool:
    """Whether somebody at the node has this token."""
    if token is None:
        return False
    try:
        with Client(url, token, delays=DELAYS) as client:
            client.me()
    except AuthenticationError:
        return False
    return True


def _key(url: str, id: str) -> str:
    return f"{url.rstrip('/')} {id}"
