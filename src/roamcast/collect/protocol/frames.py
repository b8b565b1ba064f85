"""Frames: what radios carry. A frame is at most 102 bytes, which IEEE 802.15.4 has room for after its own header.

Anything that is not a whole frame of this version, down to a flipped bit, is not a frame.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from roamcast.collect.protocol.events import NodeId
from roamcast.errors import InputError

__all__ = [
    "BROADCAST", "CHUNK_BYTES", "FRAME_BYTES", "MAX_FRAGMENTS", "VERSION", "Ack", "Beacon", "Data", "Frame", "Result",
    "Role", "decode_frame", "encode_frame",
]  # fmt: skip

VERSION: Final = 1
FRAME_BYTES: Final = 102
BROADCAST: Final = (1 << 32) - 1
MAX_FRAGMENTS: Final = 64

_HEADER: Final = struct.Struct(">BBBIII")
"""Version, kind, length of what follows without the checksum, sender, its incarnation, receiver."""
_CHECKSUM: Final = struct.Struct(">I")
_DATA: Final = struct.Struct(">IBBI")
_ACK: Final = struct.Struct(">IIBQ")
_BEACON: Final = struct.Struct(">B")
CHUNK_BYTES: Final = FRAME_BYTES - _HEADER.size - _DATA.size - _CHECKSUM.size


class Role(IntEnum):
    SENSOR = 0
    MULE = 1
    BASE = 2


class Result(IntEnum):
    """What has become of a message. Beyond `TAKEN` it was refused, for the rule of that name."""

    PARTIAL = 0
    TAKEN = 1
    FULL = 2
    STRANDED = 3
    UNWANTED = 4


@dataclass(frozen=True, slots=True)
class Beacon:
    """Somebody is here."""

    sender: NodeId
    incarnation: int
    role: Role


@dataclass(frozen=True, slots=True)
class Data:
    """A fragment of a message. `age` is how long ago the message was encoded, in milliseconds."""

    sender: NodeId
    incarnation: int
    receiver: NodeId
    number: int
    index: int
    count: int
    age: int
    chunk: bytes


@dataclass(frozen=True, slots=True)
class Ack:
    """The fragments of a message that have arrived, as bits; when it is complete, its result."""

    sender: NodeId
    incarnation: int
    receiver: NodeId
    of_incarnation: int
    number: int
    result: Result
    arrived: int


Frame: TypeAlias = Beacon | Data | Ack


def encode_frame(frame: Frame) -> bytes:
    match frame:
        case Beacon(sender, incarnation, role):
            return _seal(1, sender, incarnation, BROADCAST, _BEACON.pack(role))
        case Data(sender, incarnation, receiver, number, index, count, age, chunk):
            age = min(age, (1 << 32) - 1)
            return _seal(2, sender, incarnation, receiver, _DATA.pack(number, index, count, age) + chunk)
        case Ack(sender, incarnation, receiver, of_incarnation, number, result, arrived):
            return _seal(3, sender, incarnation, receiver, _ACK.pack(of_incarnation, number, result, arrived))


def decode_frame(data: bytes) -> Frame:
    """Raises InputError if it is not a frame."""
    if not _HEADER.size + _CHECKSUM.size <= len(data) <= FRAME_BYTES:
        raise InputError(f"not a frame: {len(data)} bytes")
    version, kind, length, sender, incarnation, receiver = _HEADER.unpack_from(data)
    if version != VERSION:
        raise InputError(f"a frame of version {version}", hint=f"this is version {VERSION}")
    body, end = data[_HEADER.size : -_CHECKSUM.size], len(data) - _CHECKSUM.size
    if length != len(body) or _CHECKSUM.unpack_from(data, end)[0] != zlib.crc32(data[:end]):
        raise InputError("not a frame: length or checksum is wrong")
    try:
        return _open(kind, sender, incarnation, receiver, body)
    except (struct.error, ValueError) as error:
        raise InputError(f"not a frame: {error}") from error


def _seal(kind: int, sender: NodeId, incarnation: int, receiver: NodeId, body: bytes) -> bytes:
    frame = _HEADER.pack(VERSION, kind, len(body), sender, incarnation, receiver) + body
    return frame + _CHECKSUM.pack(zlib.crc32(frame))


def _open(kind: int, sender: NodeId, incarnation: int, receiver: NodeId, body: bytes) -> Frame:
    if kind == 1:
        return Beacon(sender, incarnation, Role(*_BEACON.unpack(body)))
    if kind == 2:
        number, index, count, age = _DATA.unpack_from(body)
        if not index < count <= MAX_FRAGMENTS:
            raise ValueError(f"fragment {index} of {count}")
        return Data(sender, incarnation, receiver, number, index, count, age, body[_DATA.size :])
    if kind == 3:
        of_incarnation, number, result, arrived = _ACK.unpack(body)
        return Ack(sender, incarnation, receiver, of_incarnation, number, Result(result), arrived)
    raise ValueError(f"unknown kind {kind}")
