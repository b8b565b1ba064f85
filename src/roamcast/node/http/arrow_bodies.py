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

from roamcast.errors import InputError
from roamcast.node.http.errors import BodyTooLargeError
from roamcast.node.http.ipc_size import TableSize, ipc_size
from roamcast.node.validation_errors import MalformedError, known_names, list_length_error

__all__ = [
    "ARROW_FILE", "ARROW_STREAM", "BOOLEAN", "NUMBER", "NUMBERS", "TABLE_TYPES", "TEXT", "TEXTS", "ColumnKind",
    "is_list", "is_number", "is_text", "read_table",
]  # fmt: skip

ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
ARROW_FILE: Final = "application/vnd.apache.arrow.file"
TABLE_TYPES: Final = frozenset({ARROW_STREAM, ARROW_FILE})
"""Media types of bodies that `read_table` reads."""

_FILE_START: Final = b"ARROW1\0\0"


class ColumnKind(NamedTuple):
    """The types that a column may have, and what they are for an error."""

    expected: str
    accepts: Callable[[pa.DataType], bool]


def is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


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


def read_table(
    body: bytes, media_type: str, columns: Mapping[str, ColumnKind], name: str, most: int, most_bytes: int
) -> pa.Table:
    """The table in a body: 1 to `most` rows, called `name` in errors, and at most `most_bytes` when it is decoded.

    Its columns are among `columns` and have types that these accept; or they are of the type null, without values.
    Texts are plain strings, not dictionaries or views. They are valid UTF-8, and all offsets are in their buffers.

    Raises MalformedError if the body is damaged, InputError for columns, BodyTooLargeError.
    """
    stream = memoryview(body)
    if media_type == ARROW_FILE:  # a stream, and an index of its batches
        if body[: len(_FILE_START)] != _FILE_START:
            raise _malformed("it is not an IPC file")
        stream = stream[len(_FILE_START) :]
    try:
        _check_size(ipc_size(stream), name, most, most_bytes)
        with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:
            _check_columns(reader.schema, columns)
            return _with_plain_texts(reader.read_all(), most_bytes)
    except (ValueError, OSError, pa.ArrowException) as error:
        raise _malformed(_first_line(error)) from None


def _check_size(size: TableSize, name: str, most: int, most_bytes: int) -> None:
    if not 0 < size.rows <= most:
        raise list_length_error(size.rows, name, most)
    _check_bytes(size.bytes, most_bytes)


def _check_bytes(size: int, most_bytes: int) -> None:
    if size > most_bytes:
        raise BodyTooLargeError(
            f"the body has {size} bytes when it is decoded; at most {most_bytes} are allowed",
            where="body",
            hint="split the request",
        )


def _check_columns(schema: pa.Schema, columns: Mapping[str, ColumnKind]) -> None:
    for field in schema:
        kind = columns.get(field.name)
        if kind is None:
            raise InputError(f"unknown column {field.name!r}", where="body", hint=known_names(field.name, columns))
        if schema.names.count(field.name) > 1:
            raise InputError("this column is there twice", where=field.name, hint="send it once")
        if not kind.accepts(field.type) and not pa.types.is_null(field.type):
            raise InputError(f"the column is {field.type}", where=field.name, hint=f"send {kind.expected}")


def _with_plain_texts(table: pa.Table, most_bytes: int) -> pa.Table:
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
            _check_bytes(size, most_bytes)
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


def _malformed(problem: str) -> MalformedError:
    hint = "write it with pyarrow.ipc.new_stream or pyarrow.ipc.new_file"
    return MalformedError(f"not an Arrow IPC body: {problem}", where="body", hint=hint)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
