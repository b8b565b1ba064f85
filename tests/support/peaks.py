"""How much memory Python and numpy take for something, at most at one time."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def peak_of(run: Callable[[], T]) -> tuple[T, int]:
    """What `run` returns, and the bytes it took beyond what was there before; Arrow's own are not counted."""
    tracemalloc.start()
    try:
        result = run()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
