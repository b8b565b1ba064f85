"""Whether anybody wants a source to send, as a stream that never ends."""

from __future__ import annotations

import json
from collections.abc import Sequence

from roamcast.client.flow import Answer, Failure, Request, error_of
from roamcast.client.sse import EventReader

__all__ = ["DemandStream"]

_LONGEST = 5.0  # seconds between tries
_TOO_MANY = 429


class DemandStream:
    """Who hears nothing is to send: when the stream breaks that is said, until it is known better."""

    def __init__(self, delays: Sequence[float]) -> None:
        self._delays = (*delays, _LONGEST)
        self._failures = 0
        self._reader = EventReader()
        self._wanted: bool | None = None

    def request(self) -> Request:
        """What to send, for the first time or again."""
        self._reader = EventReader()
        return Request("GET", "/v1/me/demand/stream", headers={"accept": "text/event-stream"})

    def feed(self, piece: bytes) -> list[bool]:
        """What is new."""
        self._failures = 0
        told = [bool(json.loads(event.data)["wanted"]) for event in self._reader.feed(piece) if event.name == "demand"]
        return [wanted for wanted in told if self._learn(wanted)]

    def broken(self, outcome: Answer | Failure) -> tuple[list[bool], float]:
        """What is to be taken for true, if that is new, and how long to wait before the next try.

        Raises what cannot be mended by trying again.
        """
        if not isinstance(outcome, Failure) and outcome.status < 500 and outcome.status != _TOO_MANY:
            raise error_of(outcome)
        pause = self._delays[min(self._failures, len(self._delays) - 1)]
        self._failures += 1
        return [True] if self._learn(True) else [], pause

    def _learn(self, wanted: bool) -> bool:
        is_new, self._wanted = wanted != self._wanted, wanted
        return is_new
