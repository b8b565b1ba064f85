"""The node's time, and times as the API writes them."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Lock

__all__ = ["Clock", "iso"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def iso(micros: int) -> str:
    """ISO 8601 in UTC."""
    return (_EPOCH + timedelta(microseconds=micros)).isoformat().replace("+00:00", "Z")


def _wall() -> int:
    return time.time_ns() // 1000


class Clock:
    """Whole microseconds since 1970, later at every call, whatever the machine's clock does. Safe between threads."""

    def __init__(self, after: int = 0, wall: Callable[[], int] = _wall) -> None:
        self._last = after
        self._wall = wall
        self._lock = Lock()

    def now(self) -> int:
        with self._lock:
            self._last = max(self._wall(), self._last + 1)
            return self._last
