"""Tables that a user passes to the client. pyarrow is imported only if there is one: the client does not need it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ARROW_STREAM", "ArrowTable", "as_table", "stream_body"]

ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"


class ArrowTable(Protocol):
    """A `pyarrow.Table` or `pyarrow.RecordBatch`."""

    @property
    def num_rows(self) -> int:
        """How many rows it has."""

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows."""


def as_table(value: Any) -> pa.Table | None:
    """A `pyarrow.Table` or `RecordBatch` as a table; None for anything else."""
    arrow = sys.modules.get("pyarrow")  # whoever has a table has imported it
    if arrow is None:
        return None
    if isinstance(value, arrow.RecordBatch):
        return arrow.Table.from_batches([value])
    return value if isinstance(value, arrow.Table) else None


def stream_body(table: pa.Table) -> bytes:
    """The table as an Arrow IPC stream."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body
