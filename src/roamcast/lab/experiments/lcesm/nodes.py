"""The cost of discovery: nodes in one process that announce their sensors to each other; every message is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Literal

import numpy as np
from scipy.spatial import cKDTree  # type: ignore[import-untyped]

from roamcast.bind.discovery.backbone import Backbone
from roamcast.bind.discovery.cells import Cell
from roamcast.bind.discovery.messages import SourceAnnouncement, request_of
from roamcast.bind.lcesm.binder import Binder
from roamcast.bind.lcesm.messages import (
    Effect,
    EntityMoved,
    Message,
    SourceRegistered,
    Subscribed,
    SubscriberRegistered,
)
from roamcast.lab.experiments.lcesm.room import SensorGrid, WalkingListeners
from roamcast.lab.experiments.lcesm.run import QUERY
from roamcast.model import Position, global_name, split_name
from roamcast.space import PLANAR

__all__ = ["DiscoveryNetwork", "MessageCounts", "discover"]

Cause = Literal["find", "demand", "moved", "idle"]
"""A new request; a change of demand; a sensor that moved; the timeout of a poll."""
MessageCounts = Counter[tuple[Cause, Literal["requests", "responses", "announcements"]]]

_SENSORS = 100
_LISTENERS = 50
_IDLE = 2  # seconds after which a request is answered without announcements
_STEPS = 5  # per second
_LIMIT = 10**9  # no node ever times out here
_CONTEXT = {"context": "temperature"}


class _DiscoveryNode:
    """A binder, its backbone, and its registered sensors."""

    def __init__(self, name: str, others: Iterable[str]) -> None:
        self.sensors: dict[str, SourceAnnouncement] = {}
        self.binder = Binder(PLANAR)
        self.backbone = Backbone(name, 1, self, _LIMIT)
        for other in others:
            self.backbone.add_peer(other)

    def __iter__(self) -> Iterator[SourceAnnouncement]:
        return iter(self.sensors.values())

    def get(self, id: str) -> SourceAnnouncement | None:
        return self.sensors.get(id)

    def inside(self, cells: Collection[Cell | None]) -> Collection[str]:
        return self.sensors.keys()


class DiscoveryNetwork:
    """Nodes that exchange messages without loss or delay. A request stays open until there is an announcement."""

    def __init__(self, count: int) -> None:
        names = [f"node-{at}" for at in range(count)]
        self._nodes = {name: _DiscoveryNode(name, (other for other in names if other != name)) for name in names}
        self._last_exchange = {(name, other): 0 for name in names for other in names if other != name}
        self.counts: MessageCounts = Counter()
        self.names = names

    def put_sensor(self, node: str, id: str, x: float, y: float, now: int) -> None:
        """Register a sensor with a node, or move it. Call `announce` afterwards."""
        here, new = self._nodes[node], id not in self._nodes[node].sensors
        at = Position(id, x, y, now)
        here.sensors[id] = SourceAnnouncement(id, _CONTEXT, at)
        self._send(node, SourceRegistered(id, _CONTEXT, at) if new else EntityMoved(id, x, y, now), now)

    def announce(self, node: str, sensors: Iterable[str], now: int) -> None:
        """Announce sensors to the nodes concerned, in one response to each."""
        for requester in sorted(self._nodes[node].backbone.announcer.announce(sensors)):
            self._exchange(requester, node, "moved", now)

    def subscribe(self, node: str, id: str, x: float, y: float, now: int) -> None:
        """Register a listener with a node, and subscribe it to the nearest sensor."""
        self._send(node, SubscriberRegistered(id, {}, Position(id, x, y, now)), now)
        self._send(node, Subscribed(id, id, QUERY), now)
        for other in self._nodes[node].backbone.add_requests(request_of(QUERY)):
            self._exchange(node, other, "find", now)

    def move_listener(self, node: str, id: str, x: float, y: float, now: int) -> None:
        self._send(node, EntityMoved(id, x, y, now), now)

    def idle(self, now: int) -> None:
        """Renew the requests that have been open for long."""
        for (requester, announcer), since in list(self._last_exchange.items()):
            if now - since >= _IDLE * 1_000_000:
                self._exchange(requester, announcer, "idle", now)

    def bound(self, node: str, id: str) -> str | None:
        """The global name of the sensor that a listener is bound to."""
        sources = self._nodes[node].binder.status(id).sources
        if not sources:
            return None
        sensor, other = split_name(sources[0])
        return global_name(sensor, other or node)

    def _exchange(self, requester: str, announcer: str, cause: Cause, now: int) -> None:
        """Exchange a request and its response, and apply the result."""
        backbone = self._nodes[requester].backbone
        response = self._nodes[announcer].backbone.announcer.respond(backbone.requester(announcer).request())
        self._last_exchange[requester, announcer] = now
        self.counts[cause, "requests"] += 1
        self.counts[cause, "responses"] += 1
        self.counts[cause, "announcements"] += len(response.announcements)
        if messages := backbone.receive(response, now):
            self._apply(requester, self._nodes[requester].binder.handle_sources(messages, now), now)

    def _send(self, node: str, message: Message, now: int) -> None:
        self._apply(node, self._nodes[node].binder.handle(message, now), now)

    def _apply(self, node: str, effects: list[Effect], now: int) -> None:
        for other in self._nodes[node].backbone.apply_demand(effects):
            self._exchange(node, other, "demand", now)


def discover(count: int, seed: int, seconds: int, speed: float = 0.0) -> tuple[MessageCounts, MessageCounts, int]:
    """Returns the messages until all listeners are bound, the messages afterwards, and the number of wrong bindings.

    There are a hundred sensors and fifty listeners for any number of nodes. Neighbouring sensors share a node;
    listeners are distributed in turn. Sensors that move, at `speed` metres per second, are announced every second.
    """
    rng = np.random.default_rng(seed)
    sensors = SensorGrid(_SENSORS, rng, speed)
    listeners = WalkingListeners(_LISTENERS, sensors, rng)
    nodes = DiscoveryNetwork(count)
    homes = [nodes.names[sensor * count // _SENSORS] for sensor in range(_SENSORS)]
    hosts = [nodes.names[listener % count] for listener in range(_LISTENERS)]
    points = np.column_stack(sensors.at(0))
    for sensor, (x, y) in enumerate(points.tolist()):
        nodes.put_sensor(homes[sensor], f"sensor-{sensor}", x, y, 0)
    for listener, (x, y) in enumerate(np.column_stack(listeners.at(0)).tolist()):
        nodes.subscribe(hosts[listener], f"listener-{listener}", x, y, 0)
    first, wrong = nodes.counts.copy(), 0
    for step in range(1, seconds * _STEPS + 1):
        now = step * 1_000_000 // _STEPS
        if speed and step % _STEPS == 0:
            points = np.column_stack(sensors.at(step / _STEPS))
            for sensor, (x, y) in enumerate(points.tolist()):
                nodes.put_sensor(homes[sensor], f"sensor-{sensor}", x, y, now)
            for home in dict.fromkeys(homes):
                here = [f"sensor-{sensor}" for sensor in range(_SENSORS) if homes[sensor] == home]
                nodes.announce(home, here, now)
        walkers = np.column_stack(listeners.at(step / _STEPS))
        for listener, (x, y) in enumerate(walkers.tolist()):
            nodes.move_listener(hosts[listener], f"listener-{listener}", x, y, now)
        nodes.idle(now)
        if step % _STEPS == 0:
            nearest = cKDTree(points).query(walkers)[1].tolist()
            wrong += sum(
                nodes.bound(hosts[listener], f"listener-{listener}") != f"sensor-{sensor}@{homes[sensor]}"
                for listener, sensor in enumerate(nearest)
            )
    return first, nodes.counts - first, wrong
