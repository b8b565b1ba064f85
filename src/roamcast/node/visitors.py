"""Who is served here without being registered here: in memory, so that nobody who asks waits for the disk."""

from __future__ import annotations

from threading import Lock

from roamcast.node.tokens import hash_of, new_token
from roamcast.store.sql_visitors import SqlVisitors, Visitor

__all__ = ["Visitors"]


class Visitors:
    """Reading never blocks; changes do. Safe between threads."""

    def __init__(self, store: SqlVisitors) -> None:
        self._store = store
        self._lock = Lock()
        self._known = {visitor.name: visitor for visitor in store.all()}
        self._by_token = {it.token_hash: it.name for it in self._known.values() if it.token_hash}

    def __len__(self) -> int:
        return len(self._known)

    def find(self, name: str) -> Visitor | None:
        return self._known.get(name)

    def by_token(self, token_hash: str) -> str | None:
        return self._by_token.get(token_hash)

    def announce(self, name: str, epoch: int, link: bytes) -> None:
        """It wants to be served here, and its warrant is good. A token that it has is still worth something."""
        with self._lock:
            known = self._known.get(name)
            if known is None or epoch > known.epoch:
                self._put(Visitor(name, epoch, link, known and known.token_hash))

    def admit(self, name: str, epoch: int) -> str | None:
        """A new token, now that its mailbox is here; those it had before are worth nothing. None if it is later."""
        with self._lock:
            known = self._known.get(name)
            if known is None or known.epoch != epoch:
                return None
            token = new_token()
            self._put(known._replace(token_hash=hash_of(token)))
            return token

    def leave(self, name: str, epoch: int) -> None:
        """Its mailbox has been given away for this epoch."""
        with self._lock:
            known = self._known.get(name)
            if known is not None and known.epoch < epoch:
                self._store.remove(name)
                del self._known[name]
                self._by_token.pop(known.token_hash or "", None)

    def _put(self, visitor: Visitor) -> None:
        before = self._known.get(visitor.name)
        self._store.put(visitor)
        self._known[visitor.name] = visitor
        if before is not None and before.token_hash:
            self._by_token.pop(before.token_hash, None)
        if visitor.token_hash:
            self._by_token[visitor.token_hash] = visitor.name
