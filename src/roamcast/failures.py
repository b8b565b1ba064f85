"""What fails at the moment, since when and why, for health reports."""

from __future__ import annotations

import time
from typing import NamedTuple

__all__ = ["Failure", "FailureTracker", "wall_time"]


def wall_time() -> int:
    """The system time: microseconds since 1970, UTC."""
    return time.time_ns() // 1_000


class Failure(NamedTuple):
    """A failure that lasts: its beginning (microseconds since 1970) and the latest reason."""

    since: int
    detail: str


class FailureTracker:
    """Whether an operation fails. One thread reports results; any thread may read `current`."""

    def __init__(self) -> None:
        self.current: Failure | None = None
        """None while the last attempt succeeded, or before the first."""

    def failed(self, reason: object, since: int | None = None) -> None:
        """Report a failed attempt. `since` is the beginning if it is earlier than now; a failure that lasts keeps its
        own.
        """
        current = self.current
        begun = current.since if current is not None else wall_time() if since is None else since
        self.current = Failure(begun, str(reason))

    def succeeded(self) -> None:
        self.current = None
