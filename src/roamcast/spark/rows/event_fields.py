"""Readings of events and attributes of their sources: finding them in frames, and their values as conditions test them.

| given as                             | readings                   | attributes                                |
| ------------------------------------ | -------------------------- | ----------------------------------------- |
| a column                             | a map or struct of numbers | a map or struct, or texts of JSON objects |
| columns, or names with their columns | numbers                    | texts, numbers, booleans                  |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BooleanType, DataType, MapType, NullType, NumericType, StringType, StructType

from roamcast.errors import InputError
from roamcast.lacl.conditions import Attribute
from roamcast.match.port import Events
from roamcast.pipeline.tasks.event_columns import CONTEXT, EventColumns, parse_attributes
from roamcast.space import Floats
from roamcast.spark.rows.columns import ColumnKind, SentColumns, to_numbers
from roamcast.spark.rows.conditions import Needs
from roamcast.spark.rows.problems import Problems, quote_value

__all__ = [
    "NO_EVENT_FIELDS",
    "NO_FIELDS",
    "EventFields",
    "FieldColumns",
    "FieldNames",
    "FieldReader",
    "attribute_texts",
    "plan_fields",
]

FieldNames: TypeAlias = str | Sequence[str] | Mapping[str, str] | None
"""A column that has all of them; or columns, each under the name of what it has; None: events have none."""

Integers = npt.NDArray[np.int64]

_HINT: Final = "pass {0}= with a column of all {0}, or the columns that are {0}"


def _is_number(kind: DataType) -> bool:
    return isinstance(kind, NumericType | StringType | NullType)


def _is_attribute(kind: DataType) -> bool:
    return bool(_kinds(kind))


def _kinds(kind: DataType) -> frozenset[str]:
    """The kinds of values that a column can have, of those that conditions compare."""
    if isinstance(kind, NullType):
        return frozenset(["text", "number", "boolean"])
    names = {StringType: "text", NumericType: "number", BooleanType: "boolean"}
    return frozenset(name for each, name in names.items() if isinstance(kind, each))


_READING: Final = ColumnKind("numbers", _is_number)
_ATTRIBUTE: Final = ColumnKind("texts, numbers or booleans", _is_attribute)


class _Whole(NamedTuple):
    """What a column that has all of them may be."""

    texts: bool
    in_map: ColumnKind

    def expect(self, kind: DataType, name: str, side: str) -> None:
        is_map = isinstance(kind, MapType) and isinstance(kind.keyType, StringType) and self.in_map.fits(kind.valueType)
        if not (is_map or isinstance(kind, StructType) or (self.texts and isinstance(kind, StringType))):
            expected = f"expected a map or a struct of {self.in_map.expected}"
            hint = f"{expected}, or JSON objects" if self.texts else expected
            raise InputError(f"column {name!r} is {kind.simpleString()}", where=side, hint=hint)


_ALL_READINGS: Final = _Whole(False, ColumnKind("numbers", lambda kind: isinstance(kind, NumericType | NullType)))
_ALL_ATTRIBUTES: Final = _Whole(True, _ATTRIBUTE)


class EventFields(NamedTuple):
    """Readings and attributes of a batch of events, by name; `reading_map` and `texts` (JSON) have any others."""

    readings: Mapping[str, pa.Array]
    reading_map: pa.Array | None
    attributes: Mapping[str, pa.Array]
    texts: pa.Array | None

    def filter(self, mask: pa.Array) -> EventFields:
        readings, attributes = (
            {name: column.filter(mask) for name, column in columns.items()}
            for columns in (self.readings, self.attributes)
        )
        reading_map, texts = (column and column.filter(mask) for column in (self.reading_map, self.texts))
        return EventFields(readings, reading_map, attributes, texts)


NO_EVENT_FIELDS: Final = EventFields({}, None, {}, None)


class FieldReader(NamedTuple):
    """Reads fields at these positions of a batch. Of a map of attributes, those with `names` are read.

    `as_numbers` and `as_booleans` are attributes in columns of CSV, which has only texts.
    """

    readings: tuple[tuple[str, int], ...] = ()
    reading_map: int | None = None
    attributes: tuple[tuple[str, int], ...] = ()
    attribute_map: int | None = None
    texts: int | None = None
    names: tuple[str, ...] = ()
    as_numbers: frozenset[str] = frozenset()
    as_booleans: frozenset[str] = frozenset()

    def read(self, batch: pa.RecordBatch, columns: Sequence[str], problems: Problems) -> EventFields:
        readings = {
            name: pa.array(to_numbers(batch.column(at), columns[at], problems, required=False))
            for name, at in self.readings
        }
        attributes = {name: self._typed(name, batch.column(at)) for name, at in self.attributes}
        if self.attribute_map is not None:
            column = batch.column(self.attribute_map)
            attributes |= {name: pc.map_lookup(column, pa.scalar(name), "first") for name in self.names}
        texts = None
        if self.texts is not None:
            texts = batch.column(self.texts)
            _check_objects(texts, columns[self.texts], problems)
        reading_map = None if self.reading_map is None else batch.column(self.reading_map)
        return EventFields(readings, reading_map, attributes, texts)

    def _typed(self, name: str, column: pa.Array) -> pa.Array:
        """A column of CSV as numbers or booleans; what is neither equals none of these, as if it were missing."""
        if name in self.as_numbers:
            return pa.array(to_numbers(column, name, {}, required=False))
        if name in self.as_booleans:
            return pc.if_else(pc.is_in(column, pa.array(["true", "false"])), pc.equal(column, "true"), None)
        return column


NO_FIELDS: Final = FieldReader()


def _check_objects(column: pa.Array, name: str, problems: Problems) -> None:
    encoded = column.dictionary_encode()
    bad = np.array([not _is_object(text) for text in encoded.dictionary.to_pylist()] + [False])
    for row in np.flatnonzero(bad[pc.fill_null(encoded.indices, -1).to_numpy()]).tolist():
        problems.setdefault(row, f"{name} must be a JSON object, not {quote_value(column[row].as_py())}")


def _is_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


class FieldColumns(EventColumns):
    """The columns of a batch of events of a data frame, for the pipeline's tests of conditions."""

    def __init__(self, points: Events, fields: EventFields) -> None:
        columns = [pa.array(points.x), pa.array(points.y), points.terms]
        super().__init__(pa.RecordBatch.from_arrays(columns, ["x", "y", "terms"]))
        self._fields = fields

    @cached_property
    def coded(self) -> tuple[Integers, list[Mapping[str, Attribute]]]:
        """For each row the number of its attributes, and these."""
        if self._fields.texts is not None:
            encoded = pc.fill_null(self._fields.texts, "").dictionary_encode()
            codes = encoded.indices.to_numpy().astype(np.int64)
            return codes, [parse_attributes(text) for text in encoded.dictionary.to_pylist()]
        codes, first = np.zeros(self.events.num_rows, np.int64), np.zeros(min(self.events.num_rows, 1), np.int64)
        for column in self._fields.attributes.values():
            encoded = column.dictionary_encode()
            missing = len(encoded.dictionary)
            codes = codes * (missing + 1) + pc.fill_null(encoded.indices, missing).to_numpy()
            _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
        rows = pa.array(first)
        values = [column.take(rows).to_pylist() for column in self._fields.attributes.values()]
        names = [*self._fields.attributes]
        return codes, [_present(names, [each[row] for each in values]) for row in range(len(first))]

    @cached_property
    def _attribute_codes(self) -> Integers:
        return self.coded[0]

    @cached_property
    def _attributes(self) -> list[Mapping[str, Attribute]]:
        return self.coded[1]

    def _reading(self, name: str) -> Floats:
        if name not in self._readings:
            column = self._fields.readings.get(name)
            if column is None and self._fields.reading_map is not None:
                column = pc.map_lookup(self._fields.reading_map, pa.scalar(name), "first").cast(
                    pa.float64(), safe=False
                )
            missing = np.full(self.events.num_rows, np.nan)
            self._readings[name] = missing if column is None else pc.fill_null(column, np.nan).to_numpy()
        return self._readings[name]


