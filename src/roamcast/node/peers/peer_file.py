"""The peer file: the offices a node knows and the keys it shares with them. Readable by its owner only."""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, Self

import orjson

from roamcast.durable import storage_errors, write_atomic
from roamcast.errors import CorruptionError, InputError

__all__ = ["FORMAT", "Introduction", "Invitation", "Peer", "Peers"]

FORMAT = "roamcast-peers/1"

_VALID = 3600 * 1_000_000  # lifetime of an invitation, in microseconds


@dataclass(frozen=True, slots=True)
class Peer:
    """Another office: its domain, its URL, and the key shared with it (hexadecimal).

    `invitation` is the id of the invitation we joined with. `introducer` is the office that introduced it, if neither
    of us joined the other.
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
    """Lets the node of one domain join, until it expires or is used."""

    id: str
    domain: str
    key: str
    expires: int

    @property
    def secret(self) -> bytes:
        return bytes.fromhex(self.key)

    @property
    def code(self) -> str:
        """The code for the operator of the other node."""
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
            hint = "the operator of the other node gets one with: roamcast invite"
            message = "not an invitation code" if code else "an invitation is required to join"
            raise InputError(message, where="invitation", hint=hint) from None
        return id, key


@dataclass(frozen=True, slots=True)
class Introduction:
    """A pending introduction: tell the office `to` about `domain`, and the key to share with it."""

    to: str
    domain: str
    key: str


@dataclass(frozen=True, slots=True)
class _PeerFileContent:
    peers: dict[str, Peer]
    invitations: dict[str, Invitation]
    introductions: tuple[Introduction, ...]

    @classmethod
    def of(cls, content: dict[str, Any]) -> Self:
        return cls(
            {peer["domain"]: Peer(**peer) for peer in content["peers"]},
            {invitation["id"]: Invitation(**invitation) for invitation in content["invitations"]},
            tuple(Introduction(**introduction) for introduction in content["introductions"]),
        )


def _without(introductions: tuple[Introduction, ...], domain: str) -> tuple[Introduction, ...]:
    """The introductions that do not concern a domain."""
    return tuple(each for each in introductions if domain not in (each.to, each.domain))


class Peers:
    """The peers of a node. Changes are durable when they return. Thread-safe."""

    def __init__(self, path: Path) -> None:
        """Raises CorruptionError, and StorageError if the disk fails."""
        self._path = path
        self._lock = Lock()
        self._content = _PeerFileContent({}, {}, ())
        with storage_errors(path):
            content = path.read_bytes() if path.exists() else b""
        if content:
            try:
                document = orjson.loads(content)
                if document["format"] != FORMAT:
                    raise ValueError(f"format {document['format']!r}")
                self._content = _PeerFileContent.of(document)
            except (LookupError, TypeError, ValueError) as error:
                raise CorruptionError(
                    f"not a {FORMAT} file: {error}", where=str(path), hint="restore it, or remove it and join again"
                ) from error

    def __len__(self) -> int:
        return len(self._content.peers)

    def all(self) -> list[Peer]:
        return sorted(self._content.peers.values(), key=lambda peer: peer.domain)

    def names(self) -> list[str]:
        """The domains of all peers."""
        return list(self._content.peers)

    def find(self, domain: str) -> Peer | None:
        return self._content.peers.get(domain)

    def put(self, peer: Peer, *introductions: Introduction) -> None:
        """Add or replace a peer, and store pending introductions."""
        with self._lock:
            content = self._content
            if content.peers.get(peer.domain) == peer and not introductions:
                return
            kept = _without(content.introductions, peer.domain) if introductions else content.introductions
            self._write(
                replace(content, peers={**content.peers, peer.domain: peer}, introductions=(*kept, *introductions))
            )

    def put_introduced(self, peer: Peer) -> bool:
        """Add or replace an introduced peer; False, without a change, if it is known from another office."""
        with self._lock:
            known = self._content.peers.get(peer.domain)
            if known is not None and known.introducer != peer.introducer:
                return False
            self._write(replace(self._content, peers={**self._content.peers, peer.domain: peer}))
            return True

    def remove(self, domain: str) -> bool:
        """Remove a peer; whether it was known."""
        with self._lock:
            if domain not in self._content.peers:
                return False
            left = {name: peer for name, peer in self._content.peers.items() if name != domain}
            kept = _without(self._content.introductions, domain)
            self._write(replace(self._content, peers=left, introductions=kept))
            return True

    def set_url(self, domain: str, url: str) -> None:
        peer = self.find(domain)
        if peer is not None and peer.url != url:
            self.put(replace(peer, url=url))

    def invite(self, domain: str, now: int) -> Invitation:
        invitation = Invitation(secrets.token_hex(8), domain, secrets.token_hex(32), now + _VALID)
        with self._lock:
            valid = {id: other for id, other in self._content.invitations.items() if other.expires > now}
            self._write(replace(self._content, invitations={**valid, invitation.id: invitation}))
        return invitation

    def invitation(self, id: str, now: int) -> Invitation | None:
        invitation = self._content.invitations.get(id)
        return invitation if invitation is not None and invitation.expires > now else None

    def mark_joined(self, domain: str) -> None:
        """Invalidate the invitations of a domain that has joined."""
        with self._lock:
            invitations = self._content.invitations
            left = {id: invitation for id, invitation in invitations.items() if invitation.domain != domain}
            if len(left) < len(invitations):
                self._write(replace(self._content, invitations=left))

    def introductions(self) -> tuple[Introduction, ...]:
        return self._content.introductions

    def remove_introduction(self, introduction: Introduction) -> None:
        with self._lock:
            left = tuple(other for other in self._content.introductions if other != introduction)
            self._write(replace(self._content, introductions=left))

    def _write(self, content: _PeerFileContent) -> None:
        document = {
            "format": FORMAT,
            "peers": [asdict(peer) for peer in content.peers.values()],
            "invitations": [asdict(invitation) for invitation in content.invitations.values()],
            "introductions": [asdict(introduction) for introduction in content.introductions],
        }
        write_atomic(self._path, orjson.dumps(document, option=orjson.OPT_INDENT_2), private=True)
        self._content = content
