"""A backbone in memory: nodes with binders, and a network that delays, loses and duplicates messages."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from roamcast.bind.discovery.backbone import Backbone
from roamcast.bind.discovery.cells import Cell
from roamcast.bind.discovery.messages import (
    DiscoveryRequest,
    DiscoveryResponse,
    Plan,
    SourceAnnouncement,
    SourceRequest,
    request_of,
)
from roamcast.bind.lcesm.binder import Binder
from roamcast.bind.lcesm.messages import (
    Effect,
    EntityMoved,
    Message,
    PositionForgotten,
    SourceChanged,
    SourceMessage,
    SourceRegistered,
    SourceRemoved,
    StateChanged,
    Subscribed,
    SubscriberRegistered,
    SubscriptionState,
    Unsubscribed,
)
from roamcast.lacl import Query, check, parse, plan_of
from roamcast.model import Position
from roamcast.space import PLANAR

TIMEOUT = 50


def source_request(plan: Plan, condition: str = "") -> SourceRequest:
    """The request of a condition in LACL."""
    return SourceRequest.of(plan, parse(f"Select all() Where {condition}").where if condition else None)


class Registry:
    """The sources of a node, as on disk."""

    def __init__(self) -> None:
        self.sources: dict[str, SourceAnnouncement] = {}

    def __iter__(self) -> Iterator[SourceAnnouncement]:
        return iter(list(self.sources.values()))

    def get(self, id: str) -> SourceAnnouncement | None:
        return self.sources.get(id)

    def inside(self, cells: Collection[Cell | None]) -> list[str]:
        return [source.source for source in self if any(cell is None or may_be_in(source, cell) for cell in cells)]


def may_be_in(source: SourceAnnouncement, cell: Cell) -> bool:
    at, box = source.position, cell.box
    return at is None or (box.min_x <= at.x < box.max_x and box.min_y <= at.y < box.max_y)


class Station:
    """A node: its disk, and while it runs a binder and its backbone."""

    def __init__(self, name: str, names: Sequence[str]) -> None:
        self.name = name
        self.peers = {other for other in names if other != name}
        self.registry = Registry()
        self.subscribers: dict[str, Position] = {}
        self.queries: dict[str, tuple[str, Query]] = {}
        self.session = 0
        self.start()

    def start(self) -> None:
        """Start, or restart from disk."""
        self.session += 1
        self.is_up = True
        self.binder = Binder(PLANAR)
        self.backbone = Backbone(self.name, self.session, self.registry, TIMEOUT)
        self.requesting: set[str] = set()  # subscriptions
        self.urgent: set[str] = set()
        for other in sorted(self.peers):
            self.backbone.add_peer(other)
        for source in self.registry:
            self.send(SourceRegistered(source.source, source.attributes or {}, source.position), 0)
        for id, at in self.subscribers.items():
            self.send(SubscriberRegistered(id, {}, at), 0)
        for id, (subscriber, query) in self.queries.items():
            self.send(Subscribed(id, subscriber, query), 0)

    def stop(self) -> None:
        self.is_up = False

    def send(self, message: Message, now: int) -> None:
        """Send a message to the binder, and its effects to the backbone."""
        self._apply(self.binder.handle(message, now))
        if isinstance(message, Unsubscribed):
            self._update_request(message.id, None)

    def send_remote(self, messages: list[SourceMessage], now: int) -> None:
        """Send messages about remote sources to the binder."""
        self._apply(self.binder.handle_sources(messages, now))

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, StateChanged):
                self._update_request(effect.subscription, effect.state)
        self.urgent.update(self.backbone.apply_demand(effects))

    def _update_request(self, id: str, state: SubscriptionState | None) -> None:
        """As a node does: plan bind requests sources also while a life-control stops it."""
        query = self.queries[id][1]
        requests = state is not None and (plan_of(query) == "bind" or state is SubscriptionState.ACTIVE)
        if requests != (id in self.requesting):
            self.urgent.update(self.backbone.add_requests(request_of(query), 1 if requests else -1))
            (self.requesting.add if requests else self.requesting.discard)(id)

    # Changes at this node

    def put_source(self, id: str, attributes: dict[str, str], x: float, y: float, now: int) -> None:
        """Register a source, or change and move it."""
        known = self.registry.get(id)
        at = Position(id, x, y, now)
        self.registry.sources[id] = SourceAnnouncement(id, attributes, at)
        if known is None:
            self.send(SourceRegistered(id, attributes, at), now)
        else:
            self.send(SourceChanged(id, attributes), now)
            self.send(EntityMoved(id, x, y, now), now)
        self.backbone.announcer.announce([id])

    def move_source(self, id: str, x: float, y: float, time: int, now: int) -> None:
        """Move a source, unless a later position is known."""
        known, at = self.registry.sources[id], Position(id, x, y, time)
        if at.supersedes(known.position):
            self.registry.sources[id] = replace(known, position=at)
            self.send(EntityMoved(id, x, y, time), now)
            self.backbone.announcer.announce([id])

    def forget_position(self, id: str, now: int) -> None:
        self.registry.sources[id] = replace(self.registry.sources[id], position=None)
        self.send(PositionForgotten(id), now)
        self.backbone.announcer.announce([id])

    def remove_source(self, id: str, now: int) -> None:
        del self.registry.sources[id]
        self.send(SourceRemoved(id), now)
        self.backbone.announcer.announce([id])

    def move_subscriber(self, id: str, x: float, y: float, now: int) -> None:
        at = Position(id, x, y, now)
        new = id not in self.subscribers
        self.subscribers[id] = at
        self.send(SubscriberRegistered(id, {}, at) if new else EntityMoved(id, x, y, now), now)

    def subscribe(self, id: str, subscriber: str, text: str, now: int) -> None:
        query = check(parse(text))
        self.queries[id] = subscriber, query
        self.send(Subscribed(id, subscriber, query), now)

    def unsubscribe(self, id: str, now: int) -> None:
        self.send(Unsubscribed(id), now)
        del self.queries[id]

    def expel(self, other: str, now: int) -> None:
        """Remove a peer."""
        self.peers.discard(other)
        self.send_remote(self.backbone.remove_peer(other), now)

    def invite(self, other: str) -> None:
        self.peers.add(other)
        self.backbone.add_peer(other)

    def bound(self) -> dict[str, tuple[str, ...]]:
        return {status.id: tuple(status.sources) for status in self.binder.statuses()}


@dataclass
class Network:
    """Delivers messages between nodes, late, repeatedly or never."""

    stations: dict[str, Station]
    random: random.Random
    now: int = 1
    is_reliable: bool = False
    requests: int = 0
    in_flight: list[tuple[int, str, DiscoveryRequest | DiscoveryResponse]] = field(default_factory=list)

    def send(self, to: str, message: DiscoveryRequest | DiscoveryResponse) -> None:
        copies = 1 if self.is_reliable else self.random.choice([0, 1, 1, 1, 2])
        longest = 1 if self.is_reliable else 30
        for _ in range(copies):
            self.in_flight.append((self.now + self.random.randint(1, longest), to, message))

    def step(self) -> None:
        """Advance time: nodes poll now and then, messages arrive, unreachable peers expire."""
        self.now += 1
        for station in self.up():
            for other in sorted(station.peers):
                if other in station.urgent or self.random.random() < 0.2:
                    self.requests += 1
                    self.send(other, station.backbone.requester(other).request())
            station.urgent.clear()
        due = [item for item in self.in_flight if item[0] <= self.now]
        self.in_flight = [item for item in self.in_flight if item[0] > self.now]
        for _, to, message in due:
            station = self.stations[to]
            if not station.is_up or message.node not in station.peers:
                continue
            if isinstance(message, DiscoveryRequest):
                self.send(message.node, station.backbone.announcer.respond(message))
            else:
                station.send_remote(station.backbone.receive(message, self.now), self.now)
        for station in self.up():
            station.send_remote(station.backbone.expire(self.now), self.now)

    def converge(self) -> None:
        """Deliver reliably for long enough that everything is noticed."""
        self.is_reliable = True
        for _ in range(TIMEOUT + 60):
            self.step()
        self.is_reliable = False

    def up(self) -> list[Station]:
        return [station for station in self.stations.values() if station.is_up]

    def linked(self, station: Station) -> list[Station]:
        """The running nodes that it exchanges messages with."""
        return [it for it in self.up() if it.name in station.peers and station.name in it.peers]


def expected(network: Network, station: Station) -> dict[str, tuple[str, ...]]:
    """The bindings of a new binder with the sources of all linked nodes."""
    binder = Binder(PLANAR)
    for other in (station, *network.linked(station)):
        for source in other.registry:
            mine = other is station
            local = SourceRegistered(source.source, source.attributes or {}, source.position) if mine else None
            binder.handle(local or source.to_registration(other.name), 1)
    for id, at in station.subscribers.items():
        binder.handle(SubscriberRegistered(id, {}, replace(at)), 1)
    for id, (subscriber, query) in station.queries.items():
        if plan_of(query) == "bind":
            binder.handle(Subscribed(id, subscriber, query), 1)
    return {status.id: tuple(status.sources) for status in binder.statuses()}
