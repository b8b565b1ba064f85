"""Files of rows: lines of NDJSON, or tables in Arrow and Parquet. `-` is NDJSON from stdin."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from roamcast.cli.options import require
from roamcast.durable import storage_errors
from roamcast.errors import InputError, RoamcastError

if TYPE_CHECKING:
    import pyarrow as pa

    from roamcast.node.http.arrow_bodies import ColumnKind

__all__ = ["PORTION", "is_table", "json_rows", "located", "numbered_lines", "numbered_tables", "open_file"]

PORTION: Final = 5_000
"""Rows of a table that are in memory at a time, and rows in a request."""

_PARQUET: Final = (".parquet", ".pq")
_ARROW: Final = (".arrow", ".arrows", ".feather")
_ROW: Final = re.compile(r"^(?:events|sources|subscriptions)\[\d+\]\.?")  # a row of a request


def is_table(file: str) -> bool:
    return Path(file).suffix.lower() in (*_PARQUET, *_ARROW)


def json_rows(file: str, columns: Callable[[], Mapping[str, ColumnKind]]) -> Iterator[tuple[int, bytes]]:
    """Every row as JSON, and its number, from 1. Lines may be invalid. `columns` are those that a table may have.

    Raises InputError if there is no such file, or it is a damaged table, or one with other columns.
    """
    if not is_table(file):
        yield from numbered_lines(file)
        return
    require("node")
    from roamcast.node.columns import tables

    for first, table in numbered_tables(file, columns):
        yield from enumerate(tables.json_rows(tables.arrays_of(table), table.num_rows, file), first)


def numbered_lines(file: str) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank. Binary: a line that is not UTF-8 is an invalid line, not an invalid file."""
    with open_file(file) as lines:
        yield from ((number, line) for number, line in enumerate(lines, start=1) if line.strip())


def numbered_tables(file: str, columns: Callable[[], Mapping[str, ColumnKind]]) -> Iterator[tuple[int, pa.Table]]:
    """A table in parts, with the number of the first row of each. Raises as `json_rows`."""
    require("node")
    import pyarrow as pa

    from roamcast.node.http.arrow_bodies import check_columns

    first, known = 1, columns()
    with open_file(file) as content:
        try:
            for table in _tables(file, content):
                table.validate(full=True)
                try:
                    check_columns(table.schema, known)
                except InputError as error:
                    column = "" if error.where in (None, "body") else f", column {error.where}"
                    raise InputError(error.message, where=f"{file}{column}", hint=error.hint) from None
                yield first, table
                first += table.num_rows
        except (pa.ArrowException, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise InputError(f"it cannot be read: {reason}", where=file, hint="check its suffix") from error


@contextmanager
def open_file(file: str) -> Iterator[BinaryIO]:
    """The file, or stdin if it is `-`."""
    if file == "-":
        yield sys.stdin.buffer
        return
    path = Path(file)
    if not path.is_file():
        raise InputError("no such file", where=file, hint="pass the path of a file, or - for stdin")
    with storage_errors(path), path.open("rb") as content:
        yield content


def located(error: RoamcastError, file: str, number: int, row_hint: str) -> RoamcastError:
    """The error of a row, of which `where` tells file, row and field. `row_hint` says what a row has."""
    field = "" if error.where in (None, "body") else _ROW.sub("", error.where or "")
    row = f"{'standard input' if file == '-' else file}, {'row' if is_table(file) else 'line'} {number}"
    hint = row_hint if (error.hint or "").startswith(("see /docs", "send JSON")) else error.hint
    return type(error)(error.message, where=f"{row}{': ' if field else ''}{field}", hint=hint)


def _tables(file: str, content: BinaryIO) -> Iterator[pa.Table]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if Path(file).suffix.lower() in _PARQUET:
        with pq.ParquetFile(content) as parquet:
            yield from (pa.Table.from_batches([batch]) for batch in parquet.iter_batches(PORTION))
        return
    is_file = content.read(6) == b"ARROW1"
    content.seek(0)
    table = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(content).read_all()
    for first in range(0, table.num_rows, PORTION):
        yield table.slice(first, PORTION)
