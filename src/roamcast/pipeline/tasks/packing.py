"""Rows on their way from one task to another: packed, so that Spark moves a few blocks and not each row.

A block has the rows of one Arrow batch that go to one partition, as an Arrow stream. Converting every row to Spark's
format and back would cost more than all the rest of the exchange.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from roamcast.pipeline.state.lookups import Integers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["PACKED_SCHEMA", "exchange", "pack", "unpack"]

PACKED_SCHEMA: Final = pa.schema([pa.field("partition", pa.int32()), pa.field("block", pa.binary())])


def pack(rows: pa.RecordBatch, partition: Integers) -> pa.RecordBatch:
    """A row of PACKED_SCHEMA for each partition to which some of these rows go."""
    order = np.argsort(partition, kind="stable")
    numbers, first = np.unique(partition[order], return_index=True)
    ordered = rows.take(pa.array(order))
    bounds = pairwise(np.append(first, len(order)).tolist())
    blocks = [_to_block(ordered.slice(begin, end - begin)) for begin, end in bounds]
    columns = [pa.array(numbers, pa.int32()), pa.array(blocks, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=PACKED_SCHEMA)


def unpack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in these rows of PACKED_SCHEMA."""
    for batch in batches:
        for block in batch["block"]:
            with pa.ipc.open_stream(block.as_buffer()) as stream:
                yield from stream


def exchange(rows: DataFrame, partitions: int) -> DataFrame:
    """Move rows of PACKED_SCHEMA to their partitions."""
    return rows.repartitionById(partitions, "partition")


def _to_block(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    block: bytes = sink.getvalue().to_pybytes()
    return block
