"""Files of sources, for `roamcast register source --gateway … --file`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from roamcast.cli.added_rows import RowPortion, add_rows, json_portions
from roamcast.cli.output import Progress
from roamcast.cli.row_files import json_rows, located
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
    if file != "-" and not skip:
        _check(client, file)

    def register(portion: RowPortion) -> list[SourceResult]:
        return client.register_sources(portion.rows)

    portions = json_portions(json_rows(file, _columns))
    add_rows(file, "source", portions, register, row_hint=_ROW_HINT, as_json=as_json)


def _check(client: Client, file: str) -> None:
    """Refuse the file if a row is invalid, as far as can be seen here: nothing is registered then."""
    from pydantic import ValidationError

    from roamcast.coordinates import COORDINATES
    from roamcast.node.schemas import EntityIn
    from roamcast.node.validation_errors import input_error_of

    space = COORDINATES[client.health()["space"]]
    with Progress(f"checking {file}"):
        for number, row in json_rows(file, _columns):
            try:
                source = EntityIn.model_validate_json(row)
                if source.token is not None:
                    raise InputError("a source of a gateway has no token of its own", where="token", hint="omit it")
                if source.x is not None and source.y is not None:
                    space.check_point(source.x, source.y)
            except ValidationError as error:
                raise located(input_error_of(error, "", model=EntityIn), file, number, _ROW_HINT) from None
            except InputError as error:
                raise located(error, file, number, _ROW_HINT) from None


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
