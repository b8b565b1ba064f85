"""A mule's part in CET and direct gathering: it polls sensors in reach, takes what it wants, and puts events back.

It is driven like `NodeCore`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from roamcast.collect.protocol.events import EventId, FieldEvent, NodeId
from roamcast.collect.protocol.messages import (
    Answer,
    CellEntry,
    Collected,
    Effect,
    Handover,
    Have,
    Hello,
    Message,
    Offer,
    Outgoing,
    Path,
    PutBack,
    Stop,
    Tell,
    Transfer,
)
from roamcast.collect.protocol.policy import CollectPolicy

__all__ = ["Carried", "MuleCore"]

IsFree = Callable[[NodeId], bool]


@dataclass(frozen=True, slots=True)
class Carried:
    """An event that a mule carries, and how often it was sent."""

    event: FieldEvent
    hops: int


class MuleCore:
    """One mule. `wants` is its interest."""

    def __init__(
        self,
        me: NodeId,
        policy: CollectPolicy,
        wants: Callable[[FieldEvent], bool],
        *,
        room: float = inf,
        first_version: int = 0,
    ) -> None:
        """`room` is the number of events it can carry to a base. Versions must be higher after a restart."""
        self.me = me
        self.cargo: dict[EventId, Carried] = {}
        """Events that it wants and has not handed over at a base."""
        self.counts: Counter[str] = Counter()
        self.effects: list[Effect] = []
        self.stored: dict[EventId, Carried] = {}
        """Events that may be put back."""
        self.known: dict[EventId, int] = {}
        """Events received, and when they expire: nobody sends them any more after that."""
        self._policy, self._wants, self.room = policy, wants, room
        self._version = first_version
        self._hellos: dict[NodeId, Hello] = {}
        self._stops: tuple[Stop, ...] = ()
        self._last_sender = -1
        self._last_received: int | None = None
        self._put_back_count = 0
        self._offer: int | None = None
        """The number of the open offer."""
        self._takers: list[tuple[NodeId, NodeId]] = []
        """Communities that may be made an offer next, and a sensor of each; the next one is last."""
        self._granted: Outgoing | None = None

    # Time, path and contacts.

    def advance(self, now: int) -> None:
        """Forget what has expired."""
        for event in [event for event, expires in self.known.items() if expires <= now]:
            del self.known[event]
            self.counts["expired_in_store"] += self.stored.pop(event, None) is not None

    def take_path(self, stops: tuple[Stop, ...]) -> None:
        """The mule takes another path."""
        self._stops = stops
        for node in self._one_each():
            self._announce_path(node)

    def enter_cell(self) -> None:
        """The mule enters a cell."""
        if self._policy.resend == "cell":
            for node in sorted(self._hellos):
                self._tell(node, CellEntry())

    def contact_ends(self, node: NodeId) -> None:
        """A sensor has gone out of reach. A contact begins with its `Hello`."""
        self._hellos.pop(node, None)
        if self._granted is not None and self._granted.to == node:
            self._granted = None

    def hear(self, node: NodeId, message: Message) -> None:
        """A sensor in reach says something."""
        match message:
            case Hello(community):
                is_first = all(hello.community != community for hello in self._hellos.values())
                self._hellos[node] = message
                if is_first:
                    self._announce_path(node)
                    if self._policy.resend == "missing":
                        self._tell_what_it_has(node, tuple(self.known))
            case Answer(number, event, route) if number == self._offer:
                carried = self.stored.get(event) if event is not None else None
                if carried is not None:
                    self._offer = None
                    self._granted = Outgoing(node, PutBack(carried.event, carried.hops + 1, self.me, route))
                else:
                    self._offer_next()

    # Transfers.

    @property
    def has_room(self) -> bool:
        """Whether it can carry more events."""
        return len(self.cargo) < self.room

    def hand_over(self, base: NodeId) -> Outgoing | None:
        """The next event for a base in reach: the one received last."""
        carried = self.cargo[next(reversed(self.cargo))] if self.cargo else None
        return None if carried is None else Outgoing(base, Handover(carried.event, carried.hops + 1))

    def poll_order(self) -> list[NodeId]:
        """The sensors in reach in the order of polling: round robin."""
        return sorted(self._hellos, key=lambda node: (node <= self._last_sender, node))

    def receive(self, node: NodeId, transfer: Transfer, now: int) -> str | None:
        """An event arrives. Returns None if the core takes it, or the rule by which it refuses."""
        if not isinstance(transfer, Handover):
            return "unwanted"
        event = transfer.event
        if not self.has_room and event.id not in self.known:
            return "full"
        self.counts["to_mules"] += 1
        self._last_sender, self._last_received = node, now
        if event.id in self.known:
            self.counts["duplicates"] += 1
            return None
        self.known[event.id] = event.expires
        is_wanted = self._wants(event)
        if is_wanted:
            self.cargo[event.id] = Carried(event, transfer.hops)
            self.effects.append(Collected(event, transfer.hops))
        else:
            self.counts["unwanted"] += 1
        is_small = event.origin_size <= self._policy.gamma
        if self._policy.put_back and is_small and (is_wanted or self._policy.stores_all):
            self.stored[event.id] = Carried(event, transfer.hops)
        if self._policy.resend == "missing":
            for other in self._one_each():
                self._tell_what_it_has(other, (event.id,))
        return None

    def offer(self, now: int, is_free: IsFree) -> None:
        """Offer an event for put-back, if nothing was received for a while: to one community after the other."""
        is_quiet = self._last_received is None or now - self._last_received >= self._policy.quiet
        if not (self._policy.put_back and is_quiet and self.stored and self._granted is None):
            return
        ready: dict[NodeId, list[NodeId]] = {}
        for node, hello in sorted(self._hellos.items()):
            if not hello.is_isolated and is_free(node):
                ready.setdefault(hello.community, []).append(node)
        turn = self._put_back_count
        self._takers = [(c, nodes[turn % len(nodes)]) for c, nodes in sorted(ready.items(), reverse=True)]
        self._offer_next()

    def put_back(self) -> Outgoing | None:
        """The event to be put back now."""
        return self._granted

    def sent(self, out: Outgoing) -> None:
        """A transfer was sent."""
        self._put_back_count += out is self._granted

    def confirmed(self, out: Outgoing) -> None:
        """The receiver has taken a transfer."""
        if isinstance(out.transfer, Handover):
            self.counts["handed_over"] += self.cargo.pop(out.transfer.event.id, None) is not None
            return
        self.counts["put_back"] += 1
        self._granted = None
        if not self._policy.keeps_given:
            self.stored.pop(out.transfer.event.id, None)

    def refused(self, out: Outgoing) -> None:
        """The receiver has not taken a transfer: the mule still has the event."""
        if out is self._granted:
            self._granted = None

    # What is behind these.

    def _offer_next(self) -> None:
        """Make an offer to the next community that might accept one of the events."""
        while self._takers:
            community, node = self._takers.pop()
            offered = [carried.event for carried in self.stored.values() if carried.event.origin != community]
            if offered:
                self._offer = self._next_version()
                offered.sort(key=lambda event: event.youth, reverse=True)
                self._tell(node, Offer(self._offer, tuple(event.id for event in offered)))
                return
        self._offer = None

    def _one_each(self) -> list[NodeId]:
        """One sensor in reach of each community in contact."""
        return list({hello.community: node for node, hello in sorted(self._hellos.items())}.values())

    def _announce_path(self, node: NodeId) -> None:
        self._tell(node, Path(self.me, self._next_version(), self._stops))

    def _tell_what_it_has(self, node: NodeId, events: tuple[EventId, ...]) -> None:
        self._tell(node, Have(self.me, self._next_version(), events))

    def _next_version(self) -> int:
        self._version += 1
        return self._version

    def _tell(self, to: NodeId, message: Message) -> None:
        self.effects.append(Tell(to, message))
