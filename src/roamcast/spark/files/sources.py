"""Events and subscriptions from files and tables, by Spark's own readers: any storage, with globs.

| suffix                       | format                                                                       |
| ---------------------------- | ---------------------------------------------------------------------------- |
| `.parquet`, `.pq`, `.orc`    | columns with types; of GeoParquet, what it says of geometries is checked     |
| `.ndjson`, `.jsonl`, `.json` | one JSON object on each line                                                 |
| `.csv`                       | a header, then one row on each line                                          |
| `.geojson`                   | features of a FeatureCollection: their properties are the columns            |

Text may be compressed (`.gz`, `.bz2`, `.zst`). The types of JSON come from the first lines; a value of another type
makes a bad row; `terms` may be absent. Columns of CSV are texts. `table:NAME` is a table, and other formats of Spark
are named.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, cast
from urllib.parse import unquote

from pyspark.sql.types import ArrayType, DataType, DoubleType, MapType, StringType, StructField, StructType

from roamcast.durable import storage_errors
from roamcast.errors import InputError
from roamcast.spark.files.geojson import Noun, feature_lines
from roamcast.spark.geoparquet import with_file_metadata
from roamcast.spark.rows.lines import CORRUPT, FieldKind, TextLines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

__all__ = ["NUMBER", "PLACE", "TABLE", "Fields", "Source", "SourceFrame", "is_local", "local_path", "show_place"]

TABLE: Final = "table:"
PLACE: Final = "_place"
NUMBER: Final = "_number"
TERMS: Final = "terms"

_FORMATS: Final = {
    ".parquet": "parquet", ".pq": "parquet", ".orc": "orc", ".ndjson": "ndjson", ".jsonl": "ndjson", ".json": "ndjson",
    ".csv": "csv", ".geojson": "geojson",
}  # fmt: skip
_COMPRESSED: Final = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate")
_GLOB: Final = re.compile(r"[\[\]{}*?\\]")
_SAMPLE: Final = 1_000  # lines
_TYPES: Final[Mapping[FieldKind, DataType]] = {
    "number": DoubleType(), "terms": ArrayType(StringType()), "text": StringType(),
    "numbers": MapType(StringType(), DoubleType()), "object": StringType(),
}  # fmt: skip
_FILE: Final = "_metadata.file_path"
_ROW: Final = "concat(_metadata.file_path, ', row ', _metadata.row_index + 1)"
_CSV: Final[Mapping[str, Any]] = {
    "header": True, "enforceSchema": False, "escape": '"', "maxCharsPerColumn": -1, "columnPruning": False,
    "unescapedQuoteHandling": "RAISE_ERROR",
}  # fmt: skip

Fields = Mapping[str, FieldKind]
"""The columns of a source that fields are read from, and what they must be."""


class SourceFrame(NamedTuple):
    """The rows of a source. Of text formats, `lines` tells what is wrong with what is in the column CORRUPT.

    `place` is the SQL expression of where a row is.
    """

    frame: DataFrame
    place: str
    lines: TextLines | None = None

    def located(self) -> DataFrame:
        """The rows with two more columns: where each is, and a number that has their order. This takes time."""
        return self.frame.selectExpr("*", f"{self.place} AS {PLACE}", f"monotonically_increasing_id() AS {NUMBER}")


def show_place(place: str) -> str:
    """A place for people: the path of a file, without escapes."""
    return unquote(place.removeprefix("file://").removeprefix("file:"))


class Source(NamedTuple):
    """Where rows are: a path, a glob, a URI, or `table:NAME`; and their format, by default that of the suffix."""

    location: str
    format: str | None = None

    def check(self) -> Source:
        """The source with its format. Raises InputError for a local path that cannot be read, without Spark."""
        if self.location.startswith(TABLE):
            return self._replace(format="table")
        if not is_local(self.location):
            return self._replace(format=self.format or _format_of(PurePath(self.location)) or "parquet")
        path = local_path(self.location)
        if path.exists():
            format = self.format or self._only_format(path)
            if format == "geojson" and path.is_file() and not path.stat().st_size:  # Spark would not see it
                raise InputError("is empty", where=self.location, hint="a GeoJSON file is one JSON document")
            return self._replace(format=format)
        if not _GLOB.search(str(path)) or ("{" not in str(path) and not glob.glob(str(path))):  # noqa: PTH207 - absolute
            raise InputError("no such file", where=self.location, hint="check the path")
        return self._replace(format=self.format or _format_of(path) or "parquet")

    def _only_format(self, path: Path) -> str:
        if path.name.startswith(("_", ".")):
            hint = "Spark ignores names that begin with '_' or '.': rename it"
            raise InputError("is a hidden file", where=self.location, hint=hint)
        formats = {_format_of(file) for file in _data_files(path)}
        if not formats:
            raise InputError("has no files", where=self.location, hint="check the path")
        only = formats.pop()
        if formats or only is None:
            known = ", ".join(_FORMATS)
            raise InputError("unknown format", where=self.location, hint=f"use one of {known}, or name the format")
        return only

    def read(self, spark: SparkSession, fields: Fields, noun: Noun, id: str | None) -> SourceFrame:
        """Read it lazily; of text, the header or the first lines are read at once. `check` must have been called."""
        if self.format == "table":
            return SourceFrame(spark.read.table(self.location.removeprefix(TABLE)), self._place)
        path = self._path()
        match self.format:
            case "csv":
                names = self._reader(spark).options(**_CSV).csv(path).columns
                schema = StructType([StructField(name, StringType()) for name in (*names, CORRUPT)])
                frame = self._reader(spark).options(**_CSV).schema(schema).csv(path)
                return SourceFrame(frame, _FILE, TextLines("csv", cells=len(names)))
            case "ndjson":
                schema = _json_schema(spark, self._reader(spark).text(path), fields)
                frame = self._reader(spark).schema(schema).json(path)
                return SourceFrame(frame, _FILE, TextLines("ndjson", fields=tuple(fields.items())))
            case "geojson":
                texts = self._reader(spark).text(path, wholetext=True)
                lines = feature_lines(texts, self.location, noun, id or "id")
                frame = spark.read.schema(_json_schema(spark, lines, fields)).json(lines)
                return SourceFrame(frame, self._place, TextLines("geojson", fields=tuple(fields.items())))
            case "parquet" | "geoparquet":
                frame = self._reader(spark).parquet(path)
                return SourceFrame(with_file_metadata(frame) if "text" in fields.values() else frame, _ROW)
            case _:
                frame = self._reader(spark).format(str(self.format)).load(path)
                return SourceFrame(frame, _FILE if self.format == "orc" else self._place)

    @property
    def is_local(self) -> bool:
        return is_local(self.location) and not self.location.startswith(TABLE)

    @property
    def _place(self) -> str:
        return "'" + self.location.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def _path(self) -> str:
        """As Spark takes it: the name of a local file is not a glob."""
        if not is_local(self.location):
            return self.location
        path = local_path(self.location)
        return "file://" + (_GLOB.sub(r"\\\g<0>", str(path)) if path.exists() else str(path))

    def _reader(self, spark: SparkSession) -> DataFrameReader:
        """Read folders in a folder too, which Spark ignores unless they are partitions."""
        path = local_path(self.location)
        if not is_local(self.location) or not path.is_dir() or any("=" in name for _, name in _entries(path)):
            return spark.read
        return spark.read.option("recursiveFileLookup", True)


def is_local(location: str) -> bool:
    return "://" not in location or location.startswith("file:///")


def local_path(location: str) -> Path:
    return Path(location.removeprefix("file://")).absolute()


def _data_files(path: Path) -> Iterable[Path]:
    """The files that Spark reads at a path."""
    if path.is_file():
        return [path]
    entries = (folder / name for folder, name in _entries(path))
    files = (file.relative_to(path) for file in entries if file.is_file())
    return [path / file for file in files if not any(part.startswith(("_", ".")) for part in file.parts)]


def _entries(path: Path) -> Iterator[tuple[Path, str]]:
    """The folder and the name of all files and folders in a folder, and once in those that are linked."""
    seen = set()
    with storage_errors(path):
        for folder, folders, files in os.walk(path, onerror=_raise, followlinks=True):
            real = Path(folder).resolve()
            if real in seen:
                folders.clear()
                continue
            seen.add(real)
            yield from ((Path(folder), name) for name in (*folders, *files))


def _raise(error: OSError) -> NoReturn:
    raise error


def _format_of(path: PurePath) -> str | None:
    name = path.name.lower()
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    return _FORMATS.get(PurePath(name).suffix)


def _json_schema(spark: SparkSession, lines: DataFrame, fields: Fields) -> StructType:
    """The columns of the first lines, with the types that fields must have; the fields alone if there is no line."""
    sample = {field.name.lower(): field for field in reversed(spark.read.json(lines.limit(_SAMPLE)).schema.fields)}
    sample.pop(CORRUPT, None)
    if TERMS in fields:  # rows of JSON may leave them out
        sample.setdefault(TERMS, StructField(TERMS, StringType()))
    schema: DataType = StructType([*reversed(sample.values())])
    if not sample.keys() - {TERMS}:
        schema = StructType([StructField(name, StringType()) for name in fields])
    for name, kind in fields.items():
        if kind in _TYPES:
            schema = _retyped(schema, [name] if name.lower() in sample else name.split("."), _TYPES[kind])
    return StructType([*cast(StructType, schema), StructField(CORRUPT, StringType())])


def _retyped(kind: DataType, path: Sequence[str], to: DataType) -> DataType:
    """A nested type with another type at a path; the same if there is no such path."""
    if not path:
        return to
    if not isinstance(kind, StructType):
        return kind
    return StructType(
        [
            StructField(field.name, _retyped(field.dataType, path[1:], to))
            if field.name.lower() == path[0].lower()
            else field
            for field in kind
        ]
    )