def attribute_texts(points: Events, fields: EventFields) -> pa.Array:
    """The attributes of each row as a text of JSON."""
    codes, attributes = FieldColumns(points, fields).coded
    texts = pa.array([orjson.dumps(each).decode() for each in attributes], pa.string())
    return texts.take(pa.array(codes))


def _present(names: Sequence[str], values: Sequence[Any]) -> dict[str, Attribute]:
    """The attributes that are present. Fractions are compared as floats."""
    present = zip(names, values, strict=True)
    return {name: float(value) if isinstance(value, Decimal) else value for name, value in present if value is not None}


def plan_fields(
    sent: SentColumns, readings: FieldNames, attributes: FieldNames, needs: Needs, *, untyped: bool = False
) -> FieldReader:
    """Add the columns that conditions need to those that are sent, and return what reads them.

    `untyped`: columns have only texts, as in CSV. Raises InputError for columns that are missing or have a wrong type,
    and if conditions need something that no column has.
    """
    reader = _plan_readings(sent, readings, needs)
    return _plan_attributes(sent, attributes, needs, reader, untyped)


def _plan_readings(sent: SentColumns, given: FieldNames, needs: Needs) -> FieldReader:
    columns, _ = _columns(sent, given, "readings", _ALL_READINGS, _READING)
    needed = sorted(needs.readings)
    if not needed and not needs.plain:
        return NO_FIELDS
    if given is None:
        which = f"@{needed[0]}" if needed else "@"
        raise _missing(f"{which}, but {sent.side} have no readings", sent, _HINT.format("readings"))
    if columns is None:
        return FieldReader(reading_map=sent.add(str(given)))
    for name in needed:
        if name not in columns:
            hint = f"readings: {', '.join(columns) or 'none'}"
            raise _missing(f"@{name}, but {sent.side} have no such reading", sent, hint)
    names = columns if needs.plain else needed
    return FieldReader(readings=tuple((name, sent.add(columns[name])) for name in names))


