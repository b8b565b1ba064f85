"""Warrants: how a subscriber authorises each of its migrations, and nobody else can.

A subscriber's token is the seed of a chain of hashes. The link of epoch e is the hash of the link of epoch e + 1: who
has seen the links of past epochs can check the next one but not make it. The end of the chain, the anchor, is vouched
for with the hash of the token, which only the subscriber's home knows.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Final, Self

from roamcast.errors import InputError

__all__ = ["EPOCHS", "Chain", "Warrant", "follows", "is_vouched_for"]

EPOCHS: Final = 100_000
"""The last epoch of a token: as many arrivals as it is good for."""

_STEP: Final = 1_000


@dataclass(frozen=True, slots=True)
class Warrant:
    """Leave to move a mailbox, for one epoch: its link, and the anchor with the proof that it is the subscriber's."""

    link: bytes
    anchor: bytes
    proof: bytes

    def __str__(self) -> str:
        return f"{self.link.hex()}.{self.anchor.hex()}.{self.proof.hex()}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises InputError."""
        try:
            link, anchor, proof = map(bytes.fromhex, text.split("."))
            if {len(link), len(anchor), len(proof)} != {32}:
                raise ValueError
        except ValueError:
            hint = "make it from the token: see Client.migrate"
            raise InputError("this is no warrant", where="warrant", hint=hint) from None
        return cls(link, anchor, proof)


class Chain:
    """The links of one token. Making it takes some 50 ms; every thousandth link is remembered."""

    def __init__(self, token: str) -> None:
        self._token_hash = hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()
        link = hmac.digest(token.encode(errors="surrogatepass"), b"roamcast chain", "sha256")
        self._kept = {EPOCHS: link}
        for epoch in range(EPOCHS - 1, -1, -1):
            link = hashlib.sha256(link).digest()
            if epoch % _STEP == 0:
                self._kept[epoch] = link

    def warrant(self, name: str, epoch: int) -> Warrant:
        """Raises InputError for an epoch beyond the last."""
        if not 1 <= epoch <= EPOCHS:
            raise InputError(
                f"the token is good for {EPOCHS} arrivals, and they are used up", where="epoch", hint="get a new token"
            )
        kept = -(-epoch // _STEP) * _STEP
        link = _hashed(self._kept[kept], kept - epoch)
        return Warrant(link, self._kept[0], _proof(self._token_hash, name, self._kept[0]))


def follows(link: bytes, epoch: int, earlier: bytes, earlier_epoch: int) -> bool:
    """Whether the link of `epoch` is of the same chain as one of an earlier epoch, or is that one."""
    if not earlier_epoch <= epoch <= EPOCHS:
        return False
    return hmac.compare_digest(_hashed(link, epoch - earlier_epoch), earlier)


def is_vouched_for(warrant: Warrant, name: str, epoch: int, token_hash: str) -> bool:
    """For the home: whether who has the token of this hash has made the warrant, for this name and epoch."""
    if not hmac.compare_digest(_proof(token_hash, name, warrant.anchor), warrant.proof):
        return False
    return follows(warrant.link, epoch, warrant.anchor, 0)


def _proof(token_hash: str, name: str, anchor: bytes) -> bytes:
    return hmac.digest(token_hash.encode(), b"\n".join((b"roamcast anchor", name.encode(), anchor)), "sha256")


def _hashed(link: bytes, times: int) -> bytes:
    for _ in range(times):
        link = hashlib.sha256(link).digest()
    return link
