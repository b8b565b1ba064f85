"""Seeds of the hash of texts: three words."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

__all__ = ["seed_of"]


def seed_of(content: bytes | memoryview) -> npt.NDArray[np.uint64]:
    """The same for the same bytes, and not to be guessed by who does not know them all."""
    return np.frombuffer(hashlib.blake2b(content, digest_size=24).digest(), np.uint64)
