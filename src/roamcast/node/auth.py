"""Authentication of callers by their tokens, and rate limits.

A token is 256 random bits. Only its SHA-256 is stored. Callers are looked up by that hash, so response times reveal
nothing about tokens.
"""

from __future__ import annotations

import hmac
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from roamcast.deliver.addressing import SubscriberNames, elsewhere_error, home_of
from roamcast.errors import AuthenticationError, CapacityError, PermissionDeniedError
from roamcast.node.callers import Caller, unknown_token
from roamcast.node.control.entity_cache import EntityCache
from roamcast.node.office.visitors import Visitors
from roamcast.security.tokens import hash_token
from roamcast.store.registry.visitors import Visitor

__all__ = ["Authenticator", "MailboxReader", "RateLimiter"]

_REMEMBERED = 10_000


class MailboxReader(NamedTuple):
    """Who may read a mailbox, and the hash of the token used."""

    name: str
    token_hash: str


class Authenticator:
    """Identifies callers by their tokens. Never blocks. Thread-safe."""

    def __init__(self, entities: EntityCache, names: SubscriberNames, visitors: Visitors, operator_token: str) -> None:
        self._entities = entities
        self._names = names
        self._visitors = visitors
        self._operator = hash_token(operator_token)

    def caller(self, token: str | None) -> Caller:
        """The entity that the token is of: its own, or that of its mailbox after its return from another node.

        Raises AuthenticationError for a missing or unknown token, PermissionDeniedError for that of a visitor, and
        ElsewhereError for that of a departed one.
        """
        return self.caller_of(_hash_of(token))

    def caller_of(self, token_hash: str) -> Caller:
        """As `caller`, for the hash of a token."""
        entity = self._entities.by_token(token_hash)
        if entity is None and (name := self._mailbox_of(token_hash)) is not None:
            if (id := self._names.id_of(name)) is None:
                raise PermissionDeniedError(
                    f"{name} is a visitor here", where="Authorization", hint=f"do this at its home, {home_of(name)}"
                )
            entity = self._entities.find(id)
        if entity is None:
            raise unknown_token()
        return Caller(entity.id, entity.kind, None if entity.kind == "subscriber" else token_hash)

    def reader(self, token: str | None) -> MailboxReader:
        """The reader of the mailbox that the token opens.

        Raises AuthenticationError, PermissionDeniedError for a source, and ElsewhereError for a departed visitor.
        """
        return self.reader_of(_hash_of(token))

    def reader_of(self, token_hash: str) -> MailboxReader:
        """As `reader`, for the hash of a token."""
        if (name := self._mailbox_of(token_hash)) is not None:
            return MailboxReader(name, token_hash)
        caller = self.caller_of(token_hash)
        if caller.kind != "subscriber":
            raise PermissionDeniedError(
                f"{caller.id} is not a subscriber", where="Authorization", hint="use the token of a subscriber"
            )
        return MailboxReader(self._names.of(caller.id), token_hash)

    def visitor(self, token: str | None) -> Visitor | None:
        """The subscriber of another domain that the token is of, if its mailbox is here. Raises ElsewhereError."""
        name = None if token is None else self._mailbox_of(hash_token(token))
        return None if name is None or self._names.is_home_of(name) else self._visitors.find(name)

    def is_valid(self, reader: MailboxReader) -> bool:
        """Whether the reader's token is still valid."""
        is_visitor = self._visitors.by_token(reader.token_hash) is not None
        return is_visitor or self._entities.by_token(reader.token_hash) is not None

    def is_operator(self, token: str | None) -> bool:
        return token is not None and hmac.compare_digest(hash_token(token), self._operator)

    def check_operator(self, token: str | None) -> None:
        """Raises AuthenticationError without a token, PermissionDeniedError for any but the operator's."""
        if token is None:
            raise AuthenticationError(
                "the operator token is required", where="Authorization", hint="it is in DATA/operator.token"
            )
        if not self.is_operator(token):
            raise PermissionDeniedError(
                "only the operator may do this",
                where="Authorization",
                hint="the operator token is in DATA/operator.token",
            )

    def _mailbox_of(self, token_hash: str) -> str | None:
        """The name of the subscriber whose mailbox has arrived here and is opened by the token with this hash.

        Raises ElsewhereError if it has left.
        """
        name = self._visitors.by_token(token_hash)
        if name is None and (departure := self._visitors.departed(token_hash)) is not None:
            raise elsewhere_error(departure.name, departure.office, departure.epoch)
        return name


def _hash_of(token: str | None) -> str:
    if token is None:
        raise AuthenticationError(
            "a token is required", where="Authorization", hint="send `Authorization: Bearer <token>`"
        )
    return hash_token(token)


class RateLimiter:
    """A token bucket for each caller: `per_second` requests, and as many in a burst. Belongs to one event loop."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, caller: str) -> None:
        """Count a request. Raises CapacityError if the caller is over its rate."""
        now = self._clock()
        left, at = self._buckets.pop(caller, (self._per_second, now))
        left = min(self._per_second, left + (now - at) * self._per_second)
        self._buckets[caller] = (left - 1 if left >= 1 else left, now)
        if len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)
        if left < 1:
            raise CapacityError(
                f"more than {self._per_second:g} requests per second", where=caller, hint="try again later"
            )
