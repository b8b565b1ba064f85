"""The live rows of several segments, to build one from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from roamcast.match.index.build import Rows
from roamcast.match.index.dictionary import Dictionary, TermLists, unified
from roamcast.match.index.index import Layered
from roamcast.match.index.layout import LAST
from roamcast.match.index.ragged import taken
from roamcast.match.kernels.marking import mark_rows

__all__ = ["joined_rows"]

Integers = npt.NDArray[np.int64]


def joined_rows(layers: Sequence[Layered], handles: Integers | None = None) -> Rows:
    """In the order of the layers, and of the rows within each; if `handles` are given, those of them that live."""
    bodies = [layer.segment.body for layer in layers]
    live = [_live(layer, handles) for layer in layers]
    texts, codes = unified([Dictionary(b.text, b.text_first, b.slots, b.seed).texts() for b in bodies])
    residual, lengths, terms = [], [], []
    for body, rows, code in zip(bodies, live, codes, strict=True):
        # A wish ends where LAST is; its terms, if it has any, begin after its first number.
        end = np.flatnonzero(body.wish >= LAST) + 1
        begin = np.concatenate([np.zeros(1, np.int64), end[:-1]])
        residual.append((body.wish[begin[rows]] & 1).astype(np.bool_))
        wanted = np.where(body.wish[begin + 1] == LAST, 0, end - begin - 1)
        first, at = taken(begin + 1, wanted, rows)
        lengths.append(np.diff(first))
        terms.append(code[(body.wish[at] & (LAST - 1)).astype(np.int64) - 1])
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(lengths))])
    handle, box = (
        np.concatenate([column[rows] for column, rows in zip(columns, live, strict=True)])
        for columns in ([b.handle for b in bodies], [b.box for b in bodies])
    )
    return Rows(handle, box, TermLists(first, np.concatenate(terms), texts), np.concatenate(residual))


def _live(layer: Layered, handles: Integers | None) -> Integers:
    handle = layer.segment.body.handle
    live = np.unpackbits(layer.dead, count=len(handle), bitorder="little") == 0 if len(layer.dead) else None
    if handles is None:
        return np.arange(len(handle)) if live is None else np.flatnonzero(live)
    wanted = np.zeros((len(handle) + 7) // 8, np.uint8)
    mark_rows(handle, handles, np.full(1 << (2 * len(handles)).bit_length(), -1, np.int64), wanted)
    rows = np.flatnonzero(np.unpackbits(wanted, count=len(handle), bitorder="little"))
    return rows if live is None else rows[live[rows]]
