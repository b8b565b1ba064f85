"""Tokens, and the publish proofs that sources make from them.

A token is 256 random bits. Only its SHA-256 is stored.

With a publish proof a source identifies itself to a node other than its home, without revealing its token. A proof is
made for one domain and is invalid elsewhere. Only the source's home, which has the hash of the token, can verify it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import NamedTuple, Self

__all__ = ["PublishProof", "hash_token", "new_token"]


def new_token() -> str:
    return secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


class PublishProof(NamedTuple):
    """The proof of source `id` of domain `home`. Its text takes the place of a token; tokens contain no slash."""

    home: str
    id: str
    proof: str

    def __str__(self) -> str:
        return "/".join(self)

    @classmethod
    def create(cls, token: str, home: str, id: str, domain: str) -> Self:
        """Create the proof for nodes of `domain`."""
        return cls(home, id, _mac(hash_token(token), home, id, domain))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """None for any other text, such as a token."""
        parts = text.split("/")
        return cls(*parts) if len(parts) == 3 else None

    def is_valid(self, domain: str, token_hash: str) -> bool:
        """For the home: whether it was made for `domain` with the token that has this hash."""
        return hmac.compare_digest(_mac(token_hash, self.home, self.id, domain).encode(), self.proof.encode())


def _mac(token_hash: str, home: str, id: str, domain: str) -> str:
    message = "\n".join(("roamcast publish proof", home, id, domain))
    return hmac.digest(token_hash.encode(), message.encode(), "sha256").hex()
