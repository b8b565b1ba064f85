"""Epidemic and Spray-and-Wait, for comparison: every node gives nodes in reach what they lack, newest first.

Driven like `NodeCore`, by both sensors and mules. Nodes know what their neighbours have, whether they have room, and
what mules want.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from roamcast.collect.protocol.events import Copy, CopyQueue, EventId, FieldEvent, NodeId

__all__ = ["Introduction", "SprayCore", "Sprayed", "Update"]

IsFree = Callable[[NodeId], bool]
Wants = Callable[[FieldEvent], bool]


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a node tells a neighbour when their contact begins. Only mules want events."""

    wants: Wants | None
    events: frozenset[EventId]
    is_full: bool


@dataclass(frozen=True, slots=True)
class Update:
    """A node has another event, or room or none."""

    event: EventId | None
    is_full: bool


@dataclass(frozen=True, slots=True)
class Sprayed:
    """A transfer of `copies` copies of an event; with Epidemic their number does not matter."""

    to: NodeId
    event: FieldEvent
    hops: int
    copies: int


@dataclass(slots=True)
class _Neighbour:
    wants: Wants | None
    events: set[EventId]
    is_full: bool


class SprayCore:
    """One node. An event starts as `copies` copies; None: everything is given to everybody."""

    def __init__(self, room: float, copies: int | None, wants: Wants | None, *, hold: int = 0) -> None:
        self.queue = CopyQueue(room, by_successes=False)
        self.counts: Counter[str] = Counter()
        self.effects: list[tuple[NodeId, Introduction | Update]] = []
        """What is to be told to whom."""
        self.wants = wants
        self._start, self._hold = copies, hold
        self._copies: dict[EventId, int] = {}
        self._seen: set[EventId] = set()
        """Events that the node has or had; it does not take them again."""
        self._neighbours: dict[NodeId, _Neighbour] = {}
        self._next_expiry = inf

    def advance(self, now: int) -> None:
        """Drop what has expired."""
        if now >= self._next_expiry:
            was_full = self.queue.is_full
            self.counts["expired"] += len(self.queue.remove(lambda copy: copy.event.expires <= now))
            self._next_expiry = min((copy.event.expires for copy in self.queue.copies), default=inf)
            if was_full != self.queue.is_full:
                self._update(None)

    def sense(self, event: FieldEvent, now: int) -> None:
        """The sensor has created an event."""
        self.counts["created"] += 1
        if self.queue.is_full:
            self.counts["full"] += 1
        else:
            self._take(Copy(event, now), self._start or 0)

    def contact_begins(self, other: NodeId) -> None:
        self.effects.append((other, Introduction(self.wants, frozenset(self._seen), self.queue.is_full)))

    def contact_ends(self, other: NodeId) -> None:
        self._neighbours.pop(other, None)

    def hear(self, other: NodeId, said: Introduction | Update) -> None:
        """A node in reach says something."""
        if isinstance(said, Introduction):
            self._neighbours[other] = _Neighbour(said.wants, set(said.events), said.is_full)
        elif other in self._neighbours:
            self._neighbours[other].is_full = said.is_full
            if said.event is not None:
                self._neighbours[other].events.add(said.event)

    def next_transfer(self, now: int, is_free: IsFree) -> Sprayed | None:
        """The newest event that a neighbour lacks and can take; mules come first, then lower nodes."""
        able = [node for node, other in self._neighbours.items() if not other.is_full and is_free(node)]
        able.sort(key=lambda node: (self._neighbours[node].wants is None, node))
        copy = self.queue.first(
            lambda copy: copy.ready <= now and any(self._may_send(copy.event, node) for node in able)
        )
        if copy is None:
            return None
        to = next(node for node in able if self._may_send(copy.event, node))
        return Sprayed(to, copy.event, copy.hops + 1, self._copies[copy.event.id] // 2)

    def receive(self, sprayed: Sprayed, now: int) -> bool:
        """An event arrives. Returns whether this node wants it."""
        self._take(Copy(sprayed.event, now + self._hold, hops=sprayed.hops), sprayed.copies)
        return self.wants is not None and self.wants(sprayed.event)

    def confirmed(self, sprayed: Sprayed) -> None:
        """The receiver has taken a transfer."""
        self._copies[sprayed.event.id] -= sprayed.copies

    def _may_send(self, event: FieldEvent, node: NodeId) -> bool:
        other = self._neighbours[node]
        if event.id in other.events:
            return False
        is_wanted = other.wants is not None and other.wants(event)
        return self._start is None or self._copies[event.id] > 1 or is_wanted

    def _take(self, copy: Copy, copies: int) -> None:
        self._seen.add(copy.event.id)
        self._copies[copy.event.id] = copies
        self.queue.copies.append(copy)
        self._next_expiry = min(self._next_expiry, copy.event.expires)
        self._update(copy.event.id)

    def _update(self, event: EventId | None) -> None:
        for node in self._neighbours:
            self.effects.append((node, Update(event, self.queue.is_full)))
