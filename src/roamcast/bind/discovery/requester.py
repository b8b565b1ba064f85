"""Polls one other node for its sources: requests out, responses in, messages for the binder. Sans-IO."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from roamcast.bind.discovery.messages import (
    AnnouncementCursor,
    DiscoveryInterest,
    DiscoveryRequest,
    DiscoveryResponse,
    SourceAnnouncement,
)
from roamcast.bind.lcesm.messages import (
    EntityMoved,
    PositionForgotten,
    SourceChanged,
    SourceMessage,
    SourceRemoved,
    same_attributes,
)
from roamcast.model import Position, global_name

__all__ = ["PeerRequester"]

_PAUSE: Final = 60_000_000  # microseconds until a peer with too many sources is asked for them again
_NOT_PAUSED: Final = 0


class PeerRequester:
    """The sources of one peer, as far as this node looks for them.

    After `timeout` microseconds without a response the peer's sources are dropped; they return when it responds again.
    Announcements that span several responses take effect together, with the last one.

    The total `SourceAnnouncement.size` of the peer's sources is limited to `capacity`. Beyond it the requester
    `is_full`: it drops all of them and requests them again when the interest changes, when the peer restarts, or after
    a pause.
    """

    def __init__(
        self, node: str, session: int, peer: str, timeout: int, capacity: int, versions: Iterator[int]
    ) -> None:
        """`versions` is shared by all requesters of a session: a peer may still know the interest of an earlier one."""
        self.peer = peer
        self.is_reachable = False
        self.is_full = False
        self._last_heard: int | None = None
        """The time of the last response, also if that is long ago."""
        self._node = node
        self._session = session
        self._timeout = timeout
        self._capacity = capacity
        self._interest = DiscoveryInterest()
        self._versions = versions
        self._version = next(versions)
        self._oldest_version = self._version  # responses to earlier versions are ignored
        self._peer_version = -1  # the version of our interest that the peer has
        self._paused_until = _NOT_PAUSED
        self._cursor = AnnouncementCursor()
        self._known = _SourceTable()
        self._pending = _SourceTable()  # received, but the announcement is not complete
        self._is_snapshot = False  # pending holds all sources, not changes
        self._retracted: dict[str, int] = {}  # sources to remove, and the version that a response has to know for that

    @property
    def sources(self) -> Mapping[str, SourceAnnouncement]:
        """The known sources of the peer, by their ids there."""
        return self._known.sources

    @property
    def is_complete(self) -> bool:
        """Whether all sources that the peer has announced are known. False from a reset to the next full response."""
        return self._peer_version >= self._oldest_version and not self._is_snapshot and not self._pending.sources

    def set_interest(self, interest: DiscoveryInterest) -> bool:
        """Replace the interest. Returns whether it is different, so that a request should be sent at once."""
        if interest == self._interest:
            return False
        if interest.requests != self._interest.requests:
            self._resume()
        self._interest = interest
        self._version = next(self._versions)
        return True

    def request(self) -> DiscoveryRequest:
        """The request to send next."""
        paused = self._paused_until != _NOT_PAUSED
        interest = self._interest.without_bind_requests() if paused else self._interest
        needed = None if self._peer_version == self._version else interest
        return DiscoveryRequest(self._node, self._session, self._version, needed, self._cursor)

    def receive(self, response: DiscoveryResponse, now: int) -> list[SourceMessage]:
        """Take a response to any earlier request. Returns messages for the binder."""
        if response.requester_session != self._session or response.cursor.session < self._cursor.session:
            return []  # to an earlier session of this node, or of an earlier session of the peer
        self._last_heard, self.is_reachable = now, True
        if response.cursor.session > self._cursor.session:
            self._cursor, self._peer_version = AnnouncementCursor(response.cursor.session), -1
            self._resume()
        if response.version < self._oldest_version:
            self._peer_version = -1
            return []  # the peer does not know the interest, or only one from before a reset
        if not response.after <= self._cursor.number <= response.cursor.number:
            return []  # overtaken by a later response
        self._peer_version, self._cursor = response.version, response.cursor
        if not response.after:
            self._pending, self._is_snapshot = _SourceTable(), True
        for announcement in response.announcements:
            if self._is_snapshot and announcement.attributes is None:
                self._pending.remove(announcement.source)
            else:
                self._pending.put(announcement)
        if self._exceeds_capacity(complete=not response.more):
            return self._pause(now)
        if response.more:
            return []
        self.is_full = self._paused_until != _NOT_PAUSED
        return self._apply_pending(response.version)

    def expire(self, now: int) -> list[SourceMessage]:
        """Drop the peer's sources if it has not responded for the timeout. Returns messages for the binder."""
        if now >= self._paused_until:
            self._resume()
        if not self.is_reachable or self._last_heard is None or now - self._last_heard < self._timeout:
            return []
        self.is_reachable = False
        return self.reset()

    def reset(self) -> list[SourceMessage]:
        """Drop all known sources and request them from the start. Returns messages for the binder."""
        self._cursor = self._cursor._replace(number=0)
        self._ignore_earlier_responses()
        self._pending, self._is_snapshot = _SourceTable(), True
        return self._apply_pending(self._version)

    def _exceeds_capacity(self, *, complete: bool) -> bool:
        """Compare the capacity with what would be known, or with the pending part alone while it is incomplete."""
        pending, known = self._pending, self._known.sources
        if not complete or self._is_snapshot:
            return pending.size > self._capacity
        replaced = sum(known[id].size for id in pending.sources if id in known)
        removed = sum(source.size for source in pending.sources.values() if source.attributes is None)
        return self._known.size - replaced + pending.size - removed > self._capacity

    def _pause(self, now: int) -> list[SourceMessage]:
        self.is_full, self._paused_until = True, now + _PAUSE
        return self.reset()

    def _resume(self) -> None:
        if self._paused_until != _NOT_PAUSED:
            self._paused_until = _NOT_PAUSED
            self._ignore_earlier_responses()

    def _ignore_earlier_responses(self) -> None:
        """They may lack sources, or have some whose removal the peer does not announce again."""
        self._version = self._oldest_version = next(self._versions)

    def _apply_pending(self, version: int) -> list[SourceMessage]:
        """Apply what came with responses, the last of which knew this version of our interest.

        If it is an earlier one, the peer may have retracted sources that are looked for again. They stay until it has
        responded to the present version.
        """
        pending = self._pending.sources
        missing = [id for id in self._known.sources if id not in pending] if self._is_snapshot else []
        self._pending, self._is_snapshot = _SourceTable(), False
        announced = [announcement for announcement in pending.values() if announcement.attributes is not None]
        for id in (*missing, *(id for id, announcement in pending.items() if announcement.attributes is None)):
            self._retracted.setdefault(id, self._version)
        for announcement in announced:
            self._retracted.pop(announcement.source, None)
        removals = [SourceAnnouncement(id, None) for id, needed in self._retracted.items() if version >= needed]
        for removal in removals:
            del self._retracted[removal.source]
        return [message for one in (*removals, *announced) for message in self._apply(one)]

    def _apply(self, announcement: SourceAnnouncement) -> list[SourceMessage]:
        name = global_name(announcement.source, self.peer)
        previous = self._known.sources.get(announcement.source)
        if announcement.attributes is None:
            self._known.remove(announcement.source)
            return [] if previous is None else [SourceRemoved(name)]
        self._known.put(announcement)
        if previous is None:
            return [announcement.to_registration(self.peer)]
        messages: list[SourceMessage] = []
        if _is_retracted(previous.position, announcement.position):
            messages.append(PositionForgotten(name))
        if not same_attributes(previous.attributes or {}, announcement.attributes):
            messages.append(SourceChanged(name, announcement.attributes))
        if (position := announcement.position) is not None and position != previous.position:
            messages.append(EntityMoved(name, position.x, position.y, position.time))
        return messages


class _SourceTable:
    """Announcements by source id, and their total size."""

    def __init__(self) -> None:
        self.sources: dict[str, SourceAnnouncement] = {}
        self.size = 0

    def put(self, announcement: SourceAnnouncement) -> None:
        self.remove(announcement.source)
        self.sources[announcement.source] = announcement
        self.size += announcement.size

    def remove(self, id: str) -> None:
        previous = self.sources.pop(id, None)
        self.size -= 0 if previous is None else previous.size


def _is_retracted(previous: Position | None, current: Position | None) -> bool:
    """Whether the previous position was erased: there is none now, or an older one."""
    return previous is not None and (current is None or current.time < previous.time)
