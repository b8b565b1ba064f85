"""Rows of event and subscription files as typed, checked columns. Does not use Spark.

| field                         | values                                                                        |
| ----------------------------- | ----------------------------------------------------------------------------- |
| `event_id`, `subscription_id` | a non-empty text, unique in its file                                          |
| `source`                      | a non-empty text                                                              |
| `time`                        | ISO 8601 (without an offset: UTC), seconds since 1970, or a Parquet timestamp |
| `x`, `y`, `min_x` … `max_y`   | finite numbers that are valid in the space                                    |
| `terms`                       | a list of non-empty texts; absent: none                                       |
| `seq` (optional)              | an integer from 1                                                             |
| `readings` (optional)         | names to finite numbers                                                       |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.errors import InputError
from roamcast.model import EARLIEST, EPOCH, LATEST
from roamcast.space import Reasons, Space

__all__ = [
    "EVENTS",
    "MAX_TERMS",
    "POLYGON",
    "SUBSCRIPTIONS",
    "Columns",
    "FileLayout",
    "add_problem",
    "check_fields",
    "check_types",
    "check_values",
    "from_arrow",
    "from_values",
    "parse_or_note",
    "quote_value",
]

Columns = dict[str, pa.Array]

_EARLIEST, _LATEST = EARLIEST // 1_000_000, LATEST // 1_000_000  # seconds
_HIGHEST_SEQ: Final = 2**63 - 1
MAX_TERMS: Final = 100_000
_POINT: Final = ("x", "y")
_BOX: Final = ("min_x", "min_y", "max_x", "max_y")
POLYGON: Final = "polygon"

_TYPES: Final[Mapping[str, pa.DataType]] = {
    "event_id": pa.string(),
    "subscription_id": pa.string(),
    "source": pa.string(),
    "time": pa.timestamp("us", tz="UTC"),
    "seq": pa.int64(),
    "terms": pa.list_(pa.string()),
    "readings": pa.map_(pa.string(), pa.float64()),
    **dict.fromkeys((*_POINT, *_BOX), pa.float64()),
    POLYGON: pa.list_(pa.float64()),
}


@dataclass(frozen=True, slots=True)
class FileLayout:
    """The fields of one kind of file. `coordinates` are the names of those of a point or a box.

    If it `has_polygons`, there is one more column, which readers of geometries fill: see `Polygons.lists`.
    """

    noun: str
    coordinates: tuple[str, ...]
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    has_polygons: bool = False

    @property
    def id(self) -> str:
        return self.required[0]

    @property
    def fields(self) -> tuple[str, ...]:
        return (*self.required, "terms", *self.optional)

    @property
    def schema(self) -> pa.Schema:
        names = (*self.fields, POLYGON) if self.has_polygons else self.fields
        return pa.schema([pa.field(name, _TYPES[name]) for name in names])


EVENTS: Final = FileLayout("event", _POINT, ("event_id", "source", "time", *_POINT), ("seq", "readings"))
SUBSCRIPTIONS: Final = FileLayout("subscription", _BOX, ("subscription_id", *_BOX), has_polygons=True)


def check_fields(names: Sequence[str], layout: FileLayout, where: str) -> None:
    """Raises InputError for a header with missing, duplicate or unknown columns."""
    expected = f"{layout.noun} files have {', '.join((*layout.required, 'terms'))}"
    if layout.optional:
        expected += f" and may have {', '.join(layout.optional)}"
    for name in names:
        if name not in layout.fields:
            raise InputError(f"unknown column {name!r}", where=where, hint=expected)
        if list(names).count(name) > 1:
            raise InputError(f"duplicate column {name!r}", where=where, hint=expected)
    missing = [name for name in (*layout.required, "terms") if name not in names]
    if missing:
        raise InputError(f"missing column {', '.join(map(repr, missing))}", where=where, hint=expected)


def add_problem(problems: Reasons, row: int, problem: str) -> None:
    """Record a problem of a row. Only the first one of each row is kept."""
    if problems[row] is None:
        problems[row] = problem


def parse_or_note(parse: Callable[[Any], dict[str, Any]], raw: Any, row: int, problems: Reasons) -> dict[str, Any]:
    """The fields of a row, or none if `parse` raises ValueError, whose message is then the problem."""
    try:
        return parse(raw)
    except ValueError as error:
        add_problem(problems, row, str(error))
        return {}


def quote_value(value: object) -> str:
    """A value for a message, shortened to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def from_values(rows: Sequence[Mapping[str, Any]], layout: FileLayout, problems: Reasons) -> Columns:
    """Build columns from rows of JSON values. A value of the wrong type is a problem, and counts as absent."""
    known = set(layout.fields)
    for row, values in enumerate(rows):
        if not values.keys() <= known:
            name = next(name for name in values if name not in layout.fields)
            add_problem(problems, row, f"unknown field {quote_value(name)}")
    return {name: _column(name, [values.get(name) for values in rows], problems) for name in layout.fields}


