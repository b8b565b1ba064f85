"""Heads of communities: elections, and who keeps an event that is put back (section 3.2.2)."""

from __future__ import annotations

from collections.abc import Callable, Set
from functools import cached_property

from roamcast.collect.protocol.communities import Community, HeadTree
from roamcast.collect.protocol.events import EventId, NodeId
from roamcast.collect.protocol.messages import Bid, Call, Grant, KeeperQuery, Kept, NewHead, Note

__all__ = ["Headship"]


class Headship:
    """Which member is the head, and, at the head, which keeper is next.

    A member calls an election when it is the head and has too little energy, or when the head does not reply. It
    decides when it has the bids of all members, or after a while. The higher term wins, then the higher node.
    """

    def __init__(self, me: NodeId, community: Community, *, theta: float, patience: int, seed: int) -> None:
        self.me = me
        self.head = community.id
        self.term = 0
        self.is_final = community.is_isolated
        self.elections = 0
        """Elections that were decided here."""
        self.kept: dict[EventId, int] = {}
        """Events put back to this community, and when they expire."""
        self._community = community
        self._theta, self._patience, self._seed = theta, patience, seed
        self._bids: dict[NodeId, float] = {}
        self._running: int | None = None
        self._decide_at = 0
        self._next_keeper = 0

    @property
    def decide_at(self) -> int | None:
        """When an election is decided even without all bids; None if there is none."""
        return None if self._running is None else self._decide_at

    def paid(self, joules: float, now: int, spread: Callable[[Note], None]) -> None:
        """The member has paid for a transfer, and has this left."""
        if self.me == self.head and not self.is_final and joules < self._theta and self._running is None:
            self.call(joules, now, spread)

    def call(self, joules: float, now: int, spread: Callable[[Note], None]) -> None:
        """Call an election."""
        self._running = self.term + 1
        self._bids, self._decide_at = {self.me: joules}, now + self._patience
        spread(Call(self.me, self._running))
        self._decide(now, spread)

    def advance(self, now: int, spread: Callable[[Note], None]) -> None:
        """Time has passed."""
        self._decide(now, spread)
        for event in [event for event, expires in self.kept.items() if expires <= now]:
            del self.kept[event]

    def hear_bid(self, bid: Bid, now: int, spread: Callable[[Note], None]) -> None:
        """A member bids in an election."""
        if bid.term == self._running:
            self._bids[bid.node] = bid.joules
            self._decide(now, spread)

    def hear_head(self, note: NewHead) -> bool:
        """An election was decided. Returns whether that is news."""
        if (note.term, note.node) <= (self.term, self.head if self.term else -1):
            return False
        self._set(note)
        return True

    def keep(self, kept: Kept) -> bool:
        """An event was put back here. Returns whether that is news."""
        is_new = kept.event not in self.kept
        self.kept[kept.event] = kept.expires
        return is_new

    def grant(self, query: KeeperQuery, full: Set[NodeId]) -> Grant:
        """The keeper of the first acceptable event, if a queue has room: the members take turns in the tree's order."""
        event = next((event for event in query.events if event not in self.kept), None)
        order = self._tree.order
        for step in range(len(order) if event is not None else 0):
            at = (self._next_keeper + step) % len(order)
            if order[at] not in full:
                self._next_keeper = (at + 1) % len(order)
                return Grant(query.node, query.mule, query.number, event, tuple(self._tree.path(query.node, order[at])))
        return Grant(query.node, query.mule, query.number, None, ())

    @cached_property
    def _tree(self) -> HeadTree:
        return HeadTree(self._community.neighbours, self.head, self._seed)

    def _decide(self, now: int, spread: Callable[[Note], None]) -> None:
        if self._running is None or (len(self._bids) < len(self._community.cells) and now < self._decide_at):
            return
        best = max(self._bids, key=lambda member: (self._bids[member], -member))
        note = NewHead(best, self._running, self._bids[best] < self._theta)
        self._running = None
        if self.hear_head(note):
            self.elections += 1
            spread(note)

    def _set(self, note: NewHead) -> None:
        self.head, self.term, self.is_final = note.node, note.term, note.is_final
        self._next_keeper = 0
        self.__dict__.pop("_tree", None)
        if self._running is not None and self._running <= note.term:
            self._running = None
