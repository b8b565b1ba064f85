"""A backbone in memory: nodes with binders, and a network that delays, loses and repeats."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from roamcast.bind.discovery.backbone import Backbone
from roamcast.bind.discovery.messages import DiscoveryRequest, DiscoveryResponse, SourceAnnouncement, request_of
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
    Unsubscribed,
)
from roamcast.bind.lcesm.states import SubscriptionState
from roamcast.lacl import Query, check, parse, plan_of
from roamcast.model import Position
from roamcast.space import PLANAR

LIMIT = 50


class Registry:
    """The sources of a node, as it would have them on disk."""

    def __init__(self) -> None:
        self.sources: dict[str, SourceAnnouncement] = {}

    def __iter__(self) -> Iterator[SourceAnnouncement]:
        return iter(list(self.sources.values()))

    def get(self, id: str) -> SourceAnnouncement | None:
        return self.sources.get(id)


class Station:
    """A node: what is on its disk, and, while it runs, a binder and its part of the backbone."""

    def __init__(self, name: str, names: Sequence[str]) -> None:
        self.name = name
        self.peers = {other for other in names if other != name}
        self.registry = Registry()
        self.subscribers: dict[str, Position] = {}
        self.queries: dict[str, tuple[str, Query]] = {}
        self.session = 0
        self.start()

    def start(self) -> None:
        """Begin, or begin again with what is on disk."""
        self.session += 1
        self.is_up = True
        self.binder = Binder(PLANAR)
        self.backbone = Backbone(self.name, self.session, self.registry, LIMIT)
        self.looking: set[str] = set()  # subscriptions
        self.urgent: set[str] = set()
        for other in sorted(self.peers):
            self.backbone.add_peer(other)
        for news in self.registry:
            self.tell(SourceRegistered(news.source, news.attributes or {}, news.position), 0)
        for id, at in self.subscribers.items():
            self.tell(SubscriberRegistered(id, {}, at), 0)
        for id, (subscriber, query) in self.queries.items():
            self.tell(Subscribed(id, subscriber, query), 0)

    def stop(self) -> None:
        self.is_up = False

    def tell(self, message: Message, now: int) -> None:
        """The binder, and the backbone of what came of it."""
        self._follow(self.binder.handle(message, now))
        if isinstance(message, Unsubscribed):
            self._look(message.id, None)

    def hear(self, messages: list[SourceMessage], now: int) -> None:
        """Of sources of other nodes."""
        self._follow(self.binder.handle_sources(messages, now))

    def _follow(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, StateChanged):
                self._look(effect.subscription, effect.state)
        self.urgent.update(self.backbone.apply_demand(effects))

    def _look(self, id: str, state: SubscriptionState | None) -> None:
        """As a node does: of plan bind sources are looked for also while a life-control stops it."""
        query = self.queries[id][1]
        looks = state is not None and (plan_of(query) == "bind" or state is SubscriptionState.ACTIVE)
        if looks != (id in self.looking):
            self.urgent.update(self.backbone.add_requests(request_of(query), 1 if looks else -1))
            (self.looking.add if looks else self.looking.discard)(id)

    # What happens at this node

    def put_source(self, id: str, attributes: dict[str, str], x: float, y: float, now: int) -> None:
        """Register it, or change and move it."""
        known = self.registry.get(id)
        at = Position(id, x, y, now)
        self.registry.sources[id] = SourceAnnouncement(id, attributes, at)
        if known is None:
            self.tell(SourceRegistered(id, attributes, at), now)
        else:
            self.tell(SourceChanged(id, attributes), now)
            self.tell(EntityMoved(id, x, y, now), now)
        self.backbone.announcer.announce([id])

    def move_source(self, id: str, x: float, y: float, time: int, now: int) -> None:
        """What is older than what is known is ignored."""
        known, at = self.registry.sources[id], Position(id, x, y, time)
        if at.supersedes(known.position):
            self.registry.sources[id] = replace(known, position=at)
            self.tell(EntityMoved(id, x, y, time), now)
            self.backbone.announcer.announce([id])

    def forget_position(self, id: str, now: int) -> None:
        self.registry.sources[id] = replace(self.registry.sources[id], position=None)
        self.tell(PositionForgotten(id), now)
        self.backbone.announcer.announce([id])

    def remove_source(self, id: str, now: int) -> None:
        del self.registry.sources[id]
        self.tell(SourceRemoved(id), now)
        self.backbone.announcer.announce([id])

    def move_subscriber(self, id: str, x: float, y: float, now: int) -> None:
        at = Position(id, x, y, now)
        new = id not in self.subscribers
        self.subscribers[id] = at
        self.tell(SubscriberRegistered(id, {}, at) if new else EntityMoved(id, x, y, now), now)

    def subscribe(self, id: str, subscriber: str, text: str, now: int) -> None:
        query = check(parse(text))
        self.queries[id] = subscriber, query
        self.tell(Subscribed(id, subscriber, query), now)

    def unsubscribe(self, id: str, now: int) -> None:
        self.tell(Unsubscribed(id), now)
        del self.queries[id]

    def expel(self, other: str, now: int) -> None:
        """It is heard no more, and not answered."""
        self.peers.discard(other)
        self.hear(self.backbone.remove_peer(other), now)

    def invite(self, other: str) -> None:
        self.peers.add(other)
        self.backbone.add_peer(other)

    def bound(self) -> dict[str, tuple[str, ...]]:
        return {status.id: tuple(status.sources) for status in self.binder.statuses()}


@dataclass
class Network:
    """Messages under way, and what becomes of them."""

    stations: dict[str, Station]
    random: random.Random
    now: int = 1
    is_calm: bool = False
    asked: int = 0
    under_way: list[tuple[int, str, DiscoveryRequest | DiscoveryResponse]] = field(default_factory=list)

    def send(self, to: str, message: DiscoveryRequest | DiscoveryResponse) -> None:
        copies = 1 if self.is_calm else self.random.choice([0, 1, 1, 1, 2])
        longest = 1 if self.is_calm else 30
        for _ in range(copies):
            self.under_way.append((self.now + self.random.randint(1, longest), to, message))

    def step(self) -> None:
        """A moment passes: everybody asks now and then, messages arrive, the silent lapse."""
        self.now += 1
        for station in self.up():
            for other in sorted(station.peers):
                if other in station.urgent or self.random.random() < 0.2:
                    self.asked += 1
                    self.send(other, station.backbone.requester(other).request())
            station.urgent.clear()
        due = [item for item in self.under_way if item[0] <= self.now]
        self.under_way = [item for item in self.under_way if item[0] > self.now]
        for _, to, message in due:
            station = self.stations[to]
            if not station.is_up or message.node not in station.peers:
                continue
            if isinstance(message, DiscoveryRequest):
                self.send(message.node, station.backbone.announcer.respond(message))
            else:
                station.hear(station.backbone.receive(message, self.now), self.now)
        for station in self.up():
            station.hear(station.backbone.expire(self.now), self.now)

    def settle(self) -> None:
        """No more losses, and time enough for whatever is to be noticed."""
        self.is_calm = True
        for _ in range(LIMIT + 60):
            self.step()
        self.is_calm = False

    def up(self) -> list[Station]:
        return [station for station in self.stations.values() if station.is_up]

    def linked(self, station: Station) -> list[Station]:
        """Those with whom it talks."""
        return [it for it in self.up() if it.name in station.peers and station.name in it.peers]


def expected(network: Network, station: Station) -> dict[str, tuple[str, ...]]:
    """The bindings of a binder that was told of all sources of all nodes that are heard, and of nothing else before."""
    binder = Binder(PLANAR)
    for other in (station, *network.linked(station)):
        for news in other.registry:
            mine = other is station
            told = SourceRegistered(news.source, news.attributes or {}, news.position) if mine else None
            binder.handle(told or news.to_registration(other.name), 1)
    for id, at in station.subscribers.items():
        binder.handle(SubscriberRegistered(id, {}, replace(at)), 1)
    for id, (subscriber, query) in station.queries.items():
        if plan_of(query) == "bind":
            binder.handle(Subscribed(id, subscriber, query), 1)
    return {status.id: tuple(status.sources) for status in binder.statuses()}
