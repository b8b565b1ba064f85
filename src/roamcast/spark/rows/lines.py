"""Lines of text files that Spark's readers could not read, and what is wrong with them. Does not use Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from roamcast.spark.rows.problems import Problems, quote_value

__all__ = ["CORRUPT", "FieldKind", "LineFormat", "TextLines"]

CORRUPT: Final = "_corrupt_record"
"""The column in which Spark's readers put a line that they cannot read, or cannot read completely."""

FieldKind: TypeAlias = Literal["number", "terms", "text", "numbers", "object", "any"]
LineFormat: TypeAlias = Literal["csv", "ndjson", "geojson"]

_EXPECTED: Final[Mapping[FieldKind, tuple[str, Callable[[Any], bool]]]] = {
    "number": ("a number", lambda value: type(value) in (int, float)),
    "terms": ("a list of texts", lambda value: type(value) is list and {type(term) for term in value} <= {str}),
    "text": ("a text", lambda _: True),
    "numbers": (
        "an object of numbers",
        lambda value: type(value) is dict and {type(each) for each in value.values()} <= {int, float, type(None)},
    ),
    "object": ("an object", lambda value: type(value) is dict),
    "any": ("a value", lambda _: True),
}


class TextLines(NamedTuple):
    """The format of text lines, how many cells a line of CSV has, and the fields of JSON that have a certain type."""

    format: LineFormat
    cells: int = 0
    fields: tuple[tuple[str, FieldKind], ...] = ()

    def problem(self, line: str) -> str:
        """What is wrong with a line that Spark's reader refused."""
        if self.format == "csv":
            return f"does not have {self.cells} cells, as the header has"
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            return f"not JSON: {error.msg} at character {error.pos + 1}"
        if not isinstance(value, dict):
            return str(value[0]) if self.format == "geojson" else "not a JSON object"
        for name, kind in self.fields:
            expected, fits = _EXPECTED[kind]
            if value.get(name) is not None and not fits(value[name]):
                return f"{name} must be {expected}, not {quote_value(value[name])}"
        return "a value has another type than in the first lines"

    def check(self, rows: pa.RecordBatch | pa.Table, names: Sequence[str], problems: Problems) -> None:
        """Record what the reader refused, and bytes of CSV that are not UTF-8, which it replaces."""
        for name, column in zip(names, rows.columns, strict=True):
            if name == CORRUPT:
                for row in _where(pc.is_valid(column)):
                    problems.setdefault(row, self.problem(column[row].as_py()))
            elif self.format == "csv" and pa.types.is_string(column.type):
                for row in _where(pc.match_substring(column, "\ufffd")):
                    problems.setdefault(row, "not UTF-8")


def _where(mask: Any) -> list[int]:
    rows: list[int] = pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist()
    return rows
