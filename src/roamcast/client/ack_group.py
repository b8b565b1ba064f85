"""Groups of letters that a client acknowledges together."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["MAX_LETTERS", "AckGroup"]

MAX_LETTERS = 500  # that may come again after a crash although they were processed
_MAX_AGE = 1.0  # seconds


class AckGroup:
    """The letters of a mailbox that were processed since the last acknowledgement.

    Threads may share it: a race at most loses an acknowledgement, and the letters come again.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._through = 0
        self._count = 0
        self._since = 0.0

    def add(self, offset: int) -> bool:
        """Note that a letter was processed. Returns whether the group is to be acknowledged now."""
        now = self._clock()
        if not self._count:
            self._since = now
        self._count += 1
        self._through = max(self._through, offset)
        return self._count >= MAX_LETTERS or now - self._since >= _MAX_AGE

    def take(self) -> int:
        """End the group. Returns the offset to acknowledge; 0 if there is none."""
        through, self._through, self._count = self._through, 0, 0
        return through
