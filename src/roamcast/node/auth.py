"""Who is calling: tokens, and what each may do.

A token is 256 random bits. Only its SHA-256 is kept, and a caller is found by looking that hash up, so the time it
takes says nothing about any token.
"""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from roamcast.deliver.addressing import elsewhere_error
from roamcast.errors import AuthenticationError, CapacityError, PermissionDeniedError
from roamcast.node.control.entity_cache import EntityCache
from roamcast.node.office.names import SubscriberNames
from roamcast.node.office.visitors import Visitors
from roamcast.security.tokens import hash_of
from roamcast.store.registry.values import EntityKind

__all__ = ["Authenticator", "Caller", "RateLimiter", "Reader"]

_REMEMBERED = 10_000


class Caller(NamedTuple):
    id: str
    kind: EntityKind


class Reader(NamedTuple):
    """Who may read a mailbox, and the hash of the token that says so."""

    name: str
    token_hash: str


class Authenticator:
    """Tells callers by their tokens. Never blocks; safe between threads."""

    def __init__(self, entities: EntityCache, names: SubscriberNames, visitors: Visitors, operator_token: str) -> None:
        self._entities = entities
        self._names = names
        self._visitors = visitors
        self._operator = hash_of(operator_token)

    def caller(self, token: str | None) -> Caller:
        """Raises AuthenticationError without a token, or with one that nobody has."""
        if token is None:
            raise AuthenticationError(
                "this needs a token", where="Authorization", hint="send `Authorization: Bearer <token>`"
            )
        entity = self._entities.by_token(hash_of(token))
        if entity is None:
            raise AuthenticationError(
                "nobody here has this token", where="Authorization", hint="register, and use the token you get"
            )
        return Caller(entity.id, entity.kind)

    def reader(self, token: str | None) -> Reader:
        """Whose mailbox the token opens. Raises AuthenticationError, PermissionDeniedError for a source, and
        ElsewhereError for the token of a visitor that has left.
        """
        if token is not None and (name := self._visitors.by_token(hash_of(token))) is not None:
            return Reader(name, hash_of(token))
        if token is not None and (departure := self._visitors.departed(hash_of(token))) is not None:
            raise elsewhere_error(departure.name, departure.office, departure.epoch)
        caller = self.caller(token)
        if caller.kind != "subscriber":
            raise PermissionDeniedError(
                f"{caller.id} is no subscriber", where="Authorization", hint="register a subscriber, and use its token"
            )
        return Reader(self._names.of(caller.id), hash_of(token or ""))

    def still_reads(self, reader: Reader) -> bool:
        """Whether the token is still worth something."""
        known = self._visitors.by_token(reader.token_hash) is not None
        return known or self._entities.by_token(reader.token_hash) is not None

    def is_operator(self, token: str | None) -> bool:
        return token is not None and hmac.compare_digest(hash_of(token), self._operator)

    def check_operator(self, token: str | None) -> None:
        """Raises unless it is the operator's token."""
        if token is None:
            raise AuthenticationError(
                "this needs the operator's token", where="Authorization", hint="it is in DATA/operator.token"
            )
        if not self.is_operator(token):
            raise PermissionDeniedError(
                "only the operator may do this", where="Authorization", hint="the token is in DATA/operator.token"
            )


class RateLimiter:
    """For each caller a bucket: so many requests a second, and as many at once. Belongs to one event loop."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, caller: str) -> None:
        """Raises CapacityError for one request too many."""
        now = self._clock()
        left, at = self._buckets.pop(caller, (self._per_second, now))
        left = min(self._per_second, left + (now - at) * self._per_second)
        self._buckets[caller] = (left - 1 if left >= 1 else left, now)
        if len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)
        if left < 1:
            raise CapacityError(
                f"more than {self._per_second:g} requests a second", where=caller, hint="slow down, and try again"
            )
