"""What a sensor knows of the other members of its community, and of what mules have told them."""

from __future__ import annotations

from collections.abc import Collection

from roamcast.collect.protocol.events import EventId, NodeId
from roamcast.collect.protocol.messages import Have, Status

__all__ = ["Members"]


class Members:
    """The newest status of each member, whose queues are `full`, and which events mules in contact have."""

    def __init__(self) -> None:
        self.full: set[NodeId] = set()
        self._statuses: dict[NodeId, Status] = {}
        self._known: dict[NodeId, set[EventId]] = {}

    def update(self, status: Status) -> tuple[list[NodeId], list[NodeId]]:
        """Take a newer status. Returns the mules that the member has met and lost since the one before."""
        before = self._statuses.get(status.node)
        if before is not None and before.version >= status.version:
            return [], []
        self._statuses[status.node] = status
        (self.full.add if status.is_full else self.full.discard)(status.node)
        had = before.mules if before is not None else ()
        return [m for m in status.mules if m not in had], [m for m in had if m not in status.mules]

    def met_by(self, member: NodeId) -> tuple[NodeId, ...]:
        """The mules in reach of a member."""
        return self._statuses[member].mules if member in self._statuses else ()

    def learn(self, have: Have) -> bool:
        """A mule says what it has. Returns whether that is news."""
        known = self._known.setdefault(have.mule, set())
        is_news = not known.issuperset(have.events)
        known.update(have.events)
        return is_news

    def known_to(self, mule: NodeId) -> Collection[EventId]:
        """The events that a mule has, as far as it has said."""
        return self._known.get(mule, ())

    def forget(self, mule: NodeId) -> None:
        """A mule is gone, and will say again what it has."""
        self._known.pop(mule, None)
