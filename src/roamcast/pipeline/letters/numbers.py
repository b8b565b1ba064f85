"""Numbering: drafts become letters, numbered densely for each receiver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Numbered", "Receiver", "in_order", "number_letters"]


class Receiver(NamedTuple):
    """Who gets a letter, and at which office."""

    office: str
    name: str


class Numbered(NamedTuple):
    """Letters by office, and the last number each receiver with new letters has now."""

    letters: Mapping[str, pa.Table]
    last: Mapping[Receiver, int]


def in_order(drafts: pa.Table) -> pa.Table:
    """Drafts as they are numbered: to each receiver by (node, offset, subscription), each once.

    A subscription that was made anew within the batch has matched an event several times; it gets it once.
    """
    if not drafts.num_rows:
        return drafts
    codes = {name: _codes(drafts[name])[0] for name in ("subscription", "node", "receiver", "office")}
    offset = drafts["offset"].to_numpy()
    keys = np.stack([codes["subscription"], offset, codes["node"], codes["receiver"], codes["office"]])
    order = np.lexsort(keys)
    order = order[(np.diff(keys[:, order], prepend=-1) != 0).any(axis=0)]
    return drafts.take(pa.array(order))


def number_letters(drafts: pa.Table, last: Mapping[Receiver, int]) -> Numbered:
    """`drafts` are in order. `last` are the numbers given so far."""
    if not drafts.num_rows:
        return Numbered({}, {})
    office, office_of = _codes(drafts["office"])
    name, name_of = _codes(drafts["receiver"])
    numbers = np.empty(drafts.num_rows, dtype=np.int64)
    given: dict[Receiver, int] = {}
    changes = np.flatnonzero((np.diff(office, prepend=-1) != 0) | (np.diff(name, prepend=-1) != 0))
    for start, stop in zip(changes, [*changes[1:], drafts.num_rows], strict=True):
        receiver = Receiver(office_of[office[start]], name_of[name[start]])
        base = last.get(receiver, 0)
        numbers[start:stop] = np.arange(base + 1, base + 1 + stop - start)
        given[receiver] = base + int(stop - start)
    letters = pa.table({"receiver": drafts["receiver"], "number": numbers, "body": _bodies(drafts)})
    return Numbered({str(of): letters.filter(pa.array(office == code)) for code, of in enumerate(office_of)}, given)


def _codes(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Each value's rank among the distinct values in sorted order, and those values."""
    encoded = column.combine_chunks().dictionary_encode()
    values = encoded.dictionary.to_pylist()
    ranked = sorted(values)
    rank = {value: code for code, value in enumerate(ranked)}
    table = np.array([rank[value] for value in values], dtype=np.int64)
    return table[encoded.indices.to_numpy(zero_copy_only=False)], ranked


def _bodies(drafts: pa.Table) -> pa.ChunkedArray:
    """The JSON that a receiver reads: which subscription, why, and the event."""
    ids, whys = (_quoted(drafts[name]) for name in ("subscription", "why"))
    events = drafts["event"].combine_chunks()
    return pc.binary_join_element_wise('{"subscription":', ids, ',"why":', whys, ',"event":', events, "}", "")


def _quoted(texts: pa.ChunkedArray) -> pa.Array:
    encoded = texts.combine_chunks().dictionary_encode()
    quoted = pa.array([orjson.dumps(text).decode() for text in encoded.dictionary.to_pylist()], pa.string())
    return quoted.take(encoded.indices)
