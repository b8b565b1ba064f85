"""Subscriptions in bulk as a table: its rows are the JSON values that a list of the same subscriptions has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from roamcast.model import Box
from roamcast.node.http.arrow_bodies import BOOLEAN, TEXT, TEXTS, ColumnKind, is_list, is_number, read_table

__all__ = ["SUBSCRIPTION_COLUMNS", "TableRows", "read_subscription_table"]


def _is_box(kind: pa.DataType) -> bool:
    if is_list(kind):
        return is_number(kind.value_type) or pa.types.is_null(kind.value_type)
    return pa.types.is_struct(kind) and {field.name: is_number(field.type) for field in kind} == _BORDERS


_BORDERS: Final = dict.fromkeys(Box._fields, True)

SUBSCRIPTION_COLUMNS: Final[Mapping[str, ColumnKind]] = {
    "id": TEXT,
    "lacl": TEXT,
    "box": ColumnKind(f"a list of 4 numbers, or a struct of the numbers {', '.join(Box._fields)}", _is_box),
    "crosses_antimeridian": BOOLEAN,
    "terms": TEXTS,
}


class TableRows:
    """The rows of a table, made when they are iterated. A null in a column is an absent field."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, part: slice) -> TableRows:
        first, stop, _ = part.indices(len(self))
        return TableRows(self._table.slice(first, stop - first))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        names = self._table.schema.names
        columns = map(_values, self._table.columns)
        for values in zip(*columns, strict=True):
            yield {name: value for name, value in zip(names, values, strict=True) if value is not None}


def read_subscription_table(body: bytes, media_type: str, most: int, most_bytes: int) -> TableRows:
    """The rows of an Arrow or Parquet body. Raises as `read_table`."""
    return TableRows(read_table(body, media_type, SUBSCRIPTION_COLUMNS, "subscriptions", most, most_bytes))


def _values(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if pa.types.is_struct(column.type):
        return [None if value is None else [value[border] for border in Box._fields] for value in values]
    return values
