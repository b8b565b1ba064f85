"""Who is calling: tokens, and what each may do.

A token is 256 random bits. Only its SHA-256 is kept, and a caller is found by looking that hash up, so the time it
takes says nothing about any token.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from typing import NamedTuple

from roamcast.errors import AuthenticationError, PermissionDeniedError
from roamcast.store.port import EntityKind, RegistryStore

__all__ = ["Caller", "Gate", "hash_of", "new_token"]

_REMEMBERED = 10_000


def new_token() -> str:
    return secrets.token_urlsafe(32)


def hash_of(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


class Caller(NamedTuple):
    id: str
    kind: EntityKind


class Gate:
    """Tells callers by their tokens. Safe between threads: it only ever forgets what it can look up again."""

    def __init__(self, registry: RegistryStore, operator_token: str) -> None:
        self._registry = registry
        self._operator = hash_of(operator_token)
        self._known: OrderedDict[str, Caller] = OrderedDict()

    def known(self, token: str) -> Caller | None:
        """The caller, if it has been here lately; never blocks."""
        return self._known.get(hash_of(token))

    def caller(self, token: str | None) -> Caller:
        """Raises AuthenticationError without a token, or with one that nobody has."""
        if token is None:
            raise AuthenticationError(
                "this needs a token", where="Authorization", hint="send `Authorization: Bearer <token>`"
            )
        key = hash_of(token)
        entity = self._registry.entity_by_token(key)
        if entity is None:
            raise AuthenticationError(
                "nobody here has this token", where="Authorization", hint="register, and use the token you get"
            )
        caller = Caller(entity.id, entity.kind)
        self._known[key] = caller
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return caller

    def check_operator(self, token: str | None) -> None:
        """Raises unless it is the operator's token."""
        if token is None:
            raise AuthenticationError(
                "this needs the operator's token", where="Authorization", hint="it is in DATA/operator.token"
            )
        if not hmac.compare_digest(hash_of(token), self._operator):
            raise PermissionDeniedError(
                "only the operator may do this", where="Authorization", hint="the token is in DATA/operator.token"
            )
