"""Bindings across nodes converge to those of a single binder, despite an unreliable network and restarts."""

from __future__ import annotations

import random

from backbones import Network, Station, expected
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from profiles import brief

from roamcast.bind.discovery.messages import request_of
from roamcast.lacl import plan_of
from roamcast.model import split_name

NODES = ("east", "north", "west")
TEXTS = (
    "Select Where &location in nearest",
    "Select Where &context = noise and &location in nearest",
    "Select Where &context = noise and &location in nearest(2)",
    "Select nearof() Where not &context = light and &location in rang:loc(3)",
    "Select remoteof() Where &context in (noise, light) and &location in rang:loc(3)",
    "Select all() Where &context = light and &location in box(0, 0, 9, 9)",
    "Select Where &context = noise and &location in nearest Life-control #location in box(0, 0, 3, 7)",
    "Select all() Where &context = light and &location in box(0, 0, 9, 9) Life-control #location in box(0, 0, 3, 7)",
)

Known = tuple[str, str, dict[str, str], int, int]

nodes = st.sampled_from(NODES)
coordinates = st.integers(0, 7)
sources = st.sampled_from(["a", "b", "c"])
contexts = st.sampled_from([{}, {"context": "noise"}, {"context": "light"}])


class BackboneModel(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 2**32),
        known=st.lists(st.tuples(nodes, sources, contexts, coordinates, coordinates), min_size=4, max_size=8),
        subscribed=st.lists(st.tuples(nodes, st.sampled_from(TEXTS)), min_size=3, max_size=8),
    )
    def begin(
        self, seed: int, known: list[tuple[str, str, dict[str, str], int, int]], subscribed: list[tuple[str, str]]
    ) -> None:
        """Most faults need a few of each."""
        self.network = Network({name: Station(name, NODES) for name in NODES}, random.Random(seed))
        self.count = 0
        for name, station in self.network.stations.items():
            station.move_subscriber(f"ann-{name}", 3, 3, 0)
        for source in known:
            self.put_source(*source)
        for name, text in subscribed:
            self.subscribe(name, text)

    def station(self, name: str) -> Station:
        return self.network.stations[name]

    def apart(self) -> list[tuple[Station, Station]]:
        """Pairs of running nodes of which one has removed the other."""
        up = self.network.up()
        return [(one, two) for one in up for two in up if one is not two and two.name not in one.peers]

    @rule(name=nodes, id=sources, attributes=contexts, x=coordinates, y=coordinates)
    def put_source(self, name: str, id: str, attributes: dict[str, str], x: int, y: int) -> None:
        if self.station(name).is_up:
            self.station(name).put_source(id, attributes, x, y, self.network.now)

    @rule(name=nodes, id=sources, x=coordinates, y=coordinates, late=st.integers(0, 200))
    def move_source(self, name: str, id: str, x: int, y: int, late: int) -> None:
        """Also with an older time, which counts if no later position is known."""
        if self.station(name).is_up and self.station(name).registry.get(id):
            self.station(name).move_source(id, x, y, self.network.now - late, self.network.now)

    @rule(name=nodes, id=sources)
    def forget_position(self, name: str, id: str) -> None:
        if self.station(name).is_up and self.station(name).registry.get(id):
            self.station(name).forget_position(id, self.network.now)

    @rule(name=nodes, id=sources)
    def remove_source(self, name: str, id: str) -> None:
        if self.station(name).is_up and self.station(name).registry.get(id):
            self.station(name).remove_source(id, self.network.now)

    @rule(name=nodes, x=coordinates, y=coordinates)
    def walk(self, name: str, x: int, y: int) -> None:
        if self.station(name).is_up:
            self.station(name).move_subscriber(f"ann-{name}", x, y, self.network.now)

    @rule(name=nodes, text=st.sampled_from(TEXTS))
    def subscribe(self, name: str, text: str) -> None:
        if self.station(name).is_up and len(self.station(name).queries) < 4:
            self.count += 1
            self.station(name).subscribe(f"p{self.count}", f"ann-{name}", text, self.network.now)

    @rule(name=nodes, at=st.integers(0, 3))
    def unsubscribe(self, name: str, at: int) -> None:
        ids = list(self.station(name).queries)
        if self.station(name).is_up and at < len(ids):
            self.station(name).unsubscribe(ids[at], self.network.now)

    @rule(name=nodes)
    def stop(self, name: str) -> None:
        self.station(name).stop()

    @rule()
    @precondition(lambda self: len(self.network.up()) < len(NODES))
    def start(self) -> None:
        next(station for station in self.network.stations.values() if not station.is_up).start()

    @rule(name=nodes, at=st.integers(0, 1))
    def expel(self, name: str, at: int) -> None:
        peers = sorted(self.station(name).peers)
        if self.station(name).is_up and at < len(peers):
            self.station(name).expel(peers[at], self.network.now)

    @rule(at=st.integers(0, 5), restarted=st.booleans())
    @precondition(lambda self: self.apart())
    def invite_again(self, at: int, restarted: bool) -> None:
        """A node that rejoins may have restarted, and may have removed the other as well."""
        pairs = self.apart()
        one, two = pairs[at % len(pairs)]
        if restarted:
            two.stop()
            two.start()
        one.invite(two.name)
        two.invite(one.name)

    @rule(steps=st.integers(1, 80))
    def wait(self, steps: int) -> None:
        for _ in range(steps):
            self.network.step()

    @rule()
    @precondition(lambda self: self.count)
    def converge(self) -> None:
        self.network.converge()
        for station in self.network.up():
            bound = {id: sources for id, sources in station.bound().items() if sources}
            assert bound == {id: sources for id, sources in expected(self.network, station).items() if sources}
            self.check_demand(station)
            self.check_leaks(station)

    def check_demand(self, station: Station) -> None:
        """A source is demanded by peers exactly if a reachable one is bound to it or may match its events."""
        linked = self.network.linked(station)
        silent = len(linked) < len(NODES) - 1
        for announcement in station.registry:
            named = any(
                split_name(source) == (announcement.source, station.name)
                for other in linked
                for bound in other.bound().values()
                for source in bound
            )
            could = (announcement.attributes or {}).get("context") == "light" and any(
                plan_of(query) == "match" and id in other.requesting
                for other in linked
                for id, (_, query) in other.queries.items()
            )
            demanded = station.backbone.announcer.is_demanded(announcement)
            assert demanded or not (named or could)
            assert not demanded or named or could or silent  # unreachable peers keep their demand

    def check_leaks(self, station: Station) -> None:
        """An announcer has exactly the requests of the subscriptions of reachable peers."""
        others = self.network.linked(station)
        if len(others) == len(NODES) - 1:
            made = sum(len({request_of(other.queries[id][1]) for id in other.requesting}) for other in others)
            assert station.backbone.announcer.requests == made

    @rule()
    def reconnect(self) -> None:
        """Start all nodes and reconnect them."""
        while len(self.network.up()) < len(NODES):
            self.start()
        for one, two in self.apart():
            one.invite(two.name)

    def teardown(self) -> None:
        if hasattr(self, "network"):
            self.converge()
            self.reconnect()
            self.converge()


TestBackbone = BackboneModel.TestCase
TestBackbone.settings = brief()
