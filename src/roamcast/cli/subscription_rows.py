"""The rows of a subscription file in portions: lines of NDJSON, or rows of Arrow and Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from roamcast.cli.added_rows import RowPortion, json_portions
from roamcast.cli.options import require
from roamcast.cli.row_files import is_table, numbered_lines, numbered_tables

if TYPE_CHECKING:
    from roamcast.node.http.arrow_bodies import ColumnKind

__all__ = ["check_file", "portions"]


def portions(file: str) -> Iterator[RowPortion]:
    """All rows of a file, or of stdin (`-`), in requests. A line that is not JSON is a text, which the node refuses."""
    if not is_table(file):
        yield from json_portions(numbered_lines(file))
        return
    for first, table in numbered_tables(file, _columns):
        yield RowPortion(range(first, first + table.num_rows), table)


def check_file(file: str) -> Iterator[tuple[int, bytes]]:
    """The rows of a file as JSON, with their numbers. Raises InputError if its columns do not fit."""
    if not is_table(file):
        yield from numbered_lines(file)
        return
    require("node")
    import orjson

    from roamcast.node.http.subscription_tables import TableRows

    for first, table in numbered_tables(file, _columns):
        yield from enumerate(map(orjson.dumps, TableRows(table)), first)


def _columns() -> Mapping[str, ColumnKind]:
    from roamcast.node.http.subscription_tables import SUBSCRIPTION_COLUMNS

    return SUBSCRIPTION_COLUMNS