def _column(name: str, values: list[Any], problems: Reasons) -> pa.Array:
    kind = _TYPES[name]
    if name == "time":
        return pa.array(_each(name, values, _micros, problems), pa.int64()).cast(kind)
    if name == "terms":
        return pa.array(_typed(name, values, _is_terms, {list}, "a list of texts", problems), kind)
    if name == "readings":
        named = _typed(name, values, _is_readings, {dict}, "an object of numbers", problems)
        return pa.array([v and [(k, float(n)) for k, n in v.items()] for v in named], kind)
    if name == "seq":
        return pa.array(_typed(name, values, _is_seq, {int}, f"an integer from 1 to {_HIGHEST_SEQ}", problems), kind)
    if kind == pa.float64():
        numbers = _typed(name, values, None, {int, float}, "a number", problems)
        absent = np.array([v is None for v in numbers], np.bool_)
        return pa.array(np.array([0.0 if v is None else v for v in numbers], np.float64), mask=absent)
    return pa.array(_typed(name, values, None, {str}, "a text", problems), kind)


def _typed(
    name: str, values: list[Any], good: Callable[[Any], bool] | None, types: set[type], expected: str, problems: Reasons
) -> list[Any]:
    """The values, with None for those of another type or not `good`."""
    has_right_types = set(map(type, values)) <= types | {type(None)}
    if has_right_types and good is None:
        return values
    kept: list[Any] = []
    for row, value in enumerate(values):
        if value is None or (type(value) in types and (good is None or good(value))):
            kept.append(value)
        else:
            kept.append(None)
            add_problem(problems, row, f"{name} must be {expected}, not {quote_value(value)}")
    return kept


def _each(name: str, values: list[Any], convert: Callable[[Any], Any], problems: Reasons) -> list[Any]:
    converted: list[Any] = []
    for row, value in enumerate(values):
        try:
            converted.append(None if value is None else convert(value))
        except (ValueError, OverflowError):
            converted.append(None)
            add_problem(problems, row, f"{name} must be ISO 8601 or seconds since 1970, not {quote_value(value)}")
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
        return (moment - EPOCH) // timedelta(microseconds=1)
    if isinstance(value, bool) or not isinstance(value, int | float) or not _EARLIEST <= value <= _LATEST:
        raise ValueError(value)
    return round(value * 1_000_000)


def from_arrow(batch: pa.RecordBatch, layout: FileLayout, problems: Reasons) -> Columns:
    """Build columns from a table whose schema has passed `check_types`."""
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
    """Python values; fields of a struct without a value are left out."""
    values: list[Any] = column.to_pylist()
    if pa.types.is_struct(column.type):
        return [v and {k: n for k, n in v.items() if n is not None} for v in values]
    return values


def check_types(schema: pa.Schema, where: str) -> None:
    """Raises InputError for a column whose type does not fit its field."""
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


def check_values(columns: Columns, layout: FileLayout, space: Space, problems: Reasons) -> None:
    """Record problems of values that have the right type: absent, empty, out of range, too many."""
    for name in layout.required:
        _add_where(pc.is_null(columns[name]), f"{name} is missing", problems)
        if pa.types.is_string(columns[name].type):
            _add_where(pc.equal(columns[name], ""), f"{name} is empty", problems)
    _check_coordinates([columns[name] for name in layout.coordinates], space, problems)
    _check_terms(columns["terms"], problems)
    if "time" in columns:
        _check_times(columns["time"], problems)
    if "seq" in columns:
        _add_where(pc.less(columns["seq"], 1), "seq is below 1", problems)
    if "readings" in columns:
        _check_readings(columns["readings"], problems)


def _add_where(mask: pa.Array, problem: str, problems: Reasons) -> None:
    for row in np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False)):
        add_problem(problems, int(row), problem)


def _check_coordinates(columns: list[pa.Array], space: Space, problems: Reasons) -> None:
    # An absent coordinate is NaN here; it was reported as missing already.
    numbers = [pc.fill_null(column, math.nan).to_numpy(zero_copy_only=False) for column in columns]
    reasons = space.bad_points(*numbers) if len(numbers) == 2 else space.bad_boxes(*numbers)
    for row in np.flatnonzero(reasons):
        add_problem(problems, int(row), reasons[row])


def _check_terms(terms: pa.Array, problems: Reasons) -> None:
    _add_where(pc.greater(pc.list_value_length(terms), MAX_TERMS), f"more than {MAX_TERMS} terms", problems)
    rows, values = pc.list_parent_indices(terms).to_numpy(), pc.list_flatten(terms)
    for row in rows[pc.is_null(values).to_numpy(zero_copy_only=False)]:
        add_problem(problems, row, "terms has a null")
    for row in rows[pc.fill_null(pc.equal(values, ""), False).to_numpy(zero_copy_only=False)]:
        add_problem(problems, row, "terms has an empty text")


def _check_times(times: pa.Array, problems: Reasons) -> None:
    seconds = pc.divide(times.cast(pa.int64()), 1_000_000)
    out_of_range = pc.or_(pc.less(seconds, _EARLIEST), pc.greater(seconds, _LATEST))
    _add_where(out_of_range, "time is not between the years 1 and 9999", problems)


def _check_readings(readings: pa.Array, problems: Reasons) -> None:
    pairs = readings.cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.float64())])))
    rows, flat = pc.list_parent_indices(pairs).to_numpy(), pc.list_flatten(pairs)
    named = pc.not_equal(pc.struct_field(flat, "key"), "")
    finite = pc.is_finite(pc.struct_field(flat, "value"))
    for what, good in (("an empty name", named), ("a value that is not a finite number", finite)):
        for row in rows[~pc.fill_null(good, False).to_numpy(zero_copy_only=False)]:
            add_problem(problems, row, f"readings has {what}")
