"""The columns of a table as arrays, and its rows as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from roamcast.errors import InputError
from roamcast.model import EARLIEST, LATEST, iso
from roamcast.node.columns.arrays import MICROS

__all__ = ["arrays_of", "json_rows"]

_CHUNK: Final = 256  # rows that are Python values at the same time


def arrays_of(table: pa.Table) -> dict[str, pa.Array]:
    return {name: table[name].combine_chunks() for name in table.column_names}


def json_rows(arrays: Mapping[str, pa.Array], count: int, name: str) -> Iterator[bytes]:
    """The rows as JSON objects, without nulls. `name` is that of the list in errors.

    Raises InputError where JSON cannot say what a row has.
    """
    for first in range(0, count, _CHUNK):
        columns = {field: _values(array.slice(first, _CHUNK)) for field, array in arrays.items()}
        for row in range(first, min(count, first + _CHUNK)):
            fields = {}
            for field, values in columns.items():
                value = values[row - first]
                if pa.types.is_map(arrays[field].type) and value is not None:
                    value = _without_repetition(value, f"{name}[{row}].{field}")
                elif isinstance(value, dict):
                    value = {key: each for key, each in value.items() if each is not None}
                if value is not None:
                    fields[field] = value
            yield json.dumps(fields).encode()


def _values(array: pa.Array) -> list[Any]:
    kind = array.type
    if not pa.types.is_timestamp(kind):
        values: list[Any] = array.to_pylist()
        return values
    times = array.cast(pa.int64()).to_pylist()
    if kind.unit == "ns":
        return [None if time is None else _time(time // 1_000) for time in times]
    return [None if time is None else _time(time * MICROS[kind.unit]) for time in times]


def _time(micros: int) -> str | float:
    """As text or, if there is none for it, in seconds."""
    return iso(micros) if EARLIEST <= micros <= LATEST else micros / 1_000_000


def _without_repetition(pairs: list[tuple[str | None, Any]], where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key is None:
            raise InputError("a name is null", where=where, hint="omit it, or give it a name")
        if key in found:
            raise InputError(f"the name {key!r} is there twice", where=where, hint="send one value for each name")
        found[key] = value
    return found
