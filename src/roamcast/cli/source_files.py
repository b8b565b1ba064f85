"""Files of sources, for `roamcast register source --gateway … --file`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from roamcast.cli.added_rows import RowPortion, add_rows, json_portions
from roamcast.cli.attributes import parse_attributes
from roamcast.cli.output import Progress
from roamcast.cli.row_files import json_rows, located, open_file
from roamcast.errors import InputError

if TYPE_CHECKING:
    from roamcast.client import Client, SourceResult
    from roamcast.node.http.arrow_bodies import ColumnKind

__all__ = ["register_file"]

_ROW_HINT: Final = "a row has id; and perhaps x and y, and attributes"


def register_file(client: Client, file: str, *, skip: bool, as_json: bool) -> None:
    """Register the sources of a file for a gateway, and print how many. Exits with 1 if some were refused.

    Sources that the gateway has already stay as they are, so it can be repeated.
    """
    from roamcast.client import SourceResult

    if file != "-" and not skip:
        _check(client, file)

    def register(portion: RowPortion) -> list[SourceResult]:
        rows = list(portion.rows)
        results = iter(client.register_sources([row for row in rows if not isinstance(row, InputError)]))
        return [SourceResult(None, False, row) if isinstance(row, InputError) else next(results) for row in rows]

    portions = json_portions(_rows(file))
    add_rows(file, "source", portions, register, row_hint=_ROW_HINT, as_json=as_json)


def _check(client: Client, file: str) -> None:
    """Refuse the file if a row is invalid, as far as can be seen here: nothing is registered then."""
    from pydantic import ValidationError

    from roamcast.coordinates import COORDINATES
    from roamcast.node.schemas import EntityIn
    from roamcast.node.validation_errors import input_error_of

    space = COORDINATES[client.health()["space"]]
    with Progress(f"checking {file}"):
        for number, row in _rows(file):
            try:
                if isinstance(row, InputError):
                    raise row
                source = EntityIn.model_validate_json(row)
                if source.token is not None:
                    raise InputError("a source of a gateway has no token of its own", where="token", hint="omit it")
                if source.x is not None and source.y is not None:
                    space.check_point(source.x, source.y)
            except ValidationError as error:
                raise located(input_error_of(error, "", model=EntityIn), file, number, _ROW_HINT) from None
            except InputError as error:
                raise located(error, file, number, _ROW_HINT) from None


def _rows(file: str) -> Iterator[tuple[int, bytes | InputError]]:
    return _csv_rows(file) if Path(file).suffix.lower() == ".csv" else json_rows(file, _columns)


def _csv_rows(file: str) -> Iterator[tuple[int, bytes | InputError]]:
    """The rows of a CSV file with a header as JSON, or what is wrong with one.

    Columns other than id, x and y are attributes; empty is absent.
    """
    with open_file(file) as content:
        lines = csv.DictReader(io.TextIOWrapper(content, "utf-8-sig", newline=""), strict=True)
        try:
            for cells in lines:
                row = _CsvRow(lines.line_num, cells)
                try:
                    source: bytes | InputError = json.dumps(row.fields()).encode()
                except InputError as error:
                    source = error
                yield row.number, source
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(f"it cannot be read: {error}", where=file, hint="save it as CSV in UTF-8") from error


class _CsvRow(NamedTuple):
    number: int
    cells: Mapping[str | None, Any]

    def fields(self) -> dict[str, Any]:
        """Raises InputError."""
        if None in self.cells or None in self.cells.values():
            raise InputError("it has not as many cells as the header", hint="put cells with commas in quotes")
        cells = {str(name): text for name, text in self.cells.items() if text != ""}
        fields: dict[str, Any] = {name: cells.pop(name) for name in ("id", "x", "y") if name in cells}
        for name in ("x", "y"):
            if name in fields:
                try:
                    fields[name] = float(fields[name])
                except ValueError:
                    raise InputError(f"{fields[name]!r} is not a number", where=name, hint="for example 8.5") from None
        try:
            attributes = parse_attributes(f"{name}={text}" for name, text in cells.items())
        except InputError as error:
            error.where = (error.where or "").removeprefix("--attribute ")
            raise
        return fields | {"attributes": attributes}


def _columns() -> Mapping[str, ColumnKind]:
    import pyarrow as pa

    from roamcast.node.http.arrow_bodies import NUMBER, TEXT, ColumnKind, is_number, is_text

    def is_attribute(kind: pa.DataType) -> bool:
        return is_text(kind) or is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)

    def has_attributes(kind: pa.DataType) -> bool:
        if pa.types.is_struct(kind):
            return all(is_attribute(field.type) for field in kind)
        return bool(pa.types.is_map(kind) and is_text(kind.key_type) and is_attribute(kind.item_type))

    attributes = "a struct of strings, numbers and booleans, or a map from strings to one of these"
    return {"id": TEXT, "x": NUMBER, "y": NUMBER, "attributes": ColumnKind(attributes, has_attributes)}
