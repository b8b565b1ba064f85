"""Columns of data frames: finding them by name, and their values as checked arrays.

| field       | types                                                                      |
| ----------- | -------------------------------------------------------------------------- |
| coordinates | numbers, or texts that are numbers; finite and valid in the space          |
| terms       | an array of texts, or a text with `;` between terms; not empty, no nulls   |
| id          | any value; not null, and not an empty text                                 |
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    BinaryType,
    DataType,
    GeographyType,
    GeometryType,
    NullType,
    NumericType,
    SpatialType,
    StringType,
    StructType,
    UserDefinedType,
)

from roamcast.errors import InputError
from roamcast.space import Floats
from roamcast.spark.rows.lines import CORRUPT
from roamcast.spark.rows.problems import Problems, quote_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

__all__ = [
    "GEOMETRY", "ID", "MAX_TERMS", "NUMBER", "TERMS", "TEXT", "ColumnKind", "SentColumns", "check_ids", "check_names",
    "combine", "no_terms", "to_numbers", "to_terms",
]  # fmt: skip

MAX_TERMS: Final = 100_000
_SEPARATOR: Final = ";"
_LISTS: Final = pa.list_(pa.string())


class ColumnKind(NamedTuple):
    """What a field may be read from, in words and as a test of types."""

    expected: str
    fits: Callable[[DataType], bool]


def _is_terms(kind: DataType) -> bool:
    is_list = isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType | NullType)
    return is_list or isinstance(kind, StringType | NullType)


NUMBER: Final = ColumnKind("numbers", lambda kind: isinstance(kind, NumericType | StringType | NullType))
TERMS: Final = ColumnKind("an array of texts, or texts with ';' between terms", _is_terms)
TEXT: Final = ColumnKind("texts", lambda kind: isinstance(kind, StringType))
_GEOMETRIES: Final = BinaryType | StringType | GeometryType | GeographyType | UserDefinedType
GEOMETRY: Final = ColumnKind(
    "WKB, WKT, GEOMETRY or GeoJSON, which to_json makes of a struct", lambda kind: isinstance(kind, _GEOMETRIES)
)
ID: Final = ColumnKind(
    "numbers or texts", lambda kind: isinstance(kind, AtomicType) and not isinstance(kind, SpatialType)
)


class _Found(NamedTuple):
    """A column of a frame, or a field of a nested one: its quoted name, and its type."""

    path: str
    field: StructField


def _find(fields: Sequence[StructField], name: str, side: str) -> _Found | None:
    """Find a column by its name, `position.lon` in a nested one. As in Spark, case counts only to tell two apart."""
    found = [field for field in fields if field.name == name]
    found = found or [field for field in fields if field.name.lower() == name.lower()]
    if len(found) > 1:
        raise InputError(f"several columns {name!r}", where=side, hint="rename all but one of them")
    if found:
        return _Found(f"`{found[0].name.replace('`', '``')}`", found[0])
    outer_name, _, inner_name = name.partition(".")
    outer = _find(fields, outer_name, side) if inner_name else None
    if outer is None or not isinstance(outer.field.dataType, StructType):
        return None
    inner = _find(outer.field.dataType.fields, inner_name, side)
    return inner and _Found(f"{outer.path}.{inner.path}", inner.field)


class SentColumns:
    """The columns of a frame that are sent to Python: those for the result, then those that fields are read from."""

    def __init__(self, frame: DataFrame, side: str, kept: Sequence[str]) -> None:
        self._frame, self.side = frame, side
        self._columns = frame.schema.fields
        self._sent = [self._named(name) for name in kept]
        self.fields = tuple(found.field for found in self._sent)
        check_names([field.name for field in self.fields], side)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, for messages."""
        return tuple(found.path.replace("`", "") for found in self._sent)

    def position(self, name: str, kind: ColumnKind, *, hint: str) -> int:
        """The position of a column, which is added if it is not sent yet.

        Raises InputError if there is none, or if it is of another kind.
        """
        self.expect(name, kind, hint)
        return self.add(name)

    def add(self, name: str) -> int:
        """As `position`, for a column of any kind."""
        found = self._named(name)
        if found not in self._sent:
            self._sent.append(found)
        return self._sent.index(found)

    def field(self, position: int) -> StructField:
        """The column at a position."""
        return self._sent[position].field

    def type_of(self, name: str, hint: str = "") -> DataType:
        """The type of a column, which is not sent because of that. Raises InputError if there is none."""
        return self._named(name, hint).field.dataType

    def expect(self, name: str, kind: ColumnKind, hint: str) -> None:
        """Raises InputError if there is no such column, or if it is of another kind."""
        if not kind.fits(found := self.type_of(name, hint)):
            message = f"column {name!r} is {found.simpleString()}"
            raise InputError(message, where=self.side, hint=f"expected {kind.expected}")

    def select(self) -> DataFrame:
        return self._frame.selectExpr(*(f"{found.path} AS _{at}" for at, found in enumerate(self._sent)))

    def _named(self, name: str, hint: str = "") -> _Found:
        found = _find(self._columns, name, self.side)
        if found is None:
            names = [field.name for field in self._columns if field.name != CORRUPT]
            close = difflib.get_close_matches(name, names, n=1)
            known = [f"did you mean {close[0]!r}?" if close else "", f"columns: {', '.join(names) or 'none'}"]
            hints = [hint, *(_value_of(self._columns, name) or known)]
            raise InputError(f"no column {name!r}", where=self.side, hint="; ".join(filter(None, hints)))
        return found


