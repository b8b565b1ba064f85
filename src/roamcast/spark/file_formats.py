"""Formats of event and subscription files, split into blocks that are read independently. Does not use Spark.

| suffix                       | rows                                                        | counted as             |
| ---------------------------- | ----------------------------------------------------------- | ---------------------- |
| `.parquet`, or a folder      | those of all its Parquet files, ordered by name             | rows of a file, from 1 |
| `.ndjson`, `.jsonl`, `.json` | one JSON object on each line                                | lines                  |
| `.csv`                       | a header, then one row on each line; `;` between terms,     | lines                  |
|                              | `readings` as a JSON object                                 |                        |
| `.geojson`                   | features of a FeatureCollection; their properties are the   | features, from 1       |
|                              | fields, their geometry the coordinates                      |                        |

Text is UTF-8. Blank lines are counted but have no row. A row of CSV is one line, without line breaks in fields. In
GeoJSON, an event is a Point. A subscription is a Polygon or a MultiPolygon, which is split at the antimeridian, or a
`bbox` without a geometry, which may cross it. The id of a row may be that of its feature. A GeoJSON file is read as a
whole, so the other formats are better for much data.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from roamcast.errors import InputError
from roamcast.space import Reasons, Space
from roamcast.spark.file_rows import (
    POLYGON,
    Columns,
    FileLayout,
    check_fields,
    check_types,
    check_values,
    from_arrow,
    from_values,
    parse_or_note,
)
from roamcast.spark.geojson import from_features, read_features

__all__ = ["BLOCK_BYTES", "FileBlock", "RowChunk", "plan_blocks", "read_block"]

_FORMATS: Final = {
    ".parquet": "parquet", ".pq": "parquet", ".ndjson": "ndjson", ".jsonl": "ndjson", ".json": "ndjson",
    ".csv": "csv", ".geojson": "geojson",
}  # fmt: skip
_COUNTED: Final = {"parquet": "row", "ndjson": "line", "csv": "line", "geojson": "feature"}

BLOCK_BYTES: Final = 32 << 20
_BLOCK_ROWS: Final = 200_000
_CHUNK_ROWS: Final = 10_000
_CHUNK_BYTES: Final = 8 << 20
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class FileBlock:
    """A part of a file: bytes of text (the lines that start there), row groups of Parquet, or a whole GeoJSON file.

    Rows of a block are counted from 0. Blocks, and the rows in each, are in the order of the input. `label` is the path
    as the user wrote it.
    """

    path: Path
    label: str
    format: str
    start: int = 0
    stop: int = 0
    first: int = 1
    header: tuple[str, ...] = ()

    def where(self, row: int) -> str:
        """The location of a row for a message. Counts the lines before it, so do not call it for every row."""
        first = self.first
        if self.format in ("ndjson", "csv") and self.start:
            first = 2 + _count_newlines(self.path, self.start - 1)
        return f"{self.label}, {_COUNTED[self.format]} {first + row}"


class RowChunk(NamedTuple):
    """Some rows of a block: their numbers in it, their columns, and the problem of each, or None."""

    rows: npt.NDArray[np.int64]
    columns: Columns
    problems: Reasons


def plan_blocks(path: Path, layout: FileLayout, *, block_bytes: int = BLOCK_BYTES) -> list[FileBlock]:
    """Split a file, or a folder of Parquet files, into blocks. Raises InputError if it is unreadable as a whole."""
    label = str(path)
    if not path.exists():
        raise InputError("no such file", where=label, hint="check the path")
    format = "parquet" if path.is_dir() else _FORMATS.get(path.suffix.lower())
    if format is None:
        raise InputError("unknown format", where=label, hint=f"use one of {', '.join(_FORMATS)}")
    path = path.absolute()
    try:
        if format == "parquet":
            return _plan_parquet(path, label, layout)
        if format == "geojson":
            read_features(path, label)
            return [FileBlock(path, label, format)]
        header = _header(path, label, layout) if format == "csv" else ()
        size = path.stat().st_size
        starts = range(0, size, block_bytes)
        return [FileBlock(path, label, format, at, min(at + block_bytes, size), header=header) for at in starts]
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=label, hint="check the file") from error


def _plan_parquet(path: Path, label: str, layout: FileLayout) -> list[FileBlock]:
    files = [path]
    if path.is_dir():
        files = sorted(f for f in path.rglob("*.parquet") if not f.name.startswith((".", "_")))
        if not files:
            raise InputError("has no Parquet files", where=label, hint="only folders of .parquet files can be read")
    blocks = []
    for file in files:
        shown = label if file == path else str(Path(label) / file.relative_to(path))
        try:
            with pq.ParquetFile(file) as opened:
                metadata, schema = opened.metadata, opened.schema_arrow
        except pa.ArrowException as error:
            raise InputError("not a readable Parquet file", where=shown, hint=_first_line(error)) from error
        check_fields(schema.names, layout, shown)
        check_types(schema, shown)
        start, rows, first = 0, 0, 1
        for group in range(metadata.num_row_groups):
            rows += metadata.row_group(group).num_rows
            if rows >= _BLOCK_ROWS or group == metadata.num_row_groups - 1:
                blocks.append(FileBlock(file, shown, "parquet", start, group + 1, first))
                start, rows, first = group + 1, 0, first + rows
    return blocks


def _header(path: Path, label: str, layout: FileLayout) -> tuple[str, ...]:
    with path.open("rb") as file:
        line = file.readline()
    if not line:
        return ()
    try:
        header = tuple(_cells(line.removeprefix(_BYTE_ORDER_MARK)))
    except ValueError as error:
        raise InputError(str(error), where=f"{label}, line 1", hint="line 1 must name the columns") from error
    check_fields(header, layout, label)
    return header


def read_block(block: FileBlock, layout: FileLayout, space: Space) -> Iterator[RowChunk]:
    """Yield all rows of a block in order, good and bad. Raises InputError if it cannot be read at all."""
    try:
        for rows, columns, problems in _READERS[block.format](block, layout, space):
            if layout.has_polygons:
                columns.setdefault(POLYGON, pa.nulls(len(rows), layout.schema.field(POLYGON).type))
            check_values(columns, layout, space, problems)
            yield RowChunk(rows, columns, problems)
    except (OSError, pa.ArrowException) as error:
        raise InputError("cannot be read", where=block.label, hint=_first_line(error)) from error


def _read_parquet(block: FileBlock, layout: FileLayout, _: Space) -> Iterator[RowChunk]:
    first = 0
    with pq.ParquetFile(block.path) as file:
        for batch in file.iter_batches(_CHUNK_ROWS, row_groups=range(block.start, block.stop)):
            problems = _no_problems(batch.num_rows)
            rows = np.arange(first, first + batch.num_rows, dtype=np.int64)
            yield RowChunk(rows, from_arrow(batch, layout, problems), problems)
            first += batch.num_rows


def _read_lines(block: FileBlock, layout: FileLayout, _: Space) -> Iterator[RowChunk]:
    parse = _parse_object if block.format == "ndjson" else _csv_row(block.header)
    for lines in _chunks(_lines(block)):
        problems = _no_problems(len(lines))
        values = [parse_or_note(parse, line, at, problems) for at, (_, line) in enumerate(lines)]
        rows = np.array([row for row, _ in lines], np.int64)
        yield RowChunk(rows, from_values(values, layout, problems), problems)


def _read_geojson(block: FileBlock, layout: FileLayout, space: Space) -> Iterator[RowChunk]:
    features = read_features(block.path, block.label)
    for first in range(0, len(features), _CHUNK_ROWS):
        portion = features[first : first + _CHUNK_ROWS]
        problems = _no_problems(len(portion))
        rows = np.arange(first, first + len(portion), dtype=np.int64)
        yield RowChunk(rows, from_features(portion, layout, space, problems), problems)


_READERS: Final[Mapping[str, Callable[[FileBlock, FileLayout, Space], Iterator[RowChunk]]]] = {
    "parquet": _read_parquet, "ndjson": _read_lines, "csv": _read_lines, "geojson": _read_geojson,
}  # fmt: skip


def _no_problems(count: int) -> Reasons:
    return np.full(count, None, np.object_)


def _lines(block: FileBlock) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that start in the block with their numbers, except for the header and blank lines."""
    with block.path.open("rb") as file:
        if block.start:
            file.seek(block.start - 1)
            file.readline()
        row = 0
        while file.tell() < block.stop:
            line = file.readline()
            if not block.start and not row:
                line = b"" if block.header else line.removeprefix(_BYTE_ORDER_MARK)
            if not line.isspace() and line:
                yield row, line
            row += 1


