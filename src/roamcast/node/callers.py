"""Who makes a request, and for which entities it may act."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from roamcast.errors import AuthenticationError, PermissionDeniedError
from roamcast.store.registry.port import unknown_source
from roamcast.store.registry.values import Entity, EntityKind

__all__ = ["Caller", "check_caller", "check_rights", "is_current", "unknown_token"]

_SHOWN: Final = 128  # characters of an id


class Caller(NamedTuple):
    """The entity that makes a request, as it was when its token was looked up.

    `token_hash` tells it from another entity that has got the same id since. None if there cannot be one: the id of a
    subscriber is never used again.
    """

    id: str
    kind: EntityKind
    token_hash: str | None = None


def unknown_token() -> AuthenticationError:
    return AuthenticationError(
        "unknown token", where="Authorization", hint="use the token returned by the registration"
    )


def is_current(caller: Caller, find: Callable[[str], Entity | None]) -> bool:
    """Whether the caller is still registered, with the same token. `find` knows entities."""
    entity = find(caller.id)
    return entity is not None and entity.kind == caller.kind and caller.token_hash in (None, entity.token_hash)


def check_caller(caller: Caller, find: Callable[[str], Entity | None]) -> None:
    """Raises AuthenticationError unless `is_current`."""
    if not is_current(caller, find):
        raise unknown_token()


def check_rights(caller: Caller, ids: Iterable[str], find: Callable[[str], Entity | None]) -> None:
    """Raise unless each of these entities is the caller or one of its sources now. `find` knows entities.

    Raises as `check_caller`, NotFoundError for what is no source, and PermissionDeniedError for a source of others.
    """
    check_caller(caller, find)
    for id in ids:
        if id == caller.id:
            continue
        entity = find(id)
        if entity is None or entity.kind != "source":
            raise unknown_source(id[:_SHOWN])
        if entity.gateway != caller.id:
            raise PermissionDeniedError(
                f"source {id} does not belong to gateway {caller.id}",
                where="id",
                hint="GET /v1/sources lists its sources",
            )
