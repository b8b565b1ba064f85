"""The rows of a subscription file in portions: lines of NDJSON, or rows of Arrow and Parquet."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from roamcast.cli.options import require
from roamcast.durable import storage_errors
from roamcast.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RowPortion", "check_file", "open_lines", "portions", "row_label"]

_PORTION: Final = 5_000  # rows
_TABLES: Final = (".arrow", ".arrows", ".feather", ".parquet", ".pq")


class RowPortion(NamedTuple):
    """Some rows, JSON values or a table, and their numbers in the file, from 1."""

    numbers: Sequence[int]
    rows: list[Any] | pa.Table


def portions(file: str) -> Iterator[RowPortion]:
    """All rows of a file, or of stdin (`-`), in requests. A line that is not JSON is a text, which the node refuses."""
    if _is_table(file):
        yield from _table_portions(file)
        return
    with open_lines(file) as lines:
        rows = ((number, _json_or_text(line)) for number, line in enumerate(lines, start=1) if line.strip())
        while portion := list(islice(rows, _PORTION)):
            yield RowPortion([number for number, _ in portion], [row for _, row in portion])


def check_file(file: str) -> Iterator[tuple[int, bytes]]:
    """The rows of a file as JSON, with their numbers. Raises InputError if its columns do not fit."""
    if not _is_table(file):
        with open_lines(file) as lines:
            yield from ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
        return
    require("node")
    import orjson

    from roamcast.node.http.subscription_tables import TableRows

    for numbers, table in _table_portions(file):
        yield from zip(numbers, map(orjson.dumps, TableRows(table)), strict=True)


def row_label(file: str, number: int) -> str:
    """A row for a message."""
    return f"{'standard input' if file == '-' else file}, {'row' if _is_table(file) else 'line'} {number}"


@contextmanager
def open_lines(file: str) -> Iterator[BinaryIO]:
    """The file, or stdin if it is `-`."""
    if file == "-":
        yield sys.stdin.buffer
        return
    path = Path(file)
    if not path.is_file():
        raise InputError("no such file", where=file, hint="pass the path of a file, or - for stdin")
    with storage_errors(path), path.open("rb") as lines:
        yield lines


def _is_table(file: str) -> bool:
    return Path(file).suffix.lower() in _TABLES


def _json_or_text(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line.decode(errors="replace")


def _table_portions(file: str) -> Iterator[RowPortion]:
    require("node")
    import pyarrow as pa

    from roamcast.node.http.arrow_bodies import check_columns
    from roamcast.node.http.subscription_tables import SUBSCRIPTION_COLUMNS

    first = 1
    with open_lines(file) as content:
        try:
            for table in _tables(file, content):
                try:
                    check_columns(table.schema, SUBSCRIPTION_COLUMNS)
                except InputError as error:
                    column = "" if error.where in (None, "body") else f": column {error.where}"
                    raise InputError(error.message, where=f"{file}{column}", hint=error.hint) from None
                yield RowPortion(range(first, first + table.num_rows), table)
                first += table.num_rows
        except pa.ArrowException as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"cannot be read: {reason}", where=file, hint="check its suffix") from error


def _tables(file: str, content: BinaryIO) -> Iterator[pa.Table]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if Path(file).suffix.lower() in (".parquet", ".pq"):
        with pq.ParquetFile(content) as parquet:
            yield from map(pa.Table.from_batches, ([batch] for batch in parquet.iter_batches(_PORTION)))
        return
    is_file = content.read(6) == b"ARROW1"
    content.seek(0)
    table = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(content).read_all()
    for first in range(0, table.num_rows, _PORTION):
        yield table.slice(first, _PORTION)
