"""Server-sent events, read from bytes as they come in pieces of any size."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["EventReader", "ServerSentEvent"]


class ServerSentEvent(NamedTuple):
    name: str
    data: str
    id: str | None


class EventReader:
    """Bytes in, whole events out. A piece of an event at the end of a broken stream is forgotten."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = "message"
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, piece: bytes) -> list[ServerSentEvent]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        events = []
        for line in lines:
            if event := self._take(line.rstrip(b"\r").decode()):
                events.append(event)
        return events

    def _take(self, line: str) -> ServerSentEvent | None:
        if not line:
            event = ServerSentEvent(self._name, "\n".join(self._data), self._id) if self._data else None
            self._name, self._data = "message", []
            return event
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        elif field == "id":
            self._id = value
        return None
