"""Tickets for streams: short-lived, in place of a token, for browsers, which cannot send one with `EventSource`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from roamcast.errors import AuthenticationError, CapacityError
from roamcast.security.tokens import hash_token, new_token

__all__ = ["StreamKind", "StreamTickets"]

StreamKind = Literal["mailbox", "demand"]

_SECONDS: Final = 60.0
_MOST_OF_ONE: Final = 100  # tickets of one token that are valid at the same time


class _Ticket(NamedTuple):
    stream: StreamKind
    token_hash: str
    end: float


class StreamTickets:
    """Tickets that are valid, at most `most`. Belongs to one event loop.

    A ticket opens one kind of stream of one token, as often as needed within a minute. It is worth nothing without the
    token, whose validity is to be checked when the ticket is used. Only hashes are kept, in memory: tickets do not
    survive a restart.
    """

    seconds = _SECONDS

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._tickets: dict[str, _Ticket] = {}  # by hash, oldest first
        self._counts: Counter[str] = Counter()  # by token hash

    def issue(self, stream: StreamKind, token_hash: str) -> str:
        """A new ticket. Raises CapacityError."""
        self._drop_expired()
        if self._counts[token_hash] >= _MOST_OF_ONE or len(self._tickets) >= self._most:
            raise CapacityError(
                "too many tickets are valid", where="ticket", hint=f"try again within {_SECONDS:g} seconds"
            )
        ticket = new_token()
        self._tickets[hash_token(ticket)] = _Ticket(stream, token_hash, self._clock() + _SECONDS)
        self._counts[token_hash] += 1
        return ticket

    def token_hash(self, stream: StreamKind, ticket: str) -> str:
        """The hash of the token that a ticket was issued for. Raises AuthenticationError."""
        self._drop_expired()
        known = self._tickets.get(hash_token(ticket))
        if known is None or known.stream != stream:
            raise AuthenticationError(
                "unknown or expired ticket", where="ticket", hint="create another one: see /docs, tickets"
            )
        return known.token_hash

    def _drop_expired(self) -> None:
        now = self._clock()
        while self._tickets:
            key, ticket = next(iter(self._tickets.items()))
            if ticket.end > now:
                return
            del self._tickets[key]
            self._counts[ticket.token_hash] -= 1
            if not self._counts[ticket.token_hash]:
                del self._counts[ticket.token_hash]
