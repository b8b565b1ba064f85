"""Move proofs: how a subscriber, and nobody else, authorises each migration of its mailbox.

A subscriber's token is the seed of hash chains, one after the other. Within a chain, the link of epoch e is the hash of
the link of epoch e + 1: who has seen past links can verify the next one but cannot make it. The end of a chain, the
anchor, is authenticated with the hash of the token, which only the subscriber's home knows.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self

from roamcast.errors import InputError
from roamcast.security.tokens import hash_token

__all__ = ["EPOCHS", "LAST_EPOCH", "MoveProof", "MoveProofChain", "follows", "is_far", "is_valid"]

EPOCHS: Final = 100_000
"""The epochs of one chain."""
LAST_EPOCH: Final = 2**52
"""No subscriber arrives that often: a later epoch is forged."""

_KEPT_EVERY: Final = 1_000  # links
_FAR: Final = 1_000  # epochs; bounds the hashing an unauthenticated caller can cause


@dataclass(frozen=True, slots=True)
class MoveProof:
    """The authorisation of one migration: the link of its epoch, and the anchor with the proof of its origin."""

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
            raise InputError("not a move proof", where="move_proof", hint=hint) from None
        return cls(link, anchor, proof)


class MoveProofChain:
    """Makes the move proofs of one token. The first in each chain of EPOCHS epochs takes some 50 ms."""

    def __init__(self, token: str) -> None:
        self._token = token.encode(errors="surrogatepass")
        self._token_hash = hash_token(token)

    def proof(self, name: str, epoch: int) -> MoveProof:
        """The proof for the subscriber `name`. Raises InputError for an invalid epoch."""
        if not 1 <= epoch <= LAST_EPOCH:
            raise InputError(f"invalid epoch {epoch}", where="epoch", hint="use one more than the last epoch")
        chain, step = _chain_and_step(epoch)
        links = _make_links(self._token, chain)
        kept = -(-step // _KEPT_EVERY) * _KEPT_EVERY
        link, anchor = _hash_repeatedly(links[kept], kept - step), links[0]
        return MoveProof(link, anchor, _anchor_mac(self._token_hash, name, chain, anchor))


@lru_cache(maxsize=256)  # each has 10 kB; a program may make another client for the same subscriber
def _make_links(token: bytes, chain: int) -> Mapping[int, bytes]:
    """Every thousandth link of a chain."""
    link = hmac.digest(token, b"roamcast chain %d" % chain, "sha256")
    links = {EPOCHS: link}
    for step in range(EPOCHS - 1, -1, -1):
        link = hashlib.sha256(link).digest()
        if step % _KEPT_EVERY == 0:
            links[step] = link
    return links


def follows(link: bytes, epoch: int, earlier: bytes, earlier_epoch: int) -> bool:
    """Whether the link of `epoch` belongs to the same chain as the link of an earlier epoch, or is the same.

    False if the epochs are too far apart to tell, see `is_far`.
    """
    if epoch < earlier_epoch or is_far(epoch, earlier_epoch):
        return False
    return hmac.compare_digest(_hash_repeatedly(link, epoch - earlier_epoch), earlier)


def is_far(epoch: int, earlier_epoch: int) -> bool:
    """Whether only the home can tell if the link of `epoch` follows that of `earlier_epoch`."""
    return epoch - earlier_epoch > _FAR or _chain_and_step(epoch)[0] != _chain_and_step(earlier_epoch)[0]


def is_valid(proof: MoveProof, name: str, epoch: int, token_hash: str) -> bool:
    """For the home: whether the proof was made for this name and epoch with the token that has this hash."""
    if not 1 <= epoch <= LAST_EPOCH:
        return False
    chain, step = _chain_and_step(epoch)
    if not hmac.compare_digest(_anchor_mac(token_hash, name, chain, proof.anchor), proof.proof):
        return False
    return hmac.compare_digest(_hash_repeatedly(proof.link, step), proof.anchor)


def _chain_and_step(epoch: int) -> tuple[int, int]:
    """The number of the epoch's chain, and the distance from its anchor."""
    chain = (epoch - 1) // EPOCHS
    return chain, epoch - chain * EPOCHS


def _anchor_mac(token_hash: str, name: str, chain: int, anchor: bytes) -> bytes:
    parts = b"roamcast anchor %d" % chain, name.encode(), anchor
    return hmac.digest(token_hash.encode(), b"\n".join(parts), "sha256")


def _hash_repeatedly(link: bytes, times: int) -> bytes:
    for _ in range(times):
        link = hashlib.sha256(link).digest()
    return link
