"""Sequence numbers that are reserved for one client."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roamcast.client.flow import ApiRequest, Flow, exchange, json_body

__all__ = ["NumberReservations", "Numbers"]

_MOST = 10_000  # that one request can reserve for a source
_SOURCES = 10_000  # in one request
_MAX_AHEAD = 1_000  # that are reserved for a source beyond what is needed
_MAX_AHEAD_IN_ALL = 100_000  # for all sources of a request

Numbers = Mapping[str | None, list[int]]
"""Numbers by source, in rising order. None is the source whose token the client has."""


@dataclass(slots=True)
class _Pool:
    """Reserved numbers of one source."""

    free: deque[int] = field(default_factory=deque)
    last: list[int] = field(default_factory=list)  # that were handed out
    size: int = 1  # of the next reservation


class NumberReservations:
    """Reserves numbers for this client alone; other clients may publish for the same sources. Thread-safe.

    Each request reserves more than the one before, so that a client that publishes continuously seldom asks and one
    that publishes once leaves no gap.
    """

    def __init__(self, delays: Sequence[float]) -> None:
        self._delays = delays
        self._pools: dict[str | None, _Pool] = {}
        self._lock = threading.Lock()

    def reserve(self, counts: Mapping[str | None, int]) -> Flow[Numbers]:
        """As many numbers for each source as `counts` says."""
        numbers: dict[str | None, list[int]] = {source: [] for source in counts}
        while sizes := self._take(counts, numbers):
            for reserved in self._requests(sizes):
                ranges = yield from exchange(*reserved)
                with self._lock:
                    for source, (first, count) in ranges.items():
                        self._pools[source].free.extend(range(first, first + count))
        return numbers

    def reuse(self, numbers: Numbers) -> None:
        """Number the next events like these, which were refused, unless later numbers were handed out meanwhile."""
        with self._lock:
            for source, unused in numbers.items():
                pool = self._pools[source]
                if unused is pool.last:
                    pool.free.extendleft(reversed(unused))

    def _take(self, counts: Mapping[str | None, int], numbers: Mapping[str | None, list[int]]) -> dict[str | None, int]:
        """Move free numbers to `numbers`. Returns how many to reserve of each source that has too few."""
        sizes: dict[str | None, int] = {}
        most_ahead = min(_MAX_AHEAD, max(1, _MAX_AHEAD_IN_ALL // max(1, len(counts))))
        with self._lock:
            for source, count in counts.items():
                pool, taken = self._pools.setdefault(source, _Pool()), numbers[source]
                taken += [pool.free.popleft() for _ in range(min(count - len(taken), len(pool.free)))]
                pool.last = taken
                if missing := count - len(taken):
                    sizes[source] = size = min(max(missing, pool.size), _MOST)
                    pool.size = min(2 * size, most_ahead)
        return sizes

    def _requests(self, sizes: Mapping[str | None, int]) -> list[Any]:
        """The arguments of the exchanges that reserve numbers; each returns ranges by source."""
        exchanges: list[Any] = []
        if (own := sizes.get(None)) is not None:
            request = ApiRequest("POST", "/v1/numbers", json_body({"count": own}))
            exchanges.append((request, self._delays, lambda reply: {None: (reply["first"], reply["count"])}))
        named = [(source, size) for source, size in sizes.items() if source is not None]
        for first in range(0, len(named), _SOURCES):
            body = json_body({"sources": dict(named[first : first + _SOURCES])})
            exchanges.append((ApiRequest("POST", "/v1/numbers", body), self._delays, _ranges))
        return exchanges


def _ranges(reply: Any) -> dict[str, tuple[int, int]]:
    return {source: (numbers["first"], numbers["count"]) for source, numbers in reply["sources"].items()}
