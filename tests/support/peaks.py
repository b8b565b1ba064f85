"""Peak memory of Python and numpy."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def peak_of(run: Callable[[], T]) -> tuple[T, int]:
    """The result of `run`, and the peak of the bytes it allocated. Arrow's memory is not counted."""
    tracemalloc.start()
    try:
        result = run()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
