"""Keys that two offices share, signatures made with them, and what makes a signed request good only once."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Final, NamedTuple

__all__ = ["Nonces", "Signed", "mac", "new_key", "same", "sealed", "signature", "signature_of_answer"]

_WINDOW: Final = 10_000  # requests of a sender that may overtake another
_SESSIONS: Final = 1_000  # of one sender that are told apart: as often as it may start while we run
_NONCE: Final = re.compile(r"(?P<receiver>[0-9a-f]{32})\.(?P<sender>[0-9a-f]{32})\.(?P<number>[0-9]{1,18})", re.ASCII)


def new_key() -> bytes:
    return secrets.token_bytes(32)


def mac(key: bytes, *parts: str | bytes) -> bytes:
    """Of all parts; what is in one part is never taken for two."""
    whole = b"".join(
        len(part).to_bytes(8, "big") + part
        for part in (part.encode() if isinstance(part, str) else part for part in parts)
    )
    return hmac.digest(key, whole, "sha256")


def same(one: str, other: str) -> bool:
    """Whether two codes are the same, in a time that does not tell where they differ; whatever they are made of."""
    return hmac.compare_digest(one.encode(), other.encode())


class Signed(NamedTuple):
    """What a signature covers. `nonce` is good for one request, see `Nonces`."""

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

    A nonce is the receiver's session, the sender's, and a number that counts in the sender's. So nothing has to be
    remembered over a restart of either, and no clock is needed.
    """

    def __init__(self) -> None:
        self.session = secrets.token_hex(16)
        self._own = secrets.token_hex(16)
        self._last = 0
        self._seen: dict[str, dict[str, _Seen]] = {}

    def next_for(self, session: str) -> str:
        """For a request of ours to who has this session."""
        self._last += 1
        return f"{session}.{self._own}.{self._last}"

    def first_time(self, sender: str, nonce: str) -> bool:
        """Whether a request of this session, signed by the sender, has not been seen yet. It has been from now on."""
        match = _NONCE.fullmatch(nonce)
        if match is None or match["receiver"] != self.session:
            return False
        sessions = self._seen.setdefault(sender, {})
        if match["sender"] not in sessions and len(sessions) >= _SESSIONS:
            self.session = secrets.token_hex(16)  # forgetting some would make their requests good again
            self._seen.clear()
            return False
        return sessions.setdefault(match["sender"], _Seen()).add(int(match["number"]))


class _Seen:
    """The numbers of one session of a sender, of which those far behind the highest are not remembered."""

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
            self._numbers = {it for it in self._numbers if it > self._highest - _WINDOW}
        return True
