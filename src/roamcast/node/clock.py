"""The clock of a node."""

from __future__ import annotations

import time as system_time
from collections.abc import Callable
from threading import Lock

from roamcast.errors import InputError
from roamcast.failures import wall_time
from roamcast.model import iso

__all__ = ["Clock", "check_time"]


def check_time(time: int, now: int, ahead: float, where: str) -> None:
    """Raises InputError for a time more than `ahead` seconds after `now`, so that a wrong clock is noticed early."""
    if time > now + round(ahead * 1_000_000):
        raise InputError(
            f"{iso(time)} is more than {ahead:g} seconds ahead of the node's time {iso(now)}",
            where=where,
            hint="set the sender's clock, or omit the time to use the node's",
        )


class Clock:
    """Microseconds since 1970, strictly increasing even if the system clock goes back. Thread-safe."""

    def __init__(
        self,
        after: int = 0,
        wall: Callable[[], int] = wall_time,
        monotonic: Callable[[], float] = system_time.monotonic,
    ) -> None:
        self._last = after
        self._wall = wall
        self.monotonic = monotonic
        """Seconds that pass evenly, even if the system clock is set."""
        self._lock = Lock()

    def now(self) -> int:
        with self._lock:
            self._last = max(self._wall(), self._last + 1)
            return self._last
