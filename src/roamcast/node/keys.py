"""Keys that two offices share, signatures made with them, and what makes a signed request good only once."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import deque
from typing import Final, NamedTuple

__all__ = ["Nonces", "Signed", "mac", "new_key", "sealed", "signature", "signature_of_answer"]

_WINDOW: Final = 60_000_000_000  # nanoseconds by which a request may come after later ones


def new_key() -> bytes:
    return secrets.token_bytes(32)


def mac(key: bytes, *parts: str | bytes) -> bytes:
    """Of all parts; what is in one part is never taken for two."""
    whole = b"".join(
        len(part).to_bytes(8, "big") + part
        for part in (part.encode() if isinstance(part, str) else part for part in parts)
    )
    return hmac.digest(key, whole, "sha256")


class Signed(NamedTuple):
    """What a signature covers. `nonce` is the receiver's session and a number that the sender never uses again."""

    sender: str
    receiver: str
    url: str
    method: str
    path: str
    body: bytes
    nonce: str


def signature(key: bytes, signed: Signed) -> str:
    digest = hashlib.sha256(signed.body).digest()
    return mac(key, "request", *signed[:5], digest, signed.nonce).hex()


def signature_of_answer(key: bytes, nonce: str, body: bytes) -> str:
    return mac(key, "answer", nonce, hashlib.sha256(body).digest()).hex()


def sealed(key: bytes, secret: bytes, *context: str) -> bytes:
    """A secret of 32 bytes that only who has the key can read; the same again opens it. The context is never reused."""
    return bytes(a ^ b for a, b in zip(secret, mac(key, "seal", *context), strict=True))


class Nonces:
    """Each request once. A session lasts as long as a process: what was signed for an earlier one is worth nothing.

    So nothing has to be remembered over a restart, and clocks need not agree.
    """

    def __init__(self) -> None:
        self.session = secrets.token_hex(16)
        self._highest: dict[str, int] = {}
        self._seen: dict[str, tuple[set[int], deque[int]]] = {}
        self._last = 0

    def next_for(self, session: str) -> str:
        """For a request of ours to who has this session."""
        self._last = max(self._last + 1, time.time_ns())
        return f"{session}.{self._last}"

    def is_ours(self, nonce: str) -> bool:
        return nonce.partition(".")[0] == self.session

    def first_time(self, sender: str, nonce: str) -> bool:
        """Whether a request of this session, signed by the sender, has not been seen yet. It has been from now on."""
        session, _, text = nonce.partition(".")
        if session != self.session or not text.isascii() or not text.isdecimal() or len(text) > 20:
            return False
        number = int(text)
        seen, order = self._seen.setdefault(sender, (set(), deque()))
        highest = self._highest.get(sender, 0)
        if number in seen or number <= highest - _WINDOW:
            return False
        seen.add(number)
        order.append(number)
        self._highest[sender] = max(highest, number)
        while order and order[0] <= self._highest[sender] - _WINDOW:
            seen.discard(order.popleft())
        return True
