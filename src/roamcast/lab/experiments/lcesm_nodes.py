"""What discovery costs: nodes in one process that tell each other of their sensors, every message counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal

import numpy as np
from scipy.spatial import cKDTree  # type: ignore[import-untyped]

from roamcast.bind.discovery.backbone import Backbone
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
from roamcast.lab.experiments.lcesm_room import Listeners, Sensors
from roamcast.lab.experiments.lcesm_run import QUERY
from roamcast.model import Position, global_name, split_name
from roamcast.space import PLANAR

__all__ = ["Nodes", "Spent", "discover"]

Cause = Literal["find", "demand", "news", "idle"]
"""Something new is looked for; a sensor is to send or to stop; a sensor has moved; nothing was said for a while."""
Spent = Counter[tuple[Cause, Literal["questions", "answers", "announcements"]]]

_SENSORS = 100
_LISTENERS = 50
_IDLE = 2  # seconds after which a question is answered though there is no news
_STEPS = 5  # in a second
_LIMIT = 10**9  # nobody is ever silent here
_CONTEXT = {"context": "temperature"}


class _Node:
    """A binder, its part of the backbone, and the sensors that are registered here."""

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


class Nodes:
    """A backbone over which nothing is lost and nothing takes time: a question stands until there is news."""

    def __init__(self, count: int) -> None:
        names = [f"node-{at}" for at in range(count)]
        self._nodes = {name: _Node(name, (other for other in names if other != name)) for name in names}
        self._quiet = {(name, other): 0 for name in names for other in names if other != name}  # since when
        self.spent: Spent = Counter()
        self.names = names

    def put_sensor(self, node: str, id: str, x: float, y: float, now: int) -> None:
        """It is registered there, or has moved; other nodes hear of it with `announce`."""
        here, new = self._nodes[node], id not in self._nodes[node].sensors
        at = Position(id, x, y, now)
        here.sensors[id] = SourceAnnouncement(id, _CONTEXT, at)
        self._tell(node, SourceRegistered(id, _CONTEXT, at) if new else EntityMoved(id, x, y, now), now)

    def announce(self, node: str, sensors: Iterable[str], now: int) -> None:
        """The questions of those whom this concerns are answered, all sensors in one answer."""
        for asker in sorted(self._nodes[node].backbone.announcer.announce(sensors)):
            self._exchange(asker, node, "news", now)

    def subscribe(self, node: str, id: str, x: float, y: float, now: int) -> None:
        """A listener is registered there, and looks for the nearest sensor."""
        self._tell(node, SubscriberRegistered(id, {}, Position(id, x, y, now)), now)
        self._tell(node, Subscribed(id, id, QUERY), now)
        for other in self._nodes[node].backbone.add_requests(request_of(QUERY)):
            self._exchange(node, other, "find", now)

    def move_listener(self, node: str, id: str, x: float, y: float, now: int) -> None:
        self._tell(node, EntityMoved(id, x, y, now), now)

    def idle(self, now: int) -> None:
        """Whoever has not been answered for long is, and asks again."""
        for (asker, asked), since in list(self._quiet.items()):
            if now - since >= _IDLE * 1_000_000:
                self._exchange(asker, asked, "idle", now)

    def bound(self, node: str, id: str) -> str | None:
        """The sensor that a listener is bound to, with its node."""
        sources = self._nodes[node].binder.status(id).sources
        if not sources:
            return None
        sensor, other = split_name(sources[0])
        return global_name(sensor, other or node)

    def _exchange(self, asker: str, asked: str, cause: Cause, now: int) -> None:
        """A question and its answer, and whatever follows from it."""
        backbone = self._nodes[asker].backbone
        answer = self._nodes[asked].backbone.announcer.respond(backbone.requester(asked).request())
        self._quiet[asker, asked] = now
        self.spent[cause, "questions"] += 1
        self.spent[cause, "answers"] += 1
        self.spent[cause, "announcements"] += len(answer.announcements)
        if told := backbone.receive(answer, now):
            self._follow(asker, self._nodes[asker].binder.handle_sources(told, now), now)

    def _tell(self, node: str, message: Message, now: int) -> None:
        self._follow(node, self._nodes[node].binder.handle(message, now), now)

    def _follow(self, node: str, effects: list[Effect], now: int) -> None:
        for other in self._nodes[node].backbone.apply_demand(effects):
            self._exchange(node, other, "demand", now)


def discover(count: int, seed: int, seconds: int, speed: float = 0.0) -> tuple[Spent, Spent, int]:
    """Messages until all are bound, messages after that, and wrong bindings, which there must not be.

    A hundred sensors and fifty listeners, however many nodes they are registered with: sensors with one that is near,
    listeners in turn. Sensors that move, at `speed` metres per second, are announced each second.
    """
    rng = np.random.default_rng(seed)
    sensors = Sensors(_SENSORS, rng, speed)
    listeners = Listeners(_LISTENERS, sensors, rng)
    nodes = Nodes(count)
    homes = [nodes.names[sensor * count // _SENSORS] for sensor in range(_SENSORS)]
    hosts = [nodes.names[listener % count] for listener in range(_LISTENERS)]
    places = np.column_stack(sensors.at(0))
    for sensor, (x, y) in enumerate(places.tolist()):
        nodes.put_sensor(homes[sensor], f"sensor-{sensor}", x, y, 0)
    for listener, (x, y) in enumerate(np.column_stack(listeners.at(0)).tolist()):
        nodes.subscribe(hosts[listener], f"listener-{listener}", x, y, 0)
    first, wrong = nodes.spent.copy(), 0
    for step in range(1, seconds * _STEPS + 1):
        now = step * 1_000_000 // _STEPS
        if speed and step % _STEPS == 0:
            places = np.column_stack(sensors.at(step / _STEPS))
            for sensor, (x, y) in enumerate(places.tolist()):
                nodes.put_sensor(homes[sensor], f"sensor-{sensor}", x, y, now)
            for home in dict.fromkeys(homes):
                here = [f"sensor-{sensor}" for sensor in range(_SENSORS) if homes[sensor] == home]
                nodes.announce(home, here, now)
        people = np.column_stack(listeners.at(step / _STEPS))
        for listener, (x, y) in enumerate(people.tolist()):
            nodes.move_listener(hosts[listener], f"listener-{listener}", x, y, now)
        nodes.idle(now)
        if step % _STEPS == 0:
            nearest = cKDTree(places).query(people)[1].tolist()
            wrong += sum(
                nodes.bound(hosts[listener], f"listener-{listener}") != f"sensor-{sensor}@{homes[sensor]}"
                for listener, sensor in enumerate(nearest)
            )
    return first, nodes.spent - first, wrong