def _value_of(fields: Sequence[StructField], name: str) -> list[str]:
    """A hint for `position.lng` and `position[0]`: what the column has instead of such a field."""
    outer = _find(fields, re.split(r"[.\[]", name, maxsplit=1)[0], "")
    if outer is None or outer.field.name == name:
        return []
    kind = outer.field.dataType.simpleString()
    is_struct = isinstance(outer.field.dataType, StructType)
    return [f"{outer.field.name!r} is {kind}{'' if is_struct else ': make a column of the value with withColumn'}"]


def check_names(names: Sequence[str], where: str) -> None:
    """Raises InputError if a result would have two columns of the same name; Spark ignores case."""
    lower = [name.lower() for name in names]
    for name in names:
        if lower.count(name.lower()) > 1:
            hint = "rename one of them with withColumnRenamed, or choose others with columns="
            raise InputError(f"two columns {name!r}", where=where, hint=hint)


def to_numbers(column: pa.Array, name: str, problems: Problems, *, required: bool = True) -> Floats:
    """The numbers of a column; NaN where there is none, with a problem if numbers are required.

    NaN in the column is not a problem yet.
    """
    if column.null_count and required:
        _add_where(pc.is_null(column), f"{name} is missing", problems)
    if _is_text(column.type):
        return _parse_numbers(column, name, problems)
    numbers: Floats = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers


def _parse_numbers(column: pa.Array, name: str, problems: Problems) -> Floats:
    try:
        numbers: Floats = pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        numbers = np.full(len(column), np.nan)
        for row, text in enumerate(column.to_pylist()):
            try:
                numbers[row] = np.nan if text is None else pc.cast(pa.scalar(text.strip()), pa.float64()).as_py()
            except pa.ArrowInvalid:
                problems.setdefault(row, f"{name} must be a number, not {quote_value(text)}")
    return numbers


def no_terms(count: int) -> pa.ListArray:
    return pa.nulls(count, _LISTS)


def to_terms(column: pa.Array, problems: Problems) -> pa.ListArray:
    """The terms of a column as lists of texts. A null or an empty text has none."""
    if pa.types.is_null(column.type):
        return no_terms(len(column))
    if _is_text(column.type):
        column = pc.split_pattern(pc.if_else(pc.equal(column, ""), None, column), _SEPARATOR)
    lists: pa.ListArray = column if column.type == _LISTS else column.cast(_LISTS)
    lengths = pc.list_value_length(lists)
    if (pc.max(lengths).as_py() or 0) > MAX_TERMS:
        _add_where(pc.greater(lengths, MAX_TERMS), f"more than {MAX_TERMS} terms", problems)
    values = pc.list_flatten(lists)
    _add_where_in_lists(lists, pc.is_null(values), "terms has a null", problems)
    _add_where_in_lists(lists, pc.equal(values, ""), "terms has an empty text", problems)
    return lists


def _add_where(mask: pa.Array, problem: str, problems: Problems) -> None:
    for row in np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False)):
        problems.setdefault(int(row), problem)


def _add_where_in_lists(lists: pa.ListArray, mask: pa.Array, problem: str, problems: Problems) -> None:
    if pc.any(mask).as_py():
        for row in pc.list_parent_indices(lists).filter(mask).to_pylist():
            problems.setdefault(row, problem)


def check_ids(column: pa.Array, name: str, problems: Problems) -> None:
    """Record where an id is missing or empty."""
    if column.null_count:
        _add_where(pc.is_null(column), f"{name} is missing", problems)
    if _is_text(column.type):
        _add_where(pc.equal(column, ""), f"{name} is empty", problems)


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def combine(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
