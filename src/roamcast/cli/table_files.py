"""Arrow and Parquet files of events, as the lines of JSON that the same events would be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from roamcast.cli.options import require
from roamcast.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["event_lines", "is_table"]

_PARQUET: Final = (".parquet", ".pq")
_ARROW: Final = (".arrow", ".arrows", ".feather")
_BATCH: Final = 10_000  # rows


def is_table(file: str) -> bool:
    return Path(file).suffix.lower() in (*_PARQUET, *_ARROW)


def event_lines(file: str, content: BinaryIO) -> Iterator[bytes]:
    """Raises InputError if the file is damaged, or its columns are not those of events."""
    require("node")
    import pyarrow as pa

    from roamcast.node.columns.tables import arrays_of, json_rows
    from roamcast.node.http.arrow_bodies import check_columns
    from roamcast.node.http.bulk_bodies import EVENT_COLUMNS

    try:
        for table in _tables(file, content):
            table.validate(full=True)
            try:
                check_columns(table.schema, EVENT_COLUMNS)
            except InputError as error:
                column = "" if error.where in (None, "body") else f", column {error.where}"
                raise InputError(error.message, where=f"{file}{column}", hint=error.hint) from None
            yield from json_rows(arrays_of(table), table.num_rows, file)
    except (pa.ArrowException, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"it cannot be read: {reason}", where=file, hint="check its suffix") from error


def _tables(file: str, content: BinaryIO) -> Iterator[pa.Table]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if Path(file).suffix.lower() in _PARQUET:
        with pq.ParquetFile(content) as parquet:
            for batch in parquet.iter_batches(_BATCH):
                yield pa.Table.from_batches([batch])
        return
    is_file = content.read(6) == b"ARROW1"
    content.seek(0)
    table = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(content).read_all()
    for first in range(0, table.num_rows, _BATCH):
        yield table.slice(first, _BATCH)
