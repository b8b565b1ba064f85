"""The order of a backtest: one journal that stands for all journals of an archive.

The *rank* of a record is its offset there. It is the journal of the node of the subscription, with gaps between its
offsets: for the control records of the subscription, which follow the records that cause them, and for events of other
nodes. Those take part as in the stream: an event of another node comes after what the node of the subscription had
journalled until the end of its batch, and letters of a batch are in the order of the nodes' names.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.backtest.replay import CausedRecord
from roamcast.journal.records import EVENT, RECORD_SCHEMA, Record
from roamcast.pipeline.schemas import MATCHED_SCHEMA

__all__ = ["ORIGIN", "Order", "RankedRecord"]

Integers = npt.NDArray[np.int64]

ORIGIN: Final = (
    pa.field("journal", pa.string()),
    *(pa.field(name, pa.int64()) for name in ("journal_offset", "batch", "written")),
)
"""Columns of found events: the journal, the offset, the batch and the time of writing of their record."""

_SMALLEST_GAP: Final = 20  # bits; half of a gap is for control records


class RankedRecord(NamedTuple):
    """A control record and its rank."""

    rank: int
    record: Record


class Order:
    """The ranks of records. The subscription begins at ranks below the gap; journals begin at offset 1."""

    def __init__(self, node: str, caused: Sequence[CausedRecord], others: int) -> None:
        """`others`: how many events of other nodes there may be."""
        self.node = node
        self.gap = 1 << max(_SMALLEST_GAP, others.bit_length() + 1)
        self.records: list[RankedRecord] = []
        for offset, group in groupby(caused, attrgetter("offset")):
            self.records += (RankedRecord(offset * self.gap + nth, one.record) for nth, one in enumerate(group, 1))
        self._cause_offset = np.array([0, *(one.offset for one in caused)], np.int64)
        self._cause_batch = np.array([-1, *(one.batch for one in caused)], np.int64)

    def rehome(self, rows: pa.RecordBatch, *, earlier: bool = False) -> pa.RecordBatch:
        """Events of the archive as records of this journal. Those of other nodes may share a rank; those that are
        `earlier` than the subscription have rank 0.
        """
        node, entity = rows["node"], rows["entity"]
        is_own = pc.equal(node, self.node)
        is_global = pc.match_substring(entity, "@")
        names = pc.if_else(pc.or_(is_own, is_global), entity, pc.binary_join_element_wise(entity, node, "@"))
        last = np.searchsorted(self._cause_batch, rows["batch"].to_numpy(), "right") - 1
        others = self._cause_offset[last] * self.gap + self.gap // 2
        own = is_own.to_numpy(zero_copy_only=False)
        ranks = np.where(own, rows["offset"].to_numpy() * self.gap, others)
        columns = {
            "node": pa.array([self.node] * rows.num_rows, pa.string()),
            "offset": pa.array(np.zeros_like(ranks) if earlier else ranks),
            "kind": pa.array([EVENT] * rows.num_rows, pa.string()),
            "entity": names,
        }
        arrays = [columns.get(field.name, rows[field.name]).cast(field.type) for field in RECORD_SCHEMA]
        return pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA)

    def settle(self, found: pa.Table) -> pa.Table:
        """Found events (MATCHED_SCHEMA and ORIGIN), each at a rank of its own."""
        journal = found["journal"].combine_chunks()
        ranks = found["offset"].to_numpy().copy()
        other = np.flatnonzero((ranks > 0) & ~pc.equal(journal, self.node).to_numpy(zero_copy_only=False))
        if len(other):
            ranks[other] = self._settle_others(found, other)
        found = found.set_column(1, "offset", pa.array(ranks))
        return found.select(MATCHED_SCHEMA.names).cast(MATCHED_SCHEMA)

    def _settle_others(self, found: pa.Table, other: Integers) -> Integers:
        offset, batch = (found[name].to_numpy() for name in ("journal_offset", "batch"))
        own = np.setdiff1d(np.arange(found.num_rows), other)
        own_offset = np.concatenate([self._cause_offset, offset[own]])
        own_batch = np.concatenate([self._cause_batch, batch[own]])
        ordered = np.lexsort((own_batch, own_offset))
        own_offset, own_batch = own_offset[ordered], np.maximum.accumulate(own_batch[ordered])
        names = found["journal"].combine_chunks().take(pa.array(other)).to_numpy(zero_copy_only=False)
        is_before = names < self.node
        limit = batch[other] - is_before  # the last batch whose records come before
        anchor = own_offset[np.maximum(np.searchsorted(own_batch, limit, "right") - 1, 0)]
        _, name = np.unique(names, return_inverse=True)
        order = np.lexsort((offset[other], name, batch[other], anchor))
        first = np.flatnonzero(np.diff(anchor[order], prepend=-1))
        nth = np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order)))
        ranks = np.empty(len(other), np.int64)
        ranks[order] = anchor[order] * self.gap + self.gap // 2 + nth
        return ranks