def _chunks(lines: Iterator[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    chunk: list[tuple[int, bytes]] = []
    size = 0
    for row, line in lines:
        chunk.append((row, line))
        size += len(line)
        if len(chunk) == _CHUNK_ROWS or size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _parse_object(line: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos + 1}") from error
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _cells(line: bytes) -> list[str]:
    # A row with very many terms is one long cell. The number of terms is checked later.
    csv.field_size_limit(1 << 30)
    try:
        rows = list(csv.reader([line.decode()], strict=True))
    except UnicodeDecodeError as error:
        raise ValueError("not UTF-8") from error
    except csv.Error as error:
        raise ValueError(f"not CSV: {error}") from error
    return rows[0] if rows else []


def _csv_row(header: tuple[str, ...]) -> Callable[[bytes], dict[str, Any]]:
    converters = [_FROM_CELL.get(name, _number) for name in header]

    def parse(line: bytes) -> dict[str, Any]:
        cells = _cells(line)
        if len(cells) != len(header):
            raise ValueError(f"has {len(cells)} cells, but the header has {len(header)}")
        return {n: convert(cell) for n, convert, cell in zip(header, converters, cells, strict=True) if cell}

    return parse


def _number(cell: str) -> float | str:
    """A number, or the text as it is, which is reported later."""
    try:
        return cell if "_" in cell else float(cell)
    except ValueError:
        return cell


def _whole(cell: str) -> int | str:
    return int(cell) if cell.isascii() and cell.isdigit() and len(cell) < 20 else cell


def _readings(cell: str) -> Any:
    try:
        return orjson.loads(cell)
    except orjson.JSONDecodeError:
        return cell


_FROM_CELL: Final[Mapping[str, Callable[[str], Any]]] = {
    "event_id": str, "subscription_id": str, "source": str, "seq": _whole, "readings": _readings,
    "terms": lambda cell: cell.split(";"),
}  # fmt: skip


def _count_newlines(path: Path, size: int) -> int:
    count = 0
    with path.open("rb") as file:
        while size > 0 and (some := file.read(min(size, 1 << 20))):
            count += some.count(b"\n")
            size -= len(some)
    return count


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
