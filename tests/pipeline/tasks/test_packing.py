"""Packed rows: what is packed comes out again, in its partition."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from roamcast.pipeline.tasks.packing import PACKED_SCHEMA, pack, unpack

_ROWS = st.lists(st.tuples(st.integers(0, 3), st.text(max_size=3), st.lists(st.integers(0, 9), max_size=3)), max_size=9)
_SCHEMA = pa.schema([pa.field("text", pa.string()), pa.field("numbers", pa.list_(pa.int64()))])


@given(st.lists(_ROWS, max_size=3))
def test_each_partition_gets_its_rows_in_order(batches: list[list[tuple[int, str, list[int]]]]) -> None:
    """Of several batches, some of them empty."""
    packed = []
    for rows in batches:
        columns = [pa.array([row[1] for row in rows], pa.string()), pa.array([row[2] for row in rows], _SCHEMA[1].type)]
        partition = np.array([row[0] for row in rows], np.int64)
        packed.append(pack(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA), partition))
    together = pa.Table.from_batches(packed, PACKED_SCHEMA)
    for number in range(4):
        mine = together.filter(pa.array([n == number for n in together["partition"].to_pylist()], pa.bool_()))
        expected = [{"text": row[1], "numbers": row[2]} for rows in batches for row in rows if row[0] == number]
        assert pa.Table.from_batches(unpack(mine.to_batches()), _SCHEMA).to_pylist() == expected
