"""Server-sent events: the parser, and the streams of letters and of demand, without I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import orjson

from roamcast.client.ack_group import MAX_LETTERS
from roamcast.client.flow import ApiRequest, NoResponse, Outcome, error_from
from roamcast.client.mailbox import MailboxAccess
from roamcast.client.values import Letter, letter_from_json
from roamcast.errors import ElsewhereError, PermissionDeniedError

__all__ = ["DemandStream", "LetterStream", "ServerStream", "SourceDemandStream", "SseEvent", "SseReader"]

T_co = TypeVar("T_co", covariant=True)

_LONGEST_DELAY = 5.0  # seconds
_TOO_MANY_REQUESTS = 429


class SseEvent(NamedTuple):
    """One server-sent event."""

    name: str
    data: str
    id: str | None


class SseReader:
    """Parses server-sent events from chunks of bytes. An incomplete event at the end is not returned."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = "message"
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that are complete with this chunk."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events = (self._read_line(line.rstrip(b"\r").decode()) for line in lines)
        return [event for event in events if event is not None]

    def _read_line(self, line: str) -> SseEvent | None:
        if not line:
            event = SseEvent(self._name, "\n".join(self._data), self._id) if self._data else None
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


class ServerStream(Protocol[T_co]):
    """A stream of items from a node that goes on across reconnections."""

    def request(self) -> ApiRequest:
        """The request that opens the stream, at first and after each break."""

    def feed(self, chunk: bytes) -> Sequence[T_co]:
        """The new items in a chunk of the response."""

    def broken(self, outcome: Outcome) -> tuple[Sequence[T_co], float]:
        """The connection ended: items to report, and seconds to wait before the next attempt.

        Raises an error that another attempt cannot fix.
        """


class LetterStream:
    """The letters of a mailbox after an offset, each once, however often the connection breaks."""

    def __init__(self, after: int, delays: Sequence[float], mailbox: MailboxAccess) -> None:
        self._after = after
        self._mailbox = mailbox
        self._delays = delays
        self._failures = 0
        self._reader = SseReader()

    def request(self) -> ApiRequest:
        self._reader = SseReader()
        headers = {"accept": "text/event-stream", "last-event-id": str(self._after)}
        return self._mailbox.request("GET", "/v1/mailbox/stream", headers=headers, parameters={"batch": MAX_LETTERS})

    def broken(self, outcome: Outcome) -> tuple[list[Letter], float]:
        self._failures += 1
        can_retry = isinstance(outcome, NoResponse) or outcome.status >= 500
        if not can_retry or self._failures > len(self._delays):
            raise error_from(outcome)
        return [], self._delays[self._failures - 1]

    def feed(self, chunk: bytes) -> list[Letter]:
        """Raises ElsewhereError when the mailbox migrates."""
        self._failures = 0
        self._mailbox.has_answered = True
        letters: list[Letter] = []
        for event in self._reader.feed(chunk):
            if event.name == "moved":
                hint = "migrate again if the subscriber is here now"
                raise ElsewhereError("the mailbox has migrated", where=self._mailbox.name, hint=hint)
            if event.name == "letters":
                for letter in map(letter_from_json, orjson.loads(event.data)):
                    if letter.offset > self._after:
                        self._after = letter.offset
                        letters.append(letter)
        return letters


class _DemandEvents:
    """The events of a demand stream. Never gives up on an unreachable node; raises only what the node refuses."""

    def __init__(self, delays: Sequence[float]) -> None:
        self._delays = (*delays, _LONGEST_DELAY)
        self._failures = 0
        self._reader = SseReader()

    def request(self) -> ApiRequest:
        self._reader = SseReader()
        return ApiRequest("GET", "/v1/me/demand/stream", headers={"accept": "text/event-stream"})

    def read(self, chunk: bytes) -> list[dict[str, Any]]:
        """The data of the events in a chunk."""
        self._failures = 0
        return [json.loads(event.data) for event in self._reader.feed(chunk) if event.name == "demand"]

    def delay_after(self, outcome: Outcome) -> float:
        """Seconds to wait after the connection ended."""
        if not isinstance(outcome, NoResponse) and outcome.status < 500 and outcome.status != _TOO_MANY_REQUESTS:
            raise error_from(outcome)
        delay = self._delays[min(self._failures, len(self._delays) - 1)]
        self._failures += 1
        return delay


class DemandStream:
    """Whether a source is demanded: first the current value, then each change.

    While the node cannot be reached the value is True, because the source may be demanded.
    """

    def __init__(self, delays: Sequence[float]) -> None:
        self._events = _DemandEvents(delays)
        self._demanded: bool | None = None

    def request(self) -> ApiRequest:
        return self._events.request()

    def feed(self, chunk: bytes) -> list[bool]:
        values = [bool(data["demanded"]) for data in self._events.read(chunk)]
        return [value for value in values if self._update(value)]

    def broken(self, outcome: Outcome) -> tuple[list[bool], float]:
        delay = self._events.delay_after(outcome)
        return [True] if self._update(True) else [], delay

    def _update(self, demanded: bool) -> bool:
        """Store the value; whether it changed."""
        is_change, self._demanded = demanded != self._demanded, demanded
        return is_change


class SourceDemandStream:
    """Which sources of a gateway are demanded: first all of them, then those that changed or are new.

    While the node cannot be reached all are, because each may be demanded. Sources that are removed are not reported.
    """

    def __init__(self, delays: Sequence[float]) -> None:
        self._events = _DemandEvents(delays)
        self._demanded: dict[str, bool] | None = None
        self._is_first = True  # of this connection

    def request(self) -> ApiRequest:
        self._is_first = True
        return self._events.request()

    def feed(self, chunk: bytes) -> list[Mapping[str, bool]]:
        """Raises PermissionDeniedError if the client is not a gateway."""
        updates = []
        for data in self._events.read(chunk):
            if (sources := data.get("sources")) is None:
                raise PermissionDeniedError(
                    "only a gateway has sources", where="token", hint="a source asks with `demand`"
                )
            before = self._demanded
            changed = sources if before is None else dict(sources.items() - before.items())
            self._demanded = dict(sources) if self._is_first else {**(before or {}), **sources}
            self._is_first = False
            if changed or before is None:
                updates.append(changed)
        return updates

    def broken(self, outcome: Outcome) -> tuple[list[Mapping[str, bool]], float]:
        delay = self._events.delay_after(outcome)
        changed = {source: True for source, demanded in (self._demanded or {}).items() if not demanded}
        self._demanded = None if self._demanded is None else {**self._demanded, **changed}
        return [changed] if changed else [], delay
