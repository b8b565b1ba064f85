"""Warrants: how a subscriber authorises each of its migrations, and nobody else can.

A subscriber's token is the seed of chains of hashes, one after the other. Within a chain the link of epoch e is the
hash of the link of epoch e + 1: who has seen the links of past epochs can check the next one but not make it. The end
of a chain, the anchor, is vouched for with the hash of the token, which only the subscriber's home knows.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Final, Self

from roamcast.errors import InputError

__all__ = ["EPOCHS", "LAST_EPOCH", "Chain", "Warrant", "follows", "is_far", "is_vouched_for"]

EPOCHS: Final = 100_000
"""The epochs of one chain."""
LAST_EPOCH: Final = 2**52
"""Nobody arrives that often: who speaks of a later one lies."""

_STEP: Final = 1_000
_FAR: Final = 1_000  # epochs; who has no token is not to have an office hash for long


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
    """The links of one token. Its first use takes some 50 ms, and so does the first beyond each EPOCHS epochs."""

    def __init__(self, token: str) -> None:
        self._token = token.encode(errors="surrogatepass")
        self._token_hash = hashlib.sha256(self._token).hexdigest()
        self._turn = -1
        self._kept: dict[int, bytes] = {}  # every thousandth link of the chain used last

    def warrant(self, name: str, epoch: int) -> Warrant:
        """Raises InputError for what is no epoch."""
        if not 1 <= epoch <= LAST_EPOCH:
            raise InputError(f"there is no epoch {epoch}", where="epoch", hint="give one more than the last")
        turn, step = _place(epoch)
        if turn != self._turn:
            self._make(turn)
        kept = -(-step // _STEP) * _STEP
        link, anchor = _hashed(self._kept[kept], kept - step), self._kept[0]
        return Warrant(link, anchor, _proof(self._token_hash, name, turn, anchor))

    def _make(self, turn: int) -> None:
        link = hmac.digest(self._token, b"roamcast chain %d" % turn, "sha256")
        self._kept = {EPOCHS: link}
        for step in range(EPOCHS - 1, -1, -1):
            link = hashlib.sha256(link).digest()
            if step % _STEP == 0:
                self._kept[step] = link
        self._turn = turn


def follows(link: bytes, epoch: int, earlier: bytes, earlier_epoch: int) -> bool:
    """Whether the link of `epoch` is of the same chain as one of an earlier epoch, or is that one.

    Of one that is far it cannot be said, see `is_far`.
    """
    if epoch < earlier_epoch or is_far(epoch, earlier_epoch):
        return False
    return hmac.compare_digest(_hashed(link, epoch - earlier_epoch), earlier)


def is_far(epoch: int, earlier_epoch: int) -> bool:
    """Whether only the home can tell if the link of `epoch` follows."""
    return epoch - earlier_epoch > _FAR or _place(epoch)[0] != _place(earlier_epoch)[0]


def is_vouched_for(warrant: Warrant, name: str, epoch: int, token_hash: str) -> bool:
    """For the home: whether who has the token of this hash has made the warrant, for this name and epoch."""
    if not 1 <= epoch <= LAST_EPOCH:
        return False
    turn, step = _place(epoch)
    if not hmac.compare_digest(_proof(token_hash, name, turn, warrant.anchor), warrant.proof):
        return False
    return hmac.compare_digest(_hashed(warrant.link, step), warrant.anchor)


def _place(epoch: int) -> tuple[int, int]:
    """Which chain it belongs to, and how far it is from its end."""
    turn = (epoch - 1) // EPOCHS
    return turn, epoch - turn * EPOCHS


def _proof(token_hash: str, name: str, turn: int, anchor: bytes) -> bytes:
    parts = b"roamcast anchor %d" % turn, name.encode(), anchor
    return hmac.digest(token_hash.encode(), b"\n".join(parts), "sha256")


def _hashed(link: bytes, times: int) -> bytes:
    for _ in range(times):
        link = hashlib.sha256(link).digest()
    return link