def _plan_attributes(
    sent: SentColumns, given: FieldNames, needs: Needs, reader: FieldReader, untyped: bool
) -> FieldReader:
    columns, whole = _columns(sent, given, "attributes", _ALL_ATTRIBUTES, _ATTRIBUTE)
    needed = sorted(needs.attributes)
    if not needed:
        return reader
    for name in needed:
        variable = f"{needs.sigil}{name}"
        test = "plain @, which is named by the attribute 'context'" if name == CONTEXT and needs.plain else variable
        if given is None:
            raise _missing(f"{test}, but {sent.side} have no attributes", sent, _HINT.format("attributes"))
        if columns is not None and name not in columns:
            hint = f"attributes: {', '.join(columns) or 'none'}"
            raise _missing(f"{test}, but {sent.side} have no such attribute", sent, hint)
        kind = whole if columns is None else sent.type_of(columns[name])
        if isinstance(kind, MapType):
            kind = kind.valueType
        compared = needs.attributes[name]
        as_texts = isinstance(whole, StringType) or (untyped and len(compared) == 1)
        if not as_texts and not compared <= _kinds(kind):
            other = " and ".join(sorted(compared - _kinds(kind)))
            message = f"{variable} with a {other}, but the column is {kind.simpleString()}"
            hint = "cast the column; attributes in JSON objects may have values of different types"
            raise InputError(f"subscriptions compare {message}", where=sent.side, hint=hint)
    if columns is None and isinstance(whole, StringType):
        return reader._replace(texts=sent.add(str(given)))
    if columns is None:
        return reader._replace(attribute_map=sent.add(str(given)), names=tuple(needed))
    of_kind = [frozenset(n for n in needed if untyped and needs.attributes[n] == {k}) for k in ("number", "boolean")]
    positions = tuple((name, sent.add(columns[name])) for name in needed)
    return reader._replace(attributes=positions, as_numbers=of_kind[0], as_booleans=of_kind[1])


def _columns(
    sent: SentColumns, given: FieldNames, what: str, whole: _Whole, each: ColumnKind
) -> tuple[Mapping[str, str] | None, DataType]:
    """The column of each name; None if one column has all, whose type is returned too."""
    if given is None:
        return {}, NullType()
    hint = f"check {what}="
    if isinstance(given, str):
        kind = sent.type_of(given, hint)
        whole.expect(kind, given, sent.side)
        if not isinstance(kind, StructType):
            return None, kind
        return {field.name: f"{given}.{field.name}" for field in kind if each.fits(field.dataType)}, kind
    columns = dict(given) if isinstance(given, Mapping) else {name: name for name in given}
    for name in columns.values():
        sent.expect(name, each, hint)
    return columns, NullType()


def _missing(what: str, sent: SentColumns, hint: str) -> InputError:
    return InputError(f"subscriptions test {what}", where=sent.side, hint=hint)
