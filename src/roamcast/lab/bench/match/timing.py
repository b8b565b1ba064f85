"""Taking the time of benchmarks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["best", "timed"]

T = TypeVar("T")

TIMES = 3
"""Runs of which the shortest counts."""


def best(work: Callable[[], T], times: int | None = None) -> tuple[float, T]:
    """Return the seconds of the shortest of several runs, and the result of the last.

    Unless there is only one, a run before them does not count: it starts workers and fills caches.
    """
    count = min(times or TIMES, TIMES)
    if count > 1:
        work()
    runs = [timed(work) for _ in range(count)]
    return min(seconds for seconds, _ in runs), runs[-1][1]


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Return the seconds that it took, and the result."""
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result
