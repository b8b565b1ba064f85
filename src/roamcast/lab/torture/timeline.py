"""The event queue of a simulation, in total order."""

from __future__ import annotations

import heapq
from collections.abc import Callable

__all__ = ["Observer", "Timeline"]

Observer = Callable[[int, str, object], None]
"""Called with the time, who, and what."""


class Timeline:
    """Simulated time in microseconds, and what happens later. Events of the same time happen in the order of calls."""

    def __init__(self, observer: Observer | None) -> None:
        self.now = 0
        self._observer = observer
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._tickets = 0

    def later(self, delay: int, event: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + delay, self.ticket(), event))

    def ticket(self) -> int:
        """A number that is higher than all before."""
        self._tickets += 1
        return self._tickets

    def observe(self, who: str, what: object) -> None:
        if self._observer is not None:
            self._observer(self.now, who, what)

    def next_until(self, time: int) -> Callable[[], None] | None:
        """Take the next event, if it happens at `time` or before, and go to its time."""
        if not self._queue or self._queue[0][0] > time:
            return None
        self.now, _, event = heapq.heappop(self._queue)
        return event
