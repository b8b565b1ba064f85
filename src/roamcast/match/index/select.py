"""Some of several rows or events; rows put together; and a few of many."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from roamcast.match.index.build import Rows
from roamcast.match.index.dictionary import TermLists, unified
from roamcast.match.index.ragged import taken
from roamcast.match.port import Events

__all__ = ["chosen_events", "chosen_rows", "joined", "spread"]

Integers = npt.NDArray[np.int64]


def joined(one: Rows, other: Rows) -> Rows:
    texts, (left, right) = unified([one.terms.texts, other.terms.texts])
    first = np.append(one.terms.first, one.terms.first[-1] + other.terms.first[1:])
    terms = TermLists(first, np.append(left[one.terms.code], right[other.terms.code]), texts)
    columns = (np.concatenate([getattr(one, name), getattr(other, name)]) for name in ("handle", "box", "residual"))
    handle, box, residual = columns
    return Rows(handle, box, terms, residual)


def chosen_rows(rows: Rows, chosen: Integers) -> Rows:
    first, at = taken(rows.terms.first[:-1], np.diff(rows.terms.first), chosen)
    terms = TermLists(first, rows.terms.code[at], rows.terms.texts)
    return Rows(rows.handle[chosen], rows.box[chosen], terms, rows.residual[chosen])


def chosen_events(events: Events, chosen: Integers) -> Events:
    return Events(np.asarray(events.x)[chosen], np.asarray(events.y)[chosen], events.terms.take(pa.array(chosen)))


def spread(count: int, most: int) -> Integers:
    """Which of so many, at most `most`, evenly spread."""
    return np.arange(count) if count <= most else np.linspace(0, count - 1, most).astype(np.int64)
