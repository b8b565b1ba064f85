"""Passports: how a source shows a node that is not its home who it is, without giving its token away.

A passport is made from the token, for one domain. Only the home of the source, which has the hash of the token, can
tell whether it is good; at nodes of other domains it is worth nothing.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import NamedTuple, Self

__all__ = ["Passport"]


class Passport(NamedTuple):
    """Of the source `id` of the domain `home`. As a text it takes the place of a token: no token has a slash."""

    home: str
    id: str
    proof: str

    def __str__(self) -> str:
        return "/".join(self)

    @classmethod
    def made(cls, token: str, home: str, id: str, domain: str) -> Self:
        """For nodes of `domain`."""
        token_hash = hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()
        return cls(home, id, _proof(token_hash, home, id, domain))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """None for what is none, such as a token."""
        parts = text.split("/")
        return cls(*parts) if len(parts) == 3 else None

    def is_good(self, domain: str, token_hash: str) -> bool:
        """For the home: whether who has the token of this hash has made it, for nodes of `domain`."""
        return hmac.compare_digest(_proof(token_hash, self.home, self.id, domain).encode(), self.proof.encode())


def _proof(token_hash: str, home: str, id: str, domain: str) -> str:
    message = "\n".join(("roamcast passport", home, id, domain))
    return hmac.digest(token_hash.encode(), message.encode(), "sha256").hex()
