"""Clients of commands, with the tokens that are stored on this machine.

The client package is imported when a command runs: httpx is slow to import.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from roamcast.durable import storage_errors
from roamcast.errors import AuthenticationError, ConflictError, InputError, NotFoundError

if TYPE_CHECKING:
    from roamcast.client import Client
    from roamcast.client.calls import Attributes
    from roamcast.client.tokens import TokenFile

__all__ = [
    "EntityKind", "anonymous_client", "entity_client", "entity_or_operator_client", "node_url", "operator_client",
    "operator_or_entity_client", "register_entity", "registered_client", "stored_tokens",
]  # fmt: skip

EntityKind = Literal["source", "subscriber", "gateway"]

_DELAYS: Final = (0.1, 0.4)  # seconds between attempts; short, as a user is waiting


def stored_tokens() -> TokenFile:
    """The tokens that are stored on this machine."""
    from roamcast.client.tokens import TokenFile

    return TokenFile()


def node_url(url: str | None) -> str:
    """The node to call: --url, ROAMCAST_URL, the settings file, or the default."""
    from roamcast.client.defaults import client_defaults

    return url or client_defaults().url


def anonymous_client(url: str | None, token: str | None = None) -> Client:
    """A client with this token, or with none."""
    from roamcast.client import Client

    return Client(node_url(url), token, delays=_DELAYS)


def entity_client(url: str | None, id: str) -> Client:
    """A client that acts as an entity that was registered from here. Raises NotFoundError.

    A full name (domain.host.id) is a subscriber of another domain that was migrated to this node from here.
    """
    url, tokens = node_url(url), stored_tokens()
    token = tokens.get(url, id)
    if token is None:
        hint = (
            f"register it: `roamcast register source|subscriber|gateway {id}`, or pass --gateway if it belongs to one"
        )
        if others := tokens.urls(id):
            hint = f"its token is stored for {', '.join(others)}: pass --url"
        elif similar := get_close_matches(id, tokens.ids(url), 1):
            hint = f"did you mean {similar[0]!r}? {hint}"
        hint += f"; looked in {tokens.path}"
        if id.count(".") in (2, 3):
            hint = f"migrate its mailbox first with `roamcast migrate ID {url} --url HOME`; looked in {tokens.path}"
        raise NotFoundError(f"no token for {id!r} at {url}", where=id, hint=hint)
    return anonymous_client(url, token)


def registered_client(url: str | None, kind: EntityKind, id: str) -> Client | None:
    """Like `entity_client`, but None if the token is missing or no longer valid."""
    url = node_url(url)
    token = stored_tokens().get(url, id)
    if token is None or (known := _entity_of(url, token)) is None:
        return None
    if known != kind:
        raise ConflictError(f"{id} is a {known}", where=id, hint=f"use another id for the {kind}")
    return anonymous_client(url, token)


def register_entity(
    url: str | None, kind: EntityKind, id: str, attributes: Attributes, x: float | None = None, y: float | None = None
) -> Client:
    """Register an entity, store its token and return its client. Raises ConflictError if the id is taken."""
    url, tokens = node_url(url), stored_tokens()
    client = anonymous_client(url)

    def obtain() -> str:
        if kind == "gateway":
            return client.register_gateway(id, attributes=attributes)
        call = client.register_source if kind == "source" else client.register_subscriber
        return call(id, attributes=attributes, x=x, y=y)

    try:
        tokens.put(url, id, obtain)
    except (ConflictError, InputError) as error:
        if error.where == "id":
            error.where = id
        if isinstance(error, ConflictError):
            error.hint = f"use another id, or set ROAMCAST_TOKENS to the file with its token; looked in {tokens.path}"
            token = tokens.get(url, id)
            if token is not None and _entity_of(url, token) is not None:
                error.hint = f"it was registered from here and its token is stored: see `roamcast where {id}`"
        raise
    return client


def operator_client(url: str | None, token_file: Path | None, data: Path | None) -> Client:
    """A client with the operator token: from `token_file`, or from the data folder."""
    path = _operator_token_path(token_file, data)
    if not path.is_file():
        hint = "it is operator.token in the node's data folder: pass --operator-token-file or --data"
        raise AuthenticationError("operator token not found", where=str(path), hint=hint)
    with storage_errors(path):
        return anonymous_client(url, path.read_text().strip())


def operator_or_entity_client(url: str | None, id: str | None, token_file: Path | None, data: Path | None) -> Client:
    """The client of an entity, unless none is given or the operator token is passed explicitly."""
    return operator_client(url, token_file, data) if id is None or token_file is not None else entity_client(url, id)


def entity_or_operator_client(url: str | None, id: str, token_file: Path | None, data: Path | None) -> Client:
    """The client of an entity, unless its token is not stored but the operator's is, or that is passed explicitly."""
    has_token = stored_tokens().get(node_url(url), id) is not None
    if token_file is None and (has_token or not _operator_token_path(None, data).is_file()):
        return entity_client(url, id)
    return operator_client(url, token_file, data)


def _operator_token_path(path: Path | None, data: Path | None) -> Path:
    from roamcast.client.defaults import client_defaults

    defaults = client_defaults()
    return path or defaults.operator_token_file or (data or defaults.data) / "operator.token"


def _entity_of(url: str, token: str) -> str | None:
    """The kind of the entity with this token; None if the node does not know the token."""
    try:
        with anonymous_client(url, token) as client:
            return str(client.me()["kind"])
    except AuthenticationError:
        return None
