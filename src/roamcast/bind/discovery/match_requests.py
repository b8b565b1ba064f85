"""The requests of plan match: which sources they admit, by attributes and position. Sans-IO."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from roamcast.bind.discovery.cells import LEVELS, Cell
from roamcast.bind.discovery.messages import SourceAnnouncement, SourceRequest
from roamcast.model import Position

__all__ = ["MatchRequests", "RequestIndex"]


class RequestIndex:
    """A set of requests, by cell."""

    def __init__(self, requests: Iterable[SourceRequest] = ()) -> None:
        self._by_cell: dict[Cell | None, set[SourceRequest]] = {}
        self._levels: Counter[int] = Counter()
        for request in requests:
            self.add(request)

    def add(self, request: SourceRequest) -> None:
        in_cell = self._by_cell.setdefault(request.cell, set())
        if not in_cell and request.cell is not None:
            self._levels[request.cell.level] += 1
        in_cell.add(request)

    def remove(self, request: SourceRequest) -> None:
        in_cell = self._by_cell[request.cell]
        in_cell.remove(request)
        if not in_cell:
            del self._by_cell[request.cell]
            if request.cell is not None:
                self._levels -= Counter([request.cell.level])

    def admits(self, source: SourceAnnouncement) -> bool:
        """Whether a request may admit events of this source."""
        attributes = source.attributes or {}
        return any(
            request.accepts(attributes)
            for cell in self._cells(source.position)
            for request in self._by_cell.get(cell, ())
        )

    def _cells(self, position: Position | None) -> Iterator[Cell | None]:
        if position is None:
            yield from self._by_cell
            return
        yield None
        for level in self._levels:
            yield from Cell.at(position.x, position.y, level).with_point()


class MatchRequests:
    """The requests of running subscriptions, counted. If there are more than `most`, the cells of the smallest become
    larger, as long as that helps; they do not become smaller again until all requests are gone.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.changed: set[SourceRequest] = set()
        """The requests that were added or removed. The caller clears it."""
        self.clear()

    @property
    def requests(self) -> Collection[SourceRequest]:
        return self._counts.keys()

    def clear(self) -> None:
        """Forget all requests."""
        self._counts: Counter[SourceRequest] = Counter()
        self._index = RequestIndex()
        self._smallest = LEVELS.start

    def add(self, request: SourceRequest, count: int) -> None:
        """Add running subscriptions with this request, or remove them if `count` is negative."""
        self._count(self._enlarged(request), count)
        while len(self._counts) > self._most and self._smallest < LEVELS.stop:
            self._enlarge()
        if not self._counts:
            self._smallest = LEVELS.start

    def admits(self, source: SourceAnnouncement) -> bool:
        """Whether a request may admit events of this source."""
        return self._index.admits(source)

    def _count(self, request: SourceRequest, count: int) -> None:
        before = self._counts[request]
        self._counts[request] = before + count
        if before + count <= 0:
            del self._counts[request]
        if (before > 0) != (before + count > 0):
            self.changed.add(request)
            (self._index.add if count > 0 else self._index.remove)(request)

    def _enlarge(self) -> None:
        levels = [request.cell.level for request in self._counts if request.cell is not None]
        self._smallest = min(levels, default=LEVELS.stop - 1) + 1
        for request, count in list(self._counts.items()):
            if (larger := self._enlarged(request)) != request:
                self._count(request, -count)
                self._count(larger, count)

    def _enlarged(self, request: SourceRequest) -> SourceRequest:
        cell = request.cell
        if cell is None or cell.level >= self._smallest:
            return request
        return request._replace(cell=cell.ancestor(self._smallest) if self._smallest < LEVELS.stop else None)
