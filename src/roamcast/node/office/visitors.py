"""Who is served here without being registered here: in memory, so that nobody who asks waits for the disk."""

from __future__ import annotations

import hmac
from threading import Lock

from roamcast.errors import UnavailableError
from roamcast.security.tokens import hash_of, new_token
from roamcast.store.registry.visitors import Departure, SqlVisitors, Visitor

__all__ = ["Visitors"]


class Visitors:
    """Reading never blocks; changes do. Safe between threads."""

    def __init__(self, store: SqlVisitors) -> None:
        self._store = store
        self._lock = Lock()
        self._known = {visitor.name: visitor for visitor in store.all()}
        self._by_token = {it.token_hash: it.name for it in self._known.values() if it.token_hash}
        self._departed = {departure.token_hash: departure for departure in store.departures()}
        self._last_token = {departure.name: departure.token_hash for departure in self._departed.values()}

    def __len__(self) -> int:
        return len(self._known)

    def names(self) -> list[str]:
        return list(self._known)

    def find(self, name: str) -> Visitor | None:
        return self._known.get(name)

    def by_token(self, token_hash: str) -> str | None:
        return self._by_token.get(token_hash)

    def departed(self, token_hash: str) -> Departure | None:
        """Who had this token when its mailbox was given away, and to which office."""
        return self._departed.get(token_hash)

    def announce(self, name: str, epoch: int, warrant: str, secret: str, before: Visitor | None) -> int:
        """It wants to be served here, and its warrant is good. A token that it has is still worth something.

        The epoch on record from now on; if that is not lower than the one given it has to come with a later one,
        unless it comes again with the same secret. A warrant alone is seen by the office that the mailbox comes from.
        Raises UnavailableError if what is known of it is not what it was `before`, when the warrant was looked at.
        """
        with self._lock:
            known = self._known.get(name)
            if (known and known[:3]) != (before and before[:3]):
                raise UnavailableError("another arrival is under way", where=name, hint="arrive again")
            secret_hash = hash_of(secret)
            if known is None or epoch > known.epoch:
                self._put(Visitor(name, epoch, warrant, secret_hash, known and known.token_hash))
                return 0
            again = epoch == known.epoch and hmac.compare_digest(secret_hash, known.secret_hash)
            return 0 if again else known.epoch

    def admit(self, name: str, epoch: int) -> str | None:
        """A new token, now that its mailbox is here; those it had before are worth nothing. None if it is later."""
        with self._lock:
            known = self._known.get(name)
            if known is None or known.epoch != epoch:
                return None
            token = new_token()
            self._put(known._replace(token_hash=hash_of(token)))
            return token

    def leave(self, name: str, epoch: int, office: str | None = None) -> None:
        """Its mailbox has been given away for this epoch, to this office: who comes with its token is told so."""
        with self._lock:
            known = self._known.get(name)
            if known is not None and known.epoch < epoch:
                departure = None
                if known.token_hash and office:
                    departure = Departure(name, known.token_hash, office, epoch)
                self._remove(known, departure)

    def forget(self, name: str, epoch: int) -> None:
        """Its arrival in this epoch has come to nothing."""
        with self._lock:
            known = self._known.get(name)
            if known is not None and known.epoch == epoch:
                self._remove(known, None)

    def _put(self, visitor: Visitor) -> None:
        before = self._known.get(visitor.name)
        self._store.put(visitor)
        self._known[visitor.name] = visitor
        if before is not None and before.token_hash:
            self._by_token.pop(before.token_hash, None)
        if visitor.token_hash:
            self._by_token[visitor.token_hash] = visitor.name

    def _remove(self, visitor: Visitor, departure: Departure | None) -> None:
        self._store.remove(visitor.name, departure)
        del self._known[visitor.name]
        self._by_token.pop(visitor.token_hash or "", None)
        if departure is not None:
            self._departed.pop(self._last_token.get(visitor.name, ""), None)
            self._departed[departure.token_hash] = departure
            self._last_token[visitor.name] = departure.token_hash
