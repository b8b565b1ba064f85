"""A table of features: which workers hold a subscription that has one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from roamcast.match.kernels.compiled import kernel
from roamcast.match.kernels.memory import folded_product
from roamcast.match.kernels.scalars import Whole, i64, u64

__all__ = ["place_features", "probe_features"]

Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]


@kernel
def _slot(key: int, seed: Keys, last: int) -> Whole:
    """Where a table with this seed begins to look: who does not know the seed cannot choose features that collide."""
    return i64(folded_product(u64(key) ^ seed[0], seed[1])) & last


@kernel
def place_features(key: Keys, mask: Keys, seed: Keys, table: Keys, masks: Keys) -> None:
    """Enter distinct features into an empty table: a power of two of slots, more than features; 0 is an empty one."""
    last = len(table) - 1
    for i in range(len(key)):
        slot = _slot(key[i], seed, last)
        while table[slot] != 0:
            slot = (slot + 1) & last
        table[slot], masks[slot] = key[i], mask[i]


@kernel
def probe_features(key: Keys, of: Integers, seed: Keys, table: Keys, masks: Keys, found: Keys) -> None:
    """Add to the mask of each event those of the features it has."""
    last = len(table) - 1
    for i in range(len(key)):
        slot = _slot(key[i], seed, last)
        while table[slot] != 0:
            if table[slot] == key[i]:
                found[of[i]] |= masks[slot]
                break
            slot = (slot + 1) & last
