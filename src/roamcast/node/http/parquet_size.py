"""What a Parquet file takes up when it is decoded, from its footer and the headers of its pages alone.

The sizes in the footer are not enough: they are what the writer says, and nothing compares them with the pages. pyarrow
does not show page headers, and its access to the footer can end the process if a field is wrong; so both are read here.
They are Thrift structs in the compact protocol. The format: https://parquet.apache.org/docs/file-format/.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from roamcast.node.http.ipc_size import TableSize

__all__ = ["parquet_size"]

_MAGIC: Final = b"PAR1"
_LARGEST_FOOTER: Final = 1 << 20
_PAGE_BYTES: Final = 1_024
"""Counted for each page besides its content: many tiny ones are work, too."""
_VALUE_BYTES: Final = 8
"""Counted for each value: those of a run take up next to nothing in a page."""
_DELTA_BYTE_ARRAY: Final = 7
"""The encoding that repeats the beginning of a value in the next one: the size of its values is not known before."""

_TRUE, _FALSE, _BYTE, _INT16, _INT32, _INT64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_DEEPEST: Final = 16

# Fields that are read: id and type.
_ROW_GROUPS, _COLUMNS, _GROUP_ROWS, _METADATA = (4, _LIST), (1, _LIST), (3, _INT64), (3, _STRUCT)
_STORED, _DATA_OFFSET, _DICTIONARY_OFFSET = (7, _INT64), (9, _INT64), (11, _INT64)  # of a column
_PAGE_TYPE, _PAGE_SIZE, _PAGE_STORED, _PAGE_VALUES = (1, _INT32), (2, _INT32), (3, _INT32), (1, _INT32)
_PAGE_HEADERS: Final = {0: ((5, _STRUCT), (2, _INT32)), 2: ((7, _STRUCT), (2, _INT32)), 3: ((8, _STRUCT), (4, _INT32))}
"""By type of page (data, dictionary, data of version 2): its own header, and the encoding in that."""

_Struct = dict[tuple[int, int], Any]
"""Values by the ids and types of fields: one of another type than expected counts as absent, as it does in pyarrow."""


def parquet_size(body: memoryview) -> TableSize:
    """The size of all row groups. Raises ValueError if it is damaged, or has an encoding that is not allowed."""
    rows = size = 0
    try:
        for group in _footer(body)[_ROW_GROUPS]:
            rows += group[_GROUP_ROWS]
            for chunk in group[_COLUMNS]:
                column = chunk[_METADATA]
                start, dictionary = column[_DATA_OFFSET], column.get(_DICTIONARY_OFFSET, 0)
                if 0 < dictionary < start:
                    start = dictionary
                size += sum(_page_sizes(body, start, start + column[_STORED]))
    except (LookupError, TypeError, struct.error) as error:
        raise ValueError("the footer or a page is damaged") from error
    return TableSize(rows, size)


def _footer(body: memoryview) -> _Struct:
    length, magic = struct.unpack_from("<I4s", body, max(0, len(body) - 8))
    if magic != _MAGIC:
        raise ValueError("it does not end as a Parquet file")
    if not length <= min(len(body) - 8, _LARGEST_FOOTER):
        raise ValueError("the footer is too large")
    return _CompactReader(body, len(body) - 8 - length).struct()


def _page_sizes(body: memoryview, at: int, end: int) -> Iterator[int]:
    if not 0 <= at <= end <= len(body):
        raise ValueError("a column is not in the file")
    while at < end:
        reader = _CompactReader(body, at)
        page = reader.struct()
        header, encoding = _PAGE_HEADERS[page[_PAGE_TYPE]]
        if page[header][encoding] == _DELTA_BYTE_ARRAY:
            raise ValueError("the encoding DELTA_BYTE_ARRAY is not allowed")
        size, stored, values = page[_PAGE_SIZE], page[_PAGE_STORED], page[header][_PAGE_VALUES]
        if min(size, stored, values) < 0:
            raise ValueError("a page has a negative size")
        yield size + _VALUE_BYTES * values + _PAGE_BYTES
        at = reader.at + stored


class _CompactReader:
    """Reads a Thrift struct. Raises IndexError at the end."""

    def __init__(self, buffer: memoryview, at: int) -> None:
        self._buffer = buffer
        self.at = at

    def struct(self, depth: int = 0) -> _Struct:
        if depth > _DEEPEST:
            raise ValueError("a header is too deep")
        fields: _Struct = {}
        id = 0
        while head := self._byte():
            delta, kind = head >> 4, head & 15
            id = id + delta if delta else self._integer()
            value = None if kind in (_TRUE, _FALSE) else self._value(kind, depth)
            if (id, kind) in fields:
                raise ValueError("a header has a field twice")
            fields[id, kind] = value
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in (_INT16, _INT32, _INT64):
            return self._integer()
        if kind in (_LIST, _SET):
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._varint()
            element = head & 15
            return [self._value(_BYTE if element <= _FALSE else element, depth + 1) for _ in range(count)]
        if kind not in (_BYTE, _DOUBLE, _BINARY):
            raise ValueError("a header has a field of another type")
        size = self._varint() if kind == _BINARY else 1 if kind == _BYTE else 8
        self.at += size
        if self.at > len(self._buffer):
            raise IndexError(self.at)
        return None

    def _integer(self) -> int:
        """Zigzag: the lowest bit is the sign."""
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("a header has a number that is too long")

    def _byte(self) -> int:
        byte = self._buffer[self.at]
        self.at += 1
        return byte
