"""How often one caller may ask."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from roamcast.errors import CapacityError

__all__ = ["Rates"]

_REMEMBERED = 10_000


class Rates:
    """For each caller a bucket: so many requests a second, and as many at once. Belongs to one event loop."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, caller: str) -> None:
        """Raises CapacityError for one request too many."""
        now = self._clock()
        left, at = self._buckets.pop(caller, (self._per_second, now))
        left = min(self._per_second, left + (now - at) * self._per_second)
        self._buckets[caller] = (left - 1 if left >= 1 else left, now)
        if len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)
        if left < 1:
            raise CapacityError(
                f"more than {self._per_second:g} requests a second", where=caller, hint="slow down, and try again"
            )
