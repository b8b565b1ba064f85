"""A table of features: which workers hold a subscription that has one, and which strips of its cell each wants."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from roamcast.match.kernels.compiled import kernel
from roamcast.match.kernels.memory import folded_product
from roamcast.match.kernels.scalars import Whole, i64, u8, u64

__all__ = ["ANYONE", "Asked", "Slots", "mix_terms", "place_features", "probe_features"]

Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Strips = npt.NDArray[np.uint32]
Workers = npt.NDArray[np.uint8]

ANYONE: Final = u8(255)
"""Is no worker."""
_FIRST: Final = u64(0x9E3779B97F4A7C15)
_SECOND: Final = u64(0xC2B2AE3D27D4EB4F)
_HALF: Final = u64(32)


class Asked(NamedTuple):
    """An event, a feature it has, and the strips it is in; and for each event its terms term[first[i]:first[i + 1]],
    hashed."""

    of: Integers
    key: Keys
    strips: Strips
    first: Integers
    term: Keys


class Slots(NamedTuple):
    """Of a table: a feature, 0 where a slot is empty; a worker that holds it; and the strips which that one wants.

    A feature has a slot for each of its workers. ANYONE's is for those who want a second term with it.
    """

    key: Keys
    worker: Workers
    strips: Strips


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
def place_features(listed: Slots, seed: Keys, table: Slots) -> None:
    """Enter features, each once for a worker, into an empty table that has more slots."""
    for i in range(len(listed.key)):
        slot = _slot(listed.key[i], seed, len(table.key))
        while table.key[slot] != 0:
            slot = slot + 1 if slot + 1 < len(table.key) else i64(0)
        table.key[slot], table.worker[slot], table.strips[slot] = listed.key[i], listed.worker[i], listed.strips[i]


@kernel
def _holders(key: int, strips: int, seed: Keys, table: Slots) -> Whole:
    """A bit for each worker that wants an event in these strips; and whether others do, if it has a second term."""
    found, others, slot = u64(0), False, _slot(key, seed, len(table.key))
    while table.key[slot] != 0:
        if table.key[slot] == key and strips & ~table.strips[slot] == 0:
            if table.worker[slot] == ANYONE:
                others = True
            else:
                found |= u64(1) << u64(table.worker[slot])
        slot = slot + 1 if slot + 1 < len(table.key) else i64(0)
    return found, others


@kernel
def probe_features(asked: Asked, seed: Keys, table: Slots, found: Keys) -> None:
    """Add to the mask of each event the workers that hold one of its features, alone or with another of its terms."""
    for i in range(len(asked.key)):
        event = asked.of[i]
        holders, others = _holders(asked.key[i], asked.strips[i], seed, table)
        found[event] |= holders
        if others:
            for at in range(asked.first[event], asked.first[event + 1]):
                found[event] |= _holders(_mixed(asked.key[i], asked.term[at]), asked.strips[i], seed, table)[0]
