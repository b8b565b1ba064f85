"""Rows of event and subscription files, as typed columns. No Spark here.

| field                         | takes                                                                         |
| ----------------------------- | ----------------------------------------------------------------------------- |
| `event_id`, `subscription_id` | a text that is not empty, once in a file                                      |
| `source`                      | a text that is not empty                                                      |
| `time`                        | ISO 8601 (without an offset: UTC), seconds since 1970, or a Parquet timestamp |
| `x`, `y`, `min_x` … `max_y`   | finite numbers that are good in the space                                     |
| `terms`                       | a list of texts that are not empty; absent: none                              |
| `seq` (optional)              | a whole number from 1 on                                                      |
| `readings` (optional)         | names to finite numbers                                                       |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa

from roamcast.errors import InputError
from roamcast.space import Reasons

__all__ = [
    "EARLIEST",
    "EVENTS",
    "LATEST",
    "SUBSCRIPTIONS",
    "Columns",
    "Layout",
    "check_fields",
    "check_types",
    "from_arrow",
    "from_values",
    "note",
    "shown",
]

Columns = dict[str, pa.Array]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST, LATEST = -62_135_596_800, 253_402_300_799  # seconds: the years 1 to 9999
_HIGHEST_SEQ: Final = 2**63 - 1
_POINT: Final = ("x", "y")
_BOX: Final = ("min_x", "min_y", "max_x", "max_y")

_TYPES: Final[Mapping[str, pa.DataType]] = {
    "event_id": pa.string(),
    "subscription_id": pa.string(),
    "source": pa.string(),
    "time": pa.timestamp("us", tz="UTC"),
    "seq": pa.int64(),
    "terms": pa.list_(pa.string()),
    "readings": pa.map_(pa.string(), pa.float64()),
    **dict.fromkeys((*_POINT, *_BOX), pa.float64()),
}


@dataclass(frozen=True, slots=True)
class Layout:
    """The fields of one kind of file. `coordinates` are those of a point or of a box."""

    noun: str
    coordinates: tuple[str, ...]
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return self.required[0]

    @property
    def fields(self) -> tuple[str, ...]:
        return (*self.required, "terms", *self.optional)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, _TYPES[name]) for name in self.fields])


EVENTS: Final = Layout("event", _POINT, ("event_id", "source", "time", *_POINT), ("seq", "readings"))
SUBSCRIPTIONS: Final = Layout("subscription", _BOX, ("subscription_id", *_BOX))


def check_fields(names: Sequence[str], layout: Layout, where: str) -> None:
    """Refuse the header of a table that lacks a column, has one twice, or has one that means nothing here."""
    expected = f"{layout.noun} files have {', '.join((*layout.required, 'terms'))}"
    if layout.optional:
        expected += f" and may have {', '.join(layout.optional)}"
    for name in names:
        if name not in layout.fields:
            raise InputError(f"unknown column {name!r}", where=where, hint=expected)
        if list(names).count(name) > 1:
            raise InputError(f"column {name!r} comes twice", where=where, hint=expected)
    missing = [name for name in (*layout.required, "terms") if name not in names]
    if missing:
        raise InputError(f"no column {', '.join(map(repr, missing))}", where=where, hint=expected)


def note(problems: Reasons, row: int, problem: str) -> None:
    """The first problem of a row is the one that is told."""
    if problems[row] is None:
        problems[row] = problem


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def from_values(rows: Sequence[Mapping[str, Any]], layout: Layout, problems: Reasons) -> Columns:
    """Columns from rows of plain values, as JSON has them. A value of the wrong type is noted and taken as absent."""
    known = set(layout.fields)
    for row, values in enumerate(rows):
        if not values.keys() <= known:
            name = next(name for name in values if name not in layout.fields)
            note(problems, row, f"unknown field {shown(name)}")
    return {name: _column(name, [values.get(name) for values in rows], problems) for name in layout.fields}


def _column(name: str, values: list[Any], problems: Reasons) -> pa.Array:
    kind = _TYPES[name]
    if name == "time":
        return pa.array(_each(name, values, _micros, problems), pa.int64()).cast(kind)
    if name == "terms":
        return pa.array(_typed(name, values, _is_terms, {list}, "a list of texts", problems), kind)
    if name == "readings":
        named = _typed(name, values, _is_readings, {dict}, "names to numbers", problems)
        return pa.array([v and [(k, float(n)) for k, n in v.items()] for v in named], kind)
    if name == "seq":
        return pa.array(
            _typed(name, values, _is_seq, {int}, f"a whole number from 1 to {_HIGHEST_SEQ}", problems), kind
        )
    if kind == pa.float64():
        numbers = _typed(name, values, None, {int, float}, "a number", problems)
        absent = np.array([v is None for v in numbers], np.bool_)
        return pa.array(np.array([0.0 if v is None else v for v in numbers], np.float64), mask=absent)
    return pa.array(_typed(name, values, None, {str}, "a text", problems), kind)


def _typed(
    name: str, values: list[Any], good: Callable[[Any], bool] | None, types: set[type], expected: str, problems: Reasons
) -> list[Any]:
    """The values, None in place of those that are of another type or not good."""
    right = set(map(type, values)) <= types | {type(None)}
    if right and good is None:
        return values
    kept: list[Any] = []
    for row, value in enumerate(values):
        if value is None or (type(value) in types and (good is None or good(value))):
            kept.append(value)
        else:
            kept.append(None)
            note(problems, row, f"{name} must be {expected}, not {shown(value)}")
    return kept


def _each(name: str, values: list[Any], convert: Callable[[Any], Any], problems: Reasons) -> list[Any]:
    converted: list[Any] = []
    for row, value in enumerate(values):
        try:
            converted.append(None if value is None else convert(value))
        except (ValueError, OverflowError):
            converted.append(None)
            note(problems, row, f"{name} must be ISO 8601 or seconds since 1970, not {shown(value)}")
    return converted


def _is_terms(value: list[Any]) -> bool:
    return set(map(type, value)) <= {str}


def _is_readings(value: dict[str, Any]) -> bool:
    return set(map(type, value.values())) <= {int, float}


def _is_seq(value: int) -> bool:
    return 1 <= value <= _HIGHEST_SEQ


def _micros(value: Any) -> int:
    if isinstance(value, str):
        moment = datetime.fromisoformat(value)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        return (moment - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, bool) or not isinstance(value, int | float) or not EARLIEST <= value <= LATEST:
        raise ValueError(value)
    return round(value * 1_000_000)


def from_arrow(batch: pa.RecordBatch, layout: Layout, problems: Reasons) -> Columns:
    """Columns from a table whose schema `check_types` has let pass."""
    columns: Columns = {}
    for name in layout.fields:
        if name not in batch.schema.names:
            columns[name] = pa.nulls(batch.num_rows, _TYPES[name])
            continue
        column = batch.column(name)
        by_value = name == "readings" and pa.types.is_struct(column.type)
        by_value |= name == "time" and not pa.types.is_temporal(column.type)
        if by_value:
            columns[name] = _column(name, _plain(column), problems)
        else:
            columns[name] = column.cast(_TYPES[name], safe=False)
    return columns


def _plain(column: pa.Array) -> list[Any]:
    """Python values; in a struct only the fields that have one."""
    values: list[Any] = column.to_pylist()
    if pa.types.is_struct(column.type):
        return [v and {k: n for k, n in v.items() if n is not None} for v in values]
    return values


def check_types(schema: pa.Schema, where: str) -> None:
    """Refuse a table with a column of a type that cannot be read as its field."""
    for column in schema:
        if not _readable(column.name, column.type):
            hint = f"store it as {_TYPES[column.name]}"
            raise InputError(f"column {column.name!r} is {column.type}", where=where, hint=hint)


def _readable(name: str, kind: pa.DataType) -> bool:
    is_ = pa.types
    if is_.is_null(kind):
        return True
    if name == "time":
        return is_.is_timestamp(kind) or is_.is_date(kind) or _is_text(kind) or _is_number(kind)
    if name == "terms":
        return _is_list(kind) and (_is_text(kind.value_type) or is_.is_null(kind.value_type))
    if name == "readings":
        if is_.is_struct(kind):
            return all(_is_number(field.type) or is_.is_null(field.type) for field in kind)
        return is_.is_map(kind) and _is_text(kind.key_type) and _is_number(kind.item_type)
    if name == "seq":
        return bool(is_.is_integer(kind))
    return _is_number(kind) if _TYPES[name] == pa.float64() else _is_text(kind)


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
