"""Bytes of messages: big-endian numbers, and times relative to the moment of encoding.

docs/collect-protocol.md describes the format; docs/collect-protocol-vectors.json has examples.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from roamcast.collect.protocol.events import EventId, FieldEvent
from roamcast.errors import InputError

__all__ = ["MAX_CONTENT", "MAX_IDS", "Reader", "Writer", "check_content"]

T = TypeVar("T")

MAX_IDS: Final = 64
"""Events that one message names at most; more are cut off."""
MAX_CONTENT: Final = 3_500
"""Bytes of the content of an event: a message has room for them and a route of 255 nodes."""
_MAX_AHEAD: Final = (1 << 31) - 1
_NONE: Final = (1 << 32) - 1


def check_content(content: bytes) -> None:
    """Raises InputError if the content of an event is too long."""
    if len(content) > MAX_CONTENT:
        raise InputError(f"an event has {len(content):,} bytes", hint=f"the maximum is {MAX_CONTENT:,}")


class Writer:
    """Appends values. Times are written relative to `now`, in milliseconds, and cut off at 24 days."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._parts: list[bytes] = []

    def bytes(self) -> bytes:
        return b"".join(self._parts)

    def pack(self, layout: str, *values: float) -> None:
        """Append numbers; `layout` is one of `struct`, without byte order."""
        self._parts.append(struct.pack(f">{layout}", *values))

    def time(self, time: int) -> None:
        self.pack("i", min(max(time - self._now, -_MAX_AHEAD), _MAX_AHEAD))

    def event_id(self, event: EventId) -> None:
        self.pack("III", *event)

    def optional_id(self, event: EventId | None) -> None:
        self.event_id(EventId(_NONE, 0, 0) if event is None else event)

    def sequence(self, items: Sequence[T], write: Callable[[T], None], most: int = MAX_IDS) -> None:
        """Append a count and the first `most` items."""
        self.pack("B", min(len(items), most))
        for item in items[:most]:
            write(item)

    def event(self, event: FieldEvent) -> None:
        """Append an event. Raises InputError if its content is too long."""
        check_content(event.content)
        self.event_id(event.id)
        self.pack("IH", event.origin, min(event.origin_size, 65535))
        self.time(event.born)
        self.time(event.expires)
        self.pack("H", len(event.content))
        self._parts.append(event.content)


class Reader:
    """Takes values in the order of writing. Raises InputError if there are too few bytes."""

    def __init__(self, data: bytes, as_of: int) -> None:
        """Times are relative to `as_of`: when the message was encoded, on the reader's clock."""
        self._data, self._at, self._as_of = data, 0, as_of

    def unpack(self, layout: str) -> tuple[int, ...]:
        size = struct.calcsize(f">{layout}")
        values: tuple[int, ...] = struct.unpack(f">{layout}", self._take(size))
        return values

    def pair(self, layout: str) -> tuple[int, int]:
        one, other = self.unpack(layout)
        return one, other

    def triple(self, layout: str) -> tuple[int, int, int]:
        one, two, three = self.unpack(layout)
        return one, two, three

    def number(self, layout: str) -> int:
        return self.unpack(layout)[0]

    def float(self) -> float:
        value: float = struct.unpack(">d", self._take(8))[0]
        return value

    def time(self) -> int:
        return self._as_of + self.number("i")

    def event_id(self) -> EventId:
        return EventId(*self.triple("III"))

    def optional_id(self) -> EventId | None:
        event = self.event_id()
        return None if event.source == _NONE else event

    def sequence(self, read: Callable[[], T]) -> tuple[T, ...]:
        return tuple(read() for _ in range(self.number("B")))

    def event(self) -> FieldEvent:
        event, (origin, size) = self.event_id(), self.unpack("IH")
        born, expires = self.time(), self.time()
        return FieldEvent(event, origin, size, born, expires, self._take(self.number("H")))

    def end(self) -> None:
        """Raises InputError if there are bytes left."""
        if self._at != len(self._data):
            raise InputError(f"{len(self._data) - self._at} bytes too many in a message")

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) < count:
            raise InputError("a message ends too early")
        self._at += count
        return taken
