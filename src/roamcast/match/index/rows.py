"""Subscriptions as rows to index, and how to select, concatenate and sample rows and events."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from roamcast.match.index.dictionary import TermLists, encode_terms, unify_texts
from roamcast.match.port import Events, Subscriptions

__all__ = [
    "IndexRows",
    "concatenate_rows",
    "distinct",
    "gather_ragged",
    "index_rows",
    "sample_evenly",
    "select_events",
    "select_rows",
]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class IndexRows(NamedTuple):
    """Subscriptions to build a segment from. Handles are distinct, from 0 to 2**62 - 1.

    A `residual` row has a further condition that the index does not test.
    """

    handle: Integers
    box: Floats
    terms: TermLists
    residual: npt.NDArray[np.bool_]


def index_rows(
    handle: Integers, subscriptions: Subscriptions, residual: npt.NDArray[np.bool_] | None = None
) -> IndexRows:
    """Make rows of subscriptions, given the handle of each. By default none is residual."""
    box = np.stack(subscriptions[:4], axis=1).astype(np.float64)
    further = np.zeros(len(handle), np.bool_) if residual is None else residual
    return IndexRows(np.asarray(handle, np.int64), box, encode_terms(subscriptions.terms), further)


def concatenate_rows(one: IndexRows, other: IndexRows) -> IndexRows:
    texts, (left, right) = unify_texts([one.terms.texts, other.terms.texts])
    first = np.append(one.terms.first, one.terms.first[-1] + other.terms.first[1:])
    terms = TermLists(first, np.append(left[one.terms.code], right[other.terms.code]), texts)
    handle, box, residual = (
        np.concatenate([getattr(one, name), getattr(other, name)]) for name in ("handle", "box", "residual")
    )
    return IndexRows(handle, box, terms, residual)


def select_rows(rows: IndexRows, selected: Integers) -> IndexRows:
    first, at = gather_ragged(rows.terms.first[:-1], np.diff(rows.terms.first), selected)
    terms = TermLists(first, rows.terms.code[at], rows.terms.texts)
    return IndexRows(rows.handle[selected], rows.box[selected], terms, rows.residual[selected])


def select_events(events: Events, selected: Integers) -> Events:
    return Events(np.asarray(events.x)[selected], np.asarray(events.y)[selected], events.terms.take(pa.array(selected)))


def sample_evenly(count: int, most: int) -> Integers:
    """Return at most `most` of the numbers below `count`, evenly spaced."""
    return np.arange(count) if count <= most else np.linspace(0, count - 1, most).astype(np.int64)


def distinct(values: Integers) -> Integers:
    """Return the distinct values in ascending order. Sorts; `np.unique` hashes, which is slower for millions."""
    ordered = np.sort(values)
    return ordered[np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))]


def gather_ragged(first: Integers, length: Integers, rows: Integers) -> tuple[Integers, Integers]:
    """Gather some lists of a ragged array, in which list i has length[i] elements from first[i] on.

    Returns the offsets of the gathered lists (one more than lists) and the index of each of their elements.
    """
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(length[rows])])
    return offsets, np.repeat(first[rows] - offsets[:-1], length[rows]) + np.arange(offsets[-1])
