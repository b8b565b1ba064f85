"""Numbering: matched events become letters, numbered densely for each receiver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Numbered", "Receiver", "number_letters"]


class Receiver(NamedTuple):
    """Who gets a letter, and at which office."""

    office: str
    name: str


class Numbered(NamedTuple):
    """Letters by office, and the last number each receiver with new letters has now."""

    letters: Mapping[str, pa.Table]
    last: Mapping[Receiver, int]


def number_letters(matched: pa.Table, subscriptions: pa.Table, last: Mapping[Receiver, int]) -> Numbered:
    """`matched` has SIFTED_SCHEMA; its lists are rows of `subscriptions`. `last` are the numbers given so far.

    Letters to one receiver are in the order (node, position, subscription); the order of `matched` does not matter.
    A subscription that was made anew within the batch has several rows, and gets an event that they all match once.
    """
    if not matched.num_rows:
        return Numbered({}, {})
    matched = matched.combine_chunks()
    lists = matched["subscriptions"].combine_chunks()
    event = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    rows = subscriptions.take(pc.list_flatten(lists))
    office, office_of = _codes(rows["node"])
    name, name_of = _codes(rows["subscriber"])
    node, _ = _codes(matched["node"])
    subscription, _ = _codes(rows["id"])
    keys = np.stack((subscription, matched["position"].to_numpy()[event], node[event], name, office))
    order = np.lexsort(keys)
    order = order[(np.diff(keys[:, order], prepend=-1) != 0).any(axis=0)]
    office, name = office[order], name[order]
    numbers = np.empty(len(order), dtype=np.int64)
    given: dict[Receiver, int] = {}
    changes = np.flatnonzero((np.diff(office, prepend=-1) != 0) | (np.diff(name, prepend=-1) != 0))
    for start, stop in zip(changes, [*changes[1:], len(order)], strict=True):
        receiver = Receiver(office_of[office[start]], name_of[name[start]])
        base = last.get(receiver, 0)
        numbers[start:stop] = np.arange(base + 1, base + 1 + stop - start)
        given[receiver] = base + int(stop - start)
    letters = pa.table(
        {
            "receiver": rows["subscriber"].take(pa.array(order)),
            "number": numbers,
            "body": _bodies(rows["id"].take(pa.array(order)), matched["event"].take(pa.array(event[order]))),
        }
    )
    return Numbered({str(of): letters.filter(pa.array(office == code)) for code, of in enumerate(office_of)}, given)


def _codes(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Each value's rank among the distinct values in sorted order, and those values."""
    encoded = column.combine_chunks().dictionary_encode()
    values = encoded.dictionary.to_pylist()
    ranked = sorted(values)
    rank = {value: code for code, value in enumerate(ranked)}
    table = np.array([rank[value] for value in values], dtype=np.int64)
    return table[encoded.indices.to_numpy(zero_copy_only=False)], ranked


def _bodies(subscriptions: pa.ChunkedArray, events: pa.ChunkedArray) -> pa.ChunkedArray:
    """The JSON that a receiver reads: which subscription, and the event."""
    encoded = subscriptions.combine_chunks().dictionary_encode()
    quoted = pa.array([orjson.dumps(id_).decode() for id_ in encoded.dictionary.to_pylist()], pa.string())
    ids = quoted.take(encoded.indices)
    return pc.binary_join_element_wise('{"subscription":', ids, ',"event":', events.combine_chunks(), "}", "")
