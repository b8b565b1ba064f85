"""Signed requests between offices: shared keys, signatures, and nonces that make each request valid once."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Final, NamedTuple

__all__ = [
    "Nonces", "SignedRequest", "body_digest", "encrypt", "mac", "new_key", "response_signature", "same", "sender_order",
    "signature",
]  # fmt: skip

_WINDOW: Final = 10_000  # how far a sender's requests may arrive out of order
_SESSIONS: Final = 1_000  # of one sender, that is restarts of it while this process runs
_NONCE: Final = re.compile(r"(?P<receiver>[0-9a-f]{32})\.(?P<sender>[0-9a-f]{32})\.(?P<number>[0-9]{1,18})", re.ASCII)


def new_key() -> bytes:
    return secrets.token_bytes(32)


def mac(key: bytes, *parts: str | bytes) -> bytes:
    """HMAC-SHA256 of the parts. Each part is prefixed with its length, so parts cannot be confused."""
    whole = b"".join(
        len(part).to_bytes(8, "big") + part
        for part in (part.encode() if isinstance(part, str) else part for part in parts)
    )
    return hmac.digest(key, whole, "sha256")


def same(one: str, other: str) -> bool:
    """Compare two codes of any characters in constant time."""
    return hmac.compare_digest(one.encode(), other.encode())


class SignedRequest(NamedTuple):
    """What a signature covers. `digest` is that of the body: see `body_digest`. For `nonce` see `Nonces`."""

    sender: str
    receiver: str
    url: str
    method: str
    path: str
    digest: str
    nonce: str


def body_digest(body: bytes) -> str:
    """Sent beside the signature, which can so be verified before the body is read."""
    return hashlib.sha256(body).hexdigest()


def signature(key: bytes, request: SignedRequest) -> str:
    return mac(key, "request", *request).hex()


def response_signature(key: bytes, nonce: str, body: bytes) -> str:
    """The signature of the response to the request with this nonce."""
    return mac(key, "answer", nonce, hashlib.sha256(body).digest()).hex()


def encrypt(key: bytes, secret: bytes, *context: str) -> bytes:
    """Encrypt a secret of 32 bytes; the same call decrypts it. Never use a context twice."""
    return bytes(a ^ b for a, b in zip(secret, mac(key, "seal", *context), strict=True))


class Nonces:
    """Makes nonces, and accepts each request once.

    A nonce consists of the receiver's session, the sender's session, and a number that the sender counts up. A session
    lasts as long as its process; a restart invalidates what was signed before. So neither side has to store anything,
    and no clock is needed.
    """

    def __init__(self) -> None:
        self.session = secrets.token_hex(16)
        self._own = secrets.token_hex(16)
        self._last = 0
        self._seen: dict[str, dict[str, _SeenNumbers]] = {}

    def next_for(self, session: str) -> str:
        """The nonce of our next request to the receiver with this session."""
        self._last += 1
        return f"{session}.{self._own}.{self._last}"

    def accept(self, sender: str, nonce: str) -> bool:
        """Whether the nonce is of the current session and new. It is used up then."""
        match = _NONCE.fullmatch(nonce)
        if match is None or match["receiver"] != self.session:
            return False
        sessions = self._seen.setdefault(sender, {})
        if match["sender"] not in sessions and len(sessions) >= _SESSIONS:
            self.session = secrets.token_hex(16)  # forgetting old sessions would make their requests valid again
            self._seen.clear()
            return False
        return sessions.setdefault(match["sender"], _SeenNumbers()).add(int(match["number"]))


def sender_order(nonce: str) -> tuple[str, int]:
    """The sender's session in an accepted nonce, and a number by which its requests of this session are in order."""
    _, session, number = nonce.split(".")
    return session, int(number)


class _SeenNumbers:
    """The numbers of one session of a sender. Numbers far below the highest count as seen."""

    def __init__(self) -> None:
        self._highest = 0
        self._numbers: set[int] = set()

    def add(self, number: int) -> bool:
        """Whether it is new."""
        if number in self._numbers or number <= self._highest - _WINDOW:
            return False
        self._numbers.add(number)
        self._highest = max(self._highest, number)
        if len(self._numbers) > 2 * _WINDOW:
            self._numbers = {number for number in self._numbers if number > self._highest - _WINDOW}
        return True
