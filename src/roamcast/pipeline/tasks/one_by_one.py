"""The units of a shard for the matcher `one_by_one`: categories, or what other partitioners have in their place."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from roamcast.match.index.index import Index
from roamcast.match.index.lsm import IndexStore, SegmentRef
from roamcast.match.partitioners.one_by_one import OneByOne
from roamcast.pipeline.schemas import MEMBERS
from roamcast.pipeline.state.lookups import Integers, TableLookup
from roamcast.pipeline.state.parts import Part

__all__ = ["categories_of", "open_one_by_one"]


@lru_cache(maxsize=4)
def open_one_by_one(
    folder: Path, stack: tuple[SegmentRef, ...], partitioner: str, units: int, members: tuple[Part, ...]
) -> Index | OneByOne:
    """The matcher of a shard. `units` is their number with `kdtree` and `curve`; `members` has the categories."""
    rows = IndexStore(folder / "segments").rows(stack)
    if rows is None or not len(rows.handle):
        return Index([])
    match partitioner:
        case "drtcluster":
            return OneByOne.by_label(rows, categories_of(rows.handle, _lookup(folder, members)))
        case "kdtree":
            return OneByOne.by_leaf(rows, units)
        case "hashing":
            return OneByOne.by_term(rows)
        case _:
            return OneByOne.by_curve(rows, units)


def categories_of(handle: Integers, members: TableLookup) -> Integers:
    """The category of each handle; -1 if it has left the index."""
    distinct, inverse = np.unique(handle, return_inverse=True)
    found = members.find(("handle",), [pa.array(distinct)])
    category = np.full(len(distinct), -1, np.int64)
    category[found.key] = members.take(found.row, ("category",))["category"].to_numpy()
    return category[inverse]


def _lookup(folder: Path, members: tuple[Part, ...]) -> TableLookup:
    return TableLookup(folder / "parts", MEMBERS.name, members)
