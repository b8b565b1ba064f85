"""A table of features: which workers hold a subscription that has one."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.match.kernels.compiled import kernel
from roamcast.match.kernels.memory import folded_product
from roamcast.match.kernels.scalars import Whole, i64, u64

__all__ = ["Asked", "mix_terms", "place_features", "probe_features"]

Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]

_FIRST: Final = u64(0x9E3779B97F4A7C15)
_SECOND: Final = u64(0xC2B2AE3D27D4EB4F)
_HALF: Final = u64(32)


class Asked(NamedTuple):
    """Pairs of an event and a feature it has; and for each event its terms term[first[i]:first[i + 1]], hashed."""

    of: Integers
    key: Keys
    first: Integers
    term: Keys


@kernel
def _mixed(key: int, term: int) -> Whole:
    """One number for both; never 0, which marks an empty slot of a table."""
    h = (u64(key) ^ u64(term)) * _FIRST
    return max((h ^ (h >> _HALF)) * _SECOND, u64(1))


@kernel
def mix_terms(key: Keys, term: Keys, mixed: Keys) -> None:
    """Features with the terms beside them."""
    for i in range(len(key)):
        mixed[i] = _mixed(key[i], term[i])


@kernel
def _slot(key: int, seed: Keys, size: int) -> Whole:
    """Where a table with this seed begins to look: who does not know the seed cannot choose features that collide."""
    return i64(((folded_product(u64(key) ^ seed[0], seed[1]) >> _HALF) * u64(size)) >> _HALF)


@kernel
def _find(key: int, seed: Keys, table: Keys) -> Whole:
    """The slot of a feature, or -1."""
    slot = _slot(key, seed, len(table))
    while table[slot] != 0:
        if table[slot] == key:
            return slot
        slot = slot + 1 if slot + 1 < len(table) else i64(0)
    return i64(-1)


@kernel
def place_features(key: Keys, mask: Keys, seed: Keys, table: Keys, masks: Keys) -> None:
    """Enter distinct features into an empty table with more slots than features; 0 is an empty one."""
    for i in range(len(key)):
        slot = _slot(key[i], seed, len(table))
        while table[slot] != 0:
            slot = slot + 1 if slot + 1 < len(table) else i64(0)
        table[slot], masks[slot] = key[i], mask[i]


@kernel
def probe_features(asked: Asked, seed: Keys, table: Keys, masks: Keys, found: Keys) -> None:
    """Add to the mask of each event those of the features it has, and of these with each of its terms."""
    for i in range(len(asked.key)):
        slot = _find(asked.key[i], seed, table)
        if slot < 0:
            continue
        event = asked.of[i]
        found[event] |= masks[slot]
        for at in range(asked.first[event], asked.first[event + 1]):
            second = _find(_mixed(asked.key[i], asked.term[at]), seed, table)
            if second >= 0:
                found[event] |= masks[second]
