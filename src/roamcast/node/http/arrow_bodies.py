"""Request bodies that are tables: Arrow IPC streams and files, and Parquet.

A body of a few kilobytes can be a table of gigabytes. So its columns, its rows and the bytes that it will take up are
checked before anything of it is decoded; and again before texts that are stored once for many rows are written out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from roamcast.errors import InputError
from roamcast.node.http.errors import BodyTooLargeError
from roamcast.node.http.ipc_size import TableSize, ipc_size
from roamcast.node.http.parquet_size import parquet_size
from roamcast.node.validation_errors import MalformedError, known_names, list_length_error

__all__ = [
    "ARROW_FILE", "ARROW_STREAM", "BOOLEAN", "NUMBER", "NUMBERS", "PARQUET", "TABLE_TYPES", "TEXT", "TEXTS",
    "ColumnKind", "check_columns", "describe_columns", "is_list", "is_number", "is_text", "read_table",
]  # fmt: skip

ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
ARROW_FILE: Final = "application/vnd.apache.arrow.file"
PARQUET: Final = "application/vnd.apache.parquet"
TABLE_TYPES: Final = frozenset({ARROW_STREAM, ARROW_FILE, PARQUET})
"""Media types of bodies that `read_table` reads."""

_FILE_START: Final = b"ARROW1\0\0"


class ColumnKind(NamedTuple):
    """The types that a column may have, and what they are for an error."""

    expected: str
    accepts: Callable[[pa.DataType], bool]


def describe_columns(columns: Mapping[str, ColumnKind]) -> str:
    """For the OpenAPI document."""
    listed = "; ".join(f"`{name}`, {kind.expected}" for name, kind in columns.items())
    return f"A table. Columns, each of which may be missing: {listed}. A null is a field that is not there."


def is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind))


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


TEXT: Final = ColumnKind("a string", is_text)
TEXTS: Final = ColumnKind(
    "a list of strings",
    lambda kind: is_list(kind) and (is_text(kind.value_type) or pa.types.is_null(kind.value_type)),
)
NUMBER: Final = ColumnKind("a number", is_number)
NUMBERS: Final = ColumnKind(
    "a list of numbers",
    lambda kind: is_list(kind) and (is_number(kind.value_type) or pa.types.is_null(kind.value_type)),
)
BOOLEAN: Final = ColumnKind("a boolean", pa.types.is_boolean)


class _Limits(NamedTuple):
    columns: Mapping[str, ColumnKind]
    name: str
    most: int
    most_bytes: int

    def check_size(self, size: TableSize) -> None:
        self.check_rows(size.rows)
        self.check_bytes(size.bytes)

    def check_rows(self, count: int) -> None:
        if not 0 < count <= self.most:
            raise list_length_error(count, self.name, self.most)

    def check_bytes(self, size: int) -> None:
        if size > self.most_bytes:
            raise BodyTooLargeError(
                f"the body has {size} bytes when it is decoded; at most {self.most_bytes} are allowed",
                where="body",
                hint="split the request",
            )


def check_columns(schema: pa.Schema, columns: Mapping[str, ColumnKind]) -> None:
    """Raises InputError for a column that is unknown, there twice, or of a type that does not fit."""
    if not schema.names:
        raise InputError("the table has no columns", where="body", hint=known_names("", columns))
    for field in schema:
        kind = columns.get(field.name)
        if kind is None:
            raise InputError(f"unknown column {field.name!r}", where="body", hint=known_names(field.name, columns))
        if schema.names.count(field.name) > 1:
            raise InputError("this column is there twice", where=field.name, hint="send it once")
        if not kind.accepts(field.type) and not pa.types.is_null(field.type):
            raise InputError(f"the column is {field.type}", where=field.name, hint=f"send {kind.expected}")


def read_table(
    body: bytes, media_type: str, columns: Mapping[str, ColumnKind], name: str, most: int, most_bytes: int
) -> pa.Table:
    """The table in a body: 1 to `most` rows, called `name` in errors, and at most `most_bytes` when it is decoded.

    Its columns are among `columns` and have types that these accept; or they are of the type null, without values.
    Texts are plain strings, not dictionaries or views. They are valid UTF-8, and all offsets are in their buffers.

    Raises MalformedError if the body is damaged, InputError for columns, BodyTooLargeError.
    """
    what, read = ("a Parquet file", _read_parquet) if media_type == PARQUET else ("an Arrow IPC body", _read_ipc)
    limits = _Limits(columns, name, most, most_bytes)
    try:
        table = _with_plain_texts(read(memoryview(body), media_type, limits), limits)
    except (ValueError, OSError, pa.ArrowException) as error:
        message = f"not {what}: {_first_line(error)}"
        raise MalformedError(message, where="body", hint="send what Content-Type says") from None
    limits.check_rows(table.num_rows)  # columns may be longer than their batch says
    return table


def _read_ipc(body: memoryview, media_type: str, limits: _Limits) -> pa.Table:
    if media_type == ARROW_FILE:  # a stream, and an index of its batches
        if bytes(body[: len(_FILE_START)]) != _FILE_START:
            raise ValueError("it does not begin as an IPC file")
        body = body[len(_FILE_START) :]
    limits.check_size(ipc_size(body))
    with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
        check_columns(reader.schema, limits.columns)
        return reader.read_all()


def _read_parquet(body: memoryview, media_type: str, limits: _Limits) -> pa.Table:
    limits.check_size(parquet_size(body))
    content = pa.py_buffer(body)
    schema = pq.ParquetFile(pa.BufferReader(content)).schema
    leaves = map(schema.column, range(len(schema)))
    # Texts stay as they are stored, once for many values, until their size is known.
    texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    with pq.ParquetFile(pa.BufferReader(content), read_dictionary=texts) as file:
        check_columns(file.schema_arrow, limits.columns)
        groups = [file.read_row_group(group, use_threads=False) for group in range(file.num_row_groups)]
    return pa.concat_tables(groups)


def _with_plain_texts(table: pa.Table, limits: _Limits) -> pa.Table:
    size = 0
    columns = []
    for name, column in zip(table.schema.names, table.columns, strict=True):
        plain = _plain_type(column.type)
        chunks = []
        for chunk in column.chunks:
            try:
                chunk.validate(full=True)
            except pa.ArrowException as error:
                message = f"the column is damaged: {_first_line(error)}"
                raise MalformedError(message, where=name, hint="strings are UTF-8") from None
            size += _repeated_bytes(chunk)
            limits.check_bytes(size)
            chunks.append(chunk if chunk.type == plain else chunk.cast(plain))
        columns.append(pa.chunked_array(chunks, plain))
    return pa.table(columns, names=table.schema.names)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Without dictionaries and views."""
    if is_text(kind):
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        return pa.large_string() if pa.types.is_large_string(kind) else pa.string()
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field.with_type(_plain_type(kind.key_type)), kind.item_field)
    if not is_list(kind):
        return kind
    values = kind.value_field.with_type(_plain_type(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(values)
    return pa.list_(values, kind.list_size if pa.types.is_fixed_size_list(kind) else -1)


def _repeated_bytes(array: pa.Array) -> int:
    """Of the texts of an array, if they may be stored once for many elements."""
    if is_list(array.type):
        return _repeated_bytes(array.values)
    if pa.types.is_map(array.type):
        return _repeated_bytes(array.keys)
    if pa.types.is_dictionary(array.type) and is_text(array.type):
        uses = np.bincount(array.indices.drop_null().to_numpy(), minlength=len(array.dictionary))
        return int(uses @ _text_lengths(array.dictionary))
    return int(_text_lengths(array).sum()) if pa.types.is_string_view(array.type) else 0


def _text_lengths(texts: pa.Array) -> npt.NDArray[np.int64]:
    if pa.types.is_string_view(texts.type):  # pyarrow's kernels do not take them
        views = np.frombuffer(texts.buffers()[1], np.int32).reshape(-1, 4)
        lengths = views[texts.offset : texts.offset + len(texts), 0].astype(np.int64)
        lengths[texts.is_null().to_numpy(zero_copy_only=False)] = 0
        return lengths
    return np.asarray(pc.binary_length(texts).fill_null(0), np.int64)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
