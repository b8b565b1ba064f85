"""Many events or positions in a body: JSON, NDJSON, Arrow IPC or Parquet become columns.

`BodyParser` is the reference: it decides what is valid, and words the errors. Bodies that are plainly good take a short
way without an object for each row, which gives the same. Everything else goes row by row through the reference, so that
errors are the same in all formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import orjson
import pyarrow as pa
from fastapi import Request
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool

from roamcast.errors import InputError
from roamcast.node.columns.rows import (
    EventColumns,
    PositionColumns,
    events_of_models,
    events_of_table,
    events_of_values,
    positions_of_models,
    positions_of_table,
    positions_of_values,
)
from roamcast.node.columns.tables import arrays_of, json_rows
from roamcast.node.http.arrow_bodies import (
    NUMBER,
    TABLE_TYPES,
    TEXT,
    TEXTS,
    ColumnKind,
    describe_columns,
    is_number,
    is_text,
    read_table,
)
from roamcast.node.http.bulk_rows import NDJSON
from roamcast.node.http.request_parsing import BodyParser, media_type, parse_off_loop, read_bytes
from roamcast.node.schemas import EventIn, PositionIn
from roamcast.node.service import Node
from roamcast.node.validation_errors import list_length_error
from roamcast.settings_model import NodeLimits

__all__ = ["EVENTS", "EVENT_COLUMNS", "POSITIONS", "BulkBody", "BulkParser"]

_INTEGER: Final = ColumnKind("an integer", pa.types.is_integer)
_TIME: Final = ColumnKind(
    "a timestamp with a time zone, seconds since 1970 as a number, or ISO 8601 as a string",
    lambda kind: (pa.types.is_timestamp(kind) and kind.tz is not None) or is_text(kind) or is_number(kind),
)


def _has_readings(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        fields = list(kind)
        is_unique = len({field.name for field in fields}) == len(fields)
        return is_unique and all(is_number(field.type) or pa.types.is_null(field.type) for field in fields)
    return bool(pa.types.is_map(kind) and is_text(kind.key_type) and is_number(kind.item_type))


_READINGS: Final = ColumnKind("a map from strings to numbers, or a struct of numbers", _has_readings)

EVENT_COLUMNS: Final = {
    "source": TEXT, "seq": _INTEGER, "id": TEXT, "time": _TIME, "x": NUMBER, "y": NUMBER, "terms": TEXTS,
    "readings": _READINGS,
}  # fmt: skip
POSITION_COLUMNS: Final = {"entity": TEXT, "x": NUMBER, "y": NUMBER, "time": _TIME}

T = TypeVar("T", bound=BaseModel)
C = TypeVar("C")


class BulkBody(NamedTuple, Generic[C]):
    """What a body has. `bulk`: errors name the row, because it was not a single JSON value."""

    columns: C
    bulk: bool


class BulkParser(Generic[T, C]):
    """Parses bodies with one value or many. The functions are those of `columns.rows`."""

    def __init__(
        self,
        model: type[T],
        name: str,
        kinds: Mapping[str, ColumnKind],
        of_models: Callable[[Sequence[T]], C],
        of_values: Callable[[Sequence[Any], NodeLimits], C | None],
        of_table: Callable[[Mapping[str, pa.Array], int, NodeLimits], C | None],
        example: str,
    ) -> None:
        """`name` is that of the rows in errors, `example` a body of lines."""
        self._parser = BodyParser(model, bulk=name)
        self._name = name
        self._kinds = kinds
        self._of_models = of_models
        self._of_values = of_values
        self._of_table = of_table
        tables = dict.fromkeys(sorted(TABLE_TYPES), describe_columns(kinds))
        self.openapi = self._parser.openapi_with(NDJSON, tables, example)

    async def read(self, request: Request, node: Node) -> BulkBody[C]:
        """Read the body and parse it; off the event loop if it is large, or may become so."""
        body, type_ = await read_bytes(request, node), media_type(request)

        def parse() -> BulkBody[C]:
            return self.parse(body, type_, node.limits)

        return await (run_in_threadpool(parse) if type_ in TABLE_TYPES else parse_off_loop(body, parse))

    def parse(self, body: bytes, type_: str, limits: NodeLimits, *, fast: bool = True) -> BulkBody[C]:
        """Raises InputError. Without `fast`, only the reference is used; the result is the same."""
        if type_ in TABLE_TYPES:
            return BulkBody(self._parse_table(body, type_, limits, fast), bulk=True)
        if type_ == NDJSON:
            return BulkBody(self._parse_lines(body, limits, fast), bulk=True)
        if not body.lstrip().startswith(b"["):
            return BulkBody(self._of_models([self._parser.parse(body, limits)]), bulk=False)
        columns = self._of_json(lambda: orjson.loads(body), limits) if fast else None
        if columns is None:
            columns = self._of_models(self._parser.parse_list(body, limits.bulk, limits))
        return BulkBody(columns, bulk=True)

    def _parse_lines(self, body: bytes, limits: NodeLimits, fast: bool) -> C:
        lines = [line for line in body.split(b"\n") if line and not line.isspace()]
        self._check_count(len(lines), limits)
        columns = self._of_json(lambda: list(map(orjson.loads, lines)), limits) if fast else None
        return self._of_models(self._parse_rows(lines, limits)) if columns is None else columns

    def _parse_table(self, body: bytes, type_: str, limits: NodeLimits, fast: bool) -> C:
        table = read_table(body, type_, self._kinds, self._name, limits.bulk, limits.decoded)
        arrays, count = arrays_of(table), table.num_rows
        for field, array in arrays.items():
            if pa.types.is_struct(array.type) and array.type.num_fields > limits.readings:
                message = f"the column has {array.type.num_fields} fields; at most {limits.readings} are allowed"
                raise InputError(message, where=field, hint="send a map, which has only the names that a row needs")
        columns = self._of_table(arrays, count, limits) if fast else None
        if columns is None:
            columns = self._of_models(self._parse_rows(json_rows(arrays, count, self._name), limits))
        return columns

    def _of_json(self, load: Callable[[], Any], limits: NodeLimits) -> C | None:
        try:
            rows = load()
        except orjson.JSONDecodeError:
            return None
        if not isinstance(rows, list) or not 0 < len(rows) <= limits.bulk:
            return None
        return self._of_values(rows, limits)

    def _parse_rows(self, rows: Iterable[bytes], limits: NodeLimits) -> list[T]:
        """The reference for rows that are JSON objects."""
        values = []
        for number, row in enumerate(rows):
            try:
                values.append(self._parser.parse(row, limits))
            except InputError as error:
                field = "" if error.where in (None, "body") else f".{error.where}"
                raise type(error)(error.message, where=f"{self._name}[{number}]{field}", hint=error.hint) from None
        return values

    def _check_count(self, count: int, limits: NodeLimits) -> None:
        if not 0 < count <= limits.bulk:
            raise list_length_error(count, self._name, limits.bulk)


EVENTS: Final = BulkParser[EventIn, EventColumns](
    EventIn,
    "events",
    EVENT_COLUMNS,
    events_of_models,
    events_of_values,
    events_of_table,
    '{"seq":1,"x":13.4,"y":52.5,"terms":["fire"]}\n{"seq":2,"x":13.4,"y":52.5,"readings":{"celsius":71.5}}\n',
)
POSITIONS: Final = BulkParser[PositionIn, PositionColumns](
    PositionIn,
    "positions",
    POSITION_COLUMNS,
    positions_of_models,
    positions_of_values,
    positions_of_table,
    '{"x":13.4,"y":52.5,"time":"2026-01-31T12:00:00Z"}\n{"x":13.5,"y":52.5,"time":"2026-01-31T12:00:10Z"}\n',
)
