"""Subscribers that have arrived at this node, in memory: lookups never wait for the disk."""

from __future__ import annotations

import hmac
from threading import Lock

from roamcast.errors import UnavailableError
from roamcast.security.tokens import hash_token, new_token
from roamcast.store.registry.visitors import Departure, SqlVisitors, Visitor

__all__ = ["Visitors"]


class Visitors:
    """Visitors and their tokens. Reads never block; changes wait for the disk. Thread-safe.

    At its home, a subscriber that has come back from another domain is among them, too.
    """

    def __init__(self, store: SqlVisitors) -> None:
        self._store = store
        self._lock = Lock()
        self._visitors = {visitor.name: visitor for visitor in store.all()}
        self._by_token = {visitor.token_hash: visitor.name for visitor in self._visitors.values() if visitor.token_hash}
        self._departed = {departure.token_hash: departure for departure in store.departures()}
        self._last_token = {departure.name: departure.token_hash for departure in self._departed.values()}

    def __len__(self) -> int:
        return len(self._visitors)

    def names(self) -> list[str]:
        return list(self._visitors)

    def find(self, name: str) -> Visitor | None:
        return self._visitors.get(name)

    def by_token(self, token_hash: str) -> str | None:
        return self._by_token.get(token_hash)

    def departed(self, token_hash: str) -> Departure | None:
        """The departure of the visitor that had this token."""
        return self._departed.get(token_hash)

    def record_arrival(self, name: str, epoch: int, move_proof: str, secret: str, before: Visitor | None) -> int:
        """Record an arrival whose move proof is valid. A token that the visitor has stays valid.

        Returns 0, or the recorded epoch if that is not lower than the given one. An arrival may be repeated with the
        same epoch and secret; the move proof alone is not enough, as the previous office has seen it. Raises
        UnavailableError if the record has changed since `before`, when the move proof was checked.
        """
        with self._lock:
            visitor = self._visitors.get(name)
            if (visitor and visitor[:3]) != (before and before[:3]):
                raise UnavailableError("another arrival is in progress", where=name, hint="arrive again")
            secret_hash = hash_token(secret)
            if visitor is None or epoch > visitor.epoch:
                self._put(Visitor(name, epoch, move_proof, secret_hash, visitor and visitor.token_hash))
                return 0
            is_repeated = epoch == visitor.epoch and hmac.compare_digest(secret_hash, visitor.secret_hash)
            return 0 if is_repeated else visitor.epoch

    def issue_token(self, name: str, epoch: int) -> str | None:
        """A new token, after the mailbox has arrived; older ones become invalid. None if the epoch is outdated."""
        with self._lock:
            visitor = self._visitors.get(name)
            if visitor is None or visitor.epoch != epoch:
                return None
            token = new_token()
            self._put(visitor._replace(token_hash=hash_token(token)))
            return token

    def leave(self, name: str, epoch: int, office: str | None = None) -> None:
        """The mailbox was granted to `office` in this epoch. The visitor's token now leads to that office."""
        with self._lock:
            visitor = self._visitors.get(name)
            if visitor is not None and visitor.epoch < epoch:
                departure = None
                if visitor.token_hash and office:
                    departure = Departure(name, visitor.token_hash, office, epoch)
                self._remove(visitor, departure)

    def forget(self, name: str, epoch: int) -> None:
        """Forget an arrival in this epoch that has failed."""
        with self._lock:
            visitor = self._visitors.get(name)
            if visitor is not None and visitor.epoch == epoch:
                self._remove(visitor, None)

    def _put(self, visitor: Visitor) -> None:
        before = self._visitors.get(visitor.name)
        self._store.put(visitor)
        self._visitors[visitor.name] = visitor
        if before is not None and before.token_hash:
            self._by_token.pop(before.token_hash, None)
        if visitor.token_hash:
            self._by_token[visitor.token_hash] = visitor.name

    def _remove(self, visitor: Visitor, departure: Departure | None) -> None:
        self._store.remove(visitor.name, departure)
        del self._visitors[visitor.name]
        self._by_token.pop(visitor.token_hash or "", None)
        if departure is not None:
            self._departed.pop(self._last_token.get(visitor.name, ""), None)
            self._departed[departure.token_hash] = departure
            self._last_token[visitor.name] = departure.token_hash
