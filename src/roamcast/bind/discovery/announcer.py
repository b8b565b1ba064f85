"""Announces the sources of this node to the nodes that request them. Sans-IO."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from roamcast.bind.discovery.cells import Cell
from roamcast.bind.discovery.match_requests import RequestIndex
from roamcast.bind.discovery.messages import (
    AnnouncementCursor,
    DiscoveryInterest,
    DiscoveryRequest,
    DiscoveryResponse,
    LocalSources,
    SourceAnnouncement,
    SourceRequest,
)
from roamcast.bind.lcesm.messages import Attributes

__all__ = ["Announcer"]

_MAX_SIZE: Final = 1_000  # of the announcements in a response


class _Requester:
    """A node that polls this one: its interest, and the sources announced to it.

    `_numbers` maps each source to the number of its last announcement, in ascending order, so that new announcements
    are found without a scan. Removed sources stay in it, and in `_removed`, until the requester has received that.
    All numbers are above `first_number`; a smaller cursor is from before the node was dropped.
    """

    def __init__(self, session: int, first_number: int) -> None:
        self.session = session
        self.version = -1
        self.set_interest(DiscoveryInterest())
        self.first_number = self.last_number = first_number
        self.announced: set[str] = set()
        self._numbers: OrderedDict[str, int] = OrderedDict()
        self._removed: OrderedDict[str, int] = OrderedDict()

    def set_interest(self, interest: DiscoveryInterest) -> None:
        self.interest = interest
        self._bind_requests = [request for request in interest.requests if request.plan == "bind"]
        self._match_requests = RequestIndex(interest.match_requests)

    def looks_for(self, attributes: Attributes) -> bool:
        return any(request.accepts(attributes) for request in self._bind_requests)

    def demands(self, source: SourceAnnouncement) -> bool:
        return source.source in self.interest.demanded or self._match_requests.admits(source)

    def announce(self, source: str, *, admitted: bool) -> None:
        """Number a new announcement: the source as it is now, or its removal if it is not `admitted`."""
        self.last_number += 1
        self._numbers[source] = self.last_number
        self._numbers.move_to_end(source)
        if admitted:
            self.announced.add(source)
            self._removed.pop(source, None)
        else:
            self.announced.discard(source)
            self._removed[source] = self.last_number

    def drop_removed(self, received: int) -> None:
        """Forget removals up to this number: the requester has received them."""
        while self._removed and next(iter(self._removed.values())) <= received:
            source, _ = self._removed.popitem(last=False)
            del self._numbers[source]

    def announced_after(self, number: int) -> list[tuple[str, int]]:
        """Sources with announcements after this number, in order. After 0, removals are left out."""
        later = itertools.takewhile(lambda item: item[1] > number, reversed(self._numbers.items()))
        return [item for item in later if number or item[0] in self.announced][::-1]


class Announcer:
    """Responds to the discovery requests of other nodes."""

    def __init__(self, node: str, session: int, sources: LocalSources, max_size: int = _MAX_SIZE) -> None:
        """`max_size` limits the total `SourceAnnouncement.size` of a response."""
        self._node = node
        self._session = session
        self._sources = sources
        self._max_size = max_size
        self._requesters: dict[str, _Requester] = {}
        self._first_number = 0  # of new requesters: above all cursors of dropped ones, which may return
        self.demand_changed: set[str] = set()
        """Local sources whose demand by other nodes may have changed. The caller reviews and clears it."""

    @property
    def requests(self) -> int:
        """The number of standing requests."""
        return sum(len(requester.interest.requests) for requester in self._requesters.values())

    def respond(self, request: DiscoveryRequest) -> DiscoveryResponse:
        """Take over the requester's interest, and return the announcements after its cursor."""
        requester = self._requesters.get(request.node)
        unknown = DiscoveryResponse(self._node, request.session, -1, 0, AnnouncementCursor(self._session))
        if requester is None or requester.session < request.session:
            if request.interest is None:
                return unknown
            if requester is not None:
                self._note_demand_change(requester.interest, DiscoveryInterest())
            requester = self._requesters[request.node] = _Requester(request.session, self._first_number)
        elif requester.session > request.session:
            return unknown  # a late request of an earlier session
        if request.interest is not None and request.version > requester.version:
            self._set_interest(requester, request.version, request.interest)
        session, number = request.cursor
        is_current = session == self._session and number >= requester.first_number
        after = number if is_current else 0  # announce everything to a node that restarted or was dropped
        requester.drop_removed(after)
        pending = requester.announced_after(after)
        announcements = self._first_announcements(requester, pending)
        more = len(announcements) < len(pending)
        last = pending[len(announcements) - 1][1] if more else requester.last_number
        cursor = AnnouncementCursor(self._session, last)
        return DiscoveryResponse(self._node, request.session, requester.version, after, cursor, announcements, more)

    def announce(self, sources: Iterable[str]) -> frozenset[str]:
        """Announce sources that were registered, changed, moved or removed. Returns the nodes this concerns."""
        concerned = set[str]()
        for source in sources:
            current = self._sources.get(source)
            for node, requester in self._requesters.items():
                admitted = current is not None and requester.looks_for(current.attributes or {})
                if admitted or source in requester.announced:
                    requester.announce(source, admitted=admitted)
                    concerned.add(node)
        return frozenset(concerned)

    def remove_peer(self, node: str) -> None:
        """Drop a node and its standing requests."""
        requester = self._requesters.pop(node, None)
        if requester is not None:
            self._first_number = max(self._first_number, requester.last_number + 1)
            self._note_demand_change(requester.interest, DiscoveryInterest())

    def is_demanded(self, source: SourceAnnouncement) -> bool:
        """Whether another node needs events of a local source. Unreachable nodes keep their last interest."""
        return any(requester.demands(source) for requester in self._requesters.values())

    def concerned_by(self, requests: Iterable[SourceRequest]) -> set[str]:
        """The local sources that one of these requests may admit."""
        by_condition: dict[SourceRequest, set[Cell | None]] = {}
        for request in requests:
            by_condition.setdefault(request._replace(cell=None), set()).add(request.cell)
        return {
            source.source
            for request, cells in by_condition.items()  # cells overlap, and each test of a condition takes a while
            for source in map(self._sources.get, self._sources.inside(cells))
            if source is not None and request.accepts(source.attributes or {})
        }

    def _set_interest(self, requester: _Requester, version: int, interest: DiscoveryInterest) -> None:
        previous, requester.version = requester.interest, version
        requester.set_interest(interest)
        self._note_demand_change(previous, interest)
        if previous.requests == interest.requests:
            return
        admitted = {one.source for one in self._sources if requester.looks_for(one.attributes or {})}
        for source in sorted(admitted ^ requester.announced):
            requester.announce(source, admitted=source in admitted)

    def _note_demand_change(self, previous: DiscoveryInterest, current: DiscoveryInterest) -> None:
        self.demand_changed |= previous.demanded ^ current.demanded
        self.demand_changed |= self.concerned_by(previous.match_requests ^ current.match_requests)

    def _first_announcements(
        self, requester: _Requester, pending: Iterable[tuple[str, int]]
    ) -> tuple[SourceAnnouncement, ...]:
        """As many as fit into a response, at least one."""
        announcements: list[SourceAnnouncement] = []
        space_left = self._max_size
        for source, _ in pending:
            current = self._sources.get(source) if source in requester.announced else None
            announcement = current or SourceAnnouncement(source, None)
            space_left -= announcement.size
            if announcements and space_left < 0:
                break
            announcements.append(announcement)
        return tuple(announcements)
