"""What an Arrow IPC stream takes up when it is decoded, from its headers alone: nothing is decompressed or allocated.

A message is a FlatBuffers table, and a body with the buffers of its arrays. A compressed buffer begins with its size.
The format: https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["TableSize", "ipc_size"]

_VERSION: Final = 4  # MetadataVersion.V5, since Arrow 1.0
_CONTINUATION: Final = 0xFFFFFFFF
_SCHEMA, _DICTIONARY_BATCH, _RECORD_BATCH = 1, 2, 3  # kinds of messages
_ELEMENT_BYTES: Final = 8
"""Counted for each element of an array besides its buffers: arrays of nulls have none."""


class TableSize(NamedTuple):
    """Rows of a table, and the bytes that its arrays take up."""

    rows: int
    bytes: int


def ipc_size(stream: memoryview) -> TableSize:
    """The size of all record batches and dictionaries. Raises ValueError if the stream is damaged."""
    rows = size = 0
    try:
        for kind, header, body in _messages(stream):
            if kind == _DICTIONARY_BATCH:
                header = header.table(1)
            batch_rows, batch_bytes = _batch_size(header, body)
            size += batch_bytes
            if kind == _RECORD_BATCH:
                rows += batch_rows
    except struct.error as error:
        raise ValueError("a message is damaged") from error
    return TableSize(rows, size)


class _Table:
    """A FlatBuffers table. Fields are counted from 0; one that is absent is 0."""

    def __init__(self, buffer: memoryview, at: int) -> None:
        self._buffer = buffer
        self._at = at
        self._vtable = at - self._read("<i", at)
        self._vtable_size = self._read("<H", self._vtable)

    def has(self, field: int) -> bool:
        return self._offset(field) != 0

    def number(self, field: int, kind: str) -> int:
        offset = self._offset(field)
        return self._read(kind, self._at + offset) if offset else 0

    def table(self, field: int) -> _Table:
        return _Table(self._buffer, self._target(field))

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """The elements of a vector of structs of two 64-bit integers."""
        if not self.has(field):
            return iter(())
        at = self._target(field)
        count = self._read("<I", at)
        vector = self._buffer[at + 4 : at + 4 + 16 * count]
        if len(vector) != 16 * count:
            raise struct.error("the vector ends early")
        return struct.iter_unpack("<qq", vector)

    def _target(self, field: int) -> int:
        at = self._at + self._offset(field)
        return at + self._read("<I", at)

    def _offset(self, field: int) -> int:
        slot = 4 + 2 * field
        return self._read("<H", self._vtable + slot) if slot < self._vtable_size else 0

    def _read(self, kind: str, at: int) -> int:
        if at < 0:
            raise struct.error("a negative offset")
        value: int = struct.unpack_from(kind, self._buffer, at)[0]
        return value


def _messages(stream: memoryview) -> Iterator[tuple[int, _Table, memoryview]]:
    """Kind, header and body of each batch, up to the end-of-stream marker or the end."""
    at = 0
    while at < len(stream):
        marker, length = struct.unpack_from("<Ii", stream, at)
        if marker != _CONTINUATION:
            raise ValueError("it is not an IPC stream")
        if length == 0:
            return
        metadata = stream[at + 8 : at + 8 + length]
        if length < 0 or len(metadata) != length:
            raise ValueError("a message ends early")
        message = _Table(metadata, struct.unpack_from("<I", metadata)[0])
        if message.number(0, "<h") != _VERSION:
            raise ValueError("it is of a version before Arrow 1.0")  # which has another way to say what is compressed
        body_length = message.number(3, "<q")
        at += 8 + length
        body = stream[at : at + body_length]
        if body_length < 0 or len(body) != body_length:
            raise ValueError("a message ends early")
        at += body_length
        kind = message.number(1, "<B")
        if kind in (_DICTIONARY_BATCH, _RECORD_BATCH):
            yield kind, message.table(2), body
        elif kind != _SCHEMA:
            raise ValueError("it has messages that are not batches")


def _batch_size(batch: _Table, body: memoryview) -> TableSize:
    rows = batch.number(0, "<q")
    size = 0
    for length, _ in batch.pairs(1):
        if length < 0:
            raise ValueError("an array has a negative length")
        size += _ELEMENT_BYTES * length
    is_compressed = batch.has(3)
    for offset, length in batch.pairs(2):
        if offset < 0 or length < 0 or offset + length > len(body):
            raise ValueError("a buffer is not in its message")
        if is_compressed and length:
            decoded = struct.unpack_from("<q", body, offset)[0]  # -1: this one is not compressed
            length = decoded if decoded >= 0 else length
        size += length
    if rows < 0:
        raise ValueError("a batch has a negative length")
    return TableSize(rows, size)
