"""The other offices that a node knows, and the keys it shares with them, in a file for its owner alone."""

from __future__ import annotations

import os
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, Self

import orjson

from roamcast.durable import storage_errors, sync_folder
from roamcast.errors import CorruptionError, InputError

__all__ = ["FORMAT", "Introduction", "Invitation", "Peer", "Peers"]

FORMAT = "roamcast-peers/1"

_VALID = 3600 * 1_000_000  # microseconds that an invitation is good for


@dataclass(frozen=True, slots=True)
class Peer:
    """Another office, where it listens, and the key shared with it (hexadecimal).

    `invitation` is that of our join; `introducer` the office that told us of it, if neither of us joined the other.
    """

    domain: str
    url: str
    key: str
    invitation: str = ""
    introducer: str = ""

    @property
    def secret(self) -> bytes:
        return bytes.fromhex(self.key)


@dataclass(frozen=True, slots=True)
class Invitation:
    """Leave for the node of one domain to join, until it expires or has joined."""

    id: str
    domain: str
    key: str
    expires: int

    @property
    def secret(self) -> bytes:
        return bytes.fromhex(self.key)

    @property
    def code(self) -> str:
        """What the operator of the other node is given."""
        return f"{self.id}.{urlsafe_b64encode(self.secret).decode()}"

    @staticmethod
    def read(code: str) -> tuple[str, bytes]:
        """The id and the secret of a code. Raises InputError."""
        id, _, secret = code.strip().partition(".")
        try:
            key = urlsafe_b64decode(secret)
            if not id or len(key) != 32:
                raise ValueError
        except ValueError:
            hint = "ask the operator of the node you join: roamcast invite"
            raise InputError("this is no invitation", where="invitation", hint=hint) from None
        return id, key


@dataclass(frozen=True, slots=True)
class Introduction:
    """To tell the office `to` of another and of the key it shall share with it, until it has heard."""

    to: str
    domain: str
    key: str


@dataclass(frozen=True, slots=True)
class _Book:
    peers: dict[str, Peer]
    invitations: dict[str, Invitation]
    introductions: tuple[Introduction, ...]

    @classmethod
    def of(cls, content: dict[str, Any]) -> Self:
        return cls(
            {peer["domain"]: Peer(**peer) for peer in content["peers"]},
            {given["id"]: Invitation(**given) for given in content["invitations"]},
            tuple(Introduction(it["to"], it["domain"], it["key"]) for it in content["introductions"]),
        )


class Peers:
    """Every change is on disk when it returns. Safe between threads."""

    def __init__(self, path: Path) -> None:
        """Raises CorruptionError, and StorageError when the disk refuses."""
        self._path = path
        self._lock = Lock()
        self._book = _Book({}, {}, ())
        with storage_errors(path):
            content = path.read_bytes() if path.exists() else b""
        if content:
            try:
                card = orjson.loads(content)
                if card["format"] != FORMAT:
                    raise ValueError(f"format {card['format']!r}")
                self._book = _Book.of(card)
            except (LookupError, TypeError, ValueError) as error:
                raise CorruptionError(
                    f"not a {FORMAT} file: {error}", where=str(path), hint="restore it, or remove it and join again"
                ) from error

    def __len__(self) -> int:
        return len(self._book.peers)

    def all(self) -> list[Peer]:
        return sorted(self._book.peers.values(), key=lambda peer: peer.domain)

    def find(self, domain: str) -> Peer | None:
        return self._book.peers.get(domain)

    def put(self, peer: Peer, *introductions: Introduction) -> None:
        """Add it, or replace what was known of it; and remember whom to tell."""
        with self._lock:
            book = self._book
            if book.peers.get(peer.domain) == peer and not introductions:
                return
            kept = tuple(it for it in book.introductions if peer.domain not in (it.to, it.domain) or not introductions)
            self._write(replace(book, peers={**book.peers, peer.domain: peer}, introductions=(*kept, *introductions)))

    def meet(self, peer: Peer) -> bool:
        """As `put`, for one that was introduced; False, and nothing changes, if it is known from elsewhere."""
        with self._lock:
            known = self._book.peers.get(peer.domain)
            if known is not None and known.introducer != peer.introducer:
                return False
            self._write(replace(self._book, peers={**self._book.peers, peer.domain: peer}))
            return True

    def remove(self, domain: str) -> bool:
        """Whether it was known."""
        with self._lock:
            if domain not in self._book.peers:
                return False
            left = {name: peer for name, peer in self._book.peers.items() if name != domain}
            kept = tuple(it for it in self._book.introductions if domain not in (it.to, it.domain))
            self._write(replace(self._book, peers=left, introductions=kept))
            return True

    def moved(self, domain: str, url: str) -> None:
        """The peer listens elsewhere now."""
        peer = self.find(domain)
        if peer is not None and peer.url != url:
            self.put(replace(peer, url=url))

    def invite(self, domain: str, now: int) -> Invitation:
        invitation = Invitation(secrets.token_hex(8), domain, secrets.token_hex(32), now + _VALID)
        with self._lock:
            valid = {id: it for id, it in self._book.invitations.items() if it.expires > now}
            self._write(replace(self._book, invitations={**valid, invitation.id: invitation}))
        return invitation

    def invitation(self, id: str, now: int) -> Invitation | None:
        found = self._book.invitations.get(id)
        return found if found is not None and found.expires > now else None

    def used(self, domain: str) -> None:
        """The domain has joined: its invitations are worth nothing any more."""
        with self._lock:
            left = {id: it for id, it in self._book.invitations.items() if it.domain != domain}
            if len(left) < len(self._book.invitations):
                self._write(replace(self._book, invitations=left))

    def introductions(self) -> tuple[Introduction, ...]:
        return self._book.introductions

    def introduced(self, introduction: Introduction) -> None:
        with self._lock:
            left = tuple(it for it in self._book.introductions if it != introduction)
            self._write(replace(self._book, introductions=left))

    def _write(self, book: _Book) -> None:
        content = {
            "format": FORMAT,
            "peers": [asdict(peer) for peer in book.peers.values()],
            "invitations": [asdict(invitation) for invitation in book.invitations.values()],
            "introductions": [asdict(introduction) for introduction in book.introductions],
        }
        temporary = self._path.with_name(self._path.name + ".tmp")
        with storage_errors(self._path):
            temporary.unlink(missing_ok=True)
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(orjson.dumps(content, option=orjson.OPT_INDENT_2))
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(self._path)
            sync_folder(self._path.parent)
        self._book = book
