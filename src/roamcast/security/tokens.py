"""Tokens: 256 random bits, of which only the SHA-256 is kept."""

from __future__ import annotations

import hashlib
import secrets

__all__ = ["hash_of", "new_token"]


def new_token() -> str:
    return secrets.token_urlsafe(32)


def hash_of(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()
