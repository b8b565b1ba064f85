"""Whatever the network does and whoever dies: once settled, every binding is the one brute force would choose."""

from __future__ import annotations

import random

from backbones import Network, Station, expected
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from roamcast.model import local_name

NODES = ("east", "north", "west")
TEXTS = (
    "Select Where &location in nearest",
    "Select Where &context = noise and &location in nearest",
    "Select Where &context = noise and &location in nearest(2)",
    "Select nearof() Where not &context = light and &location in rang:loc(3)",
    "Select remoteof() Where &context in (noise, light) and &location in rang:loc(3)",
    "Select all() Where &context = light and &location in box(0, 0, 9, 9)",
)

nodes = st.sampled_from(NODES)
coordinates = st.integers(0, 7)
sources = st.sampled_from(["a", "b", "c"])
contexts = st.sampled_from([{}, {"context": "noise"}, {"context": "light"}])


class BackboneModel(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.network = Network({name: Station(name, NODES) for name in NODES}, random.Random(seed))
        self.count = 0
        for name, station in self.network.stations.items():
            station.move_subscriber(f"ann-{name}", 3, 3, 0)

    def station(self, name: str) -> Station:
        return self.network.stations[name]

    @rule(name=nodes, id=sources, attributes=contexts, x=coordinates, y=coordinates)
    def put_source(self, name: str, id: str, attributes: dict[str, str], x: int, y: int) -> None:
        if self.station(name).is_up:
            self.station(name).put_source(id, attributes, x, y, self.network.now)

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
    def die(self, name: str) -> None:
        self.station(name).stop()

    @rule(name=nodes)
    def come_back(self, name: str) -> None:
        if not self.station(name).is_up:
            self.station(name).start()

    @rule(moments=st.integers(1, 80))
    def wait(self, moments: int) -> None:
        for _ in range(moments):
            self.network.step()

    @rule()
    @precondition(lambda self: self.count)
    def settle(self) -> None:
        self.network.settle()
        for station in self.network.up():
            found = {id: sources for id, sources in station.bound().items() if sources}
            assert found == {id: sources for id, sources in expected(self.network, station).items() if sources}
            self.check_demand(station)
            self.check_leaks(station)

    def check_demand(self, station: Station) -> None:
        """A source is wanted elsewhere if and only if a node that runs is bound to it, or could match its events."""
        silent = [other for other in self.network.stations.values() if not other.is_up]
        for news in station.registry:
            named = any(
                local_name(source) == (news.source, station.name)
                for other in self.network.up()
                for bound in other.bound().values()
                for source in bound
            )
            could = (news.attributes or {}).get("context") == "light" and any(
                query.select.function == "all"
                for other in self.network.up()
                if other is not station
                for _, query in other.queries.values()
            )
            wanted = station.backbone.announcer.is_wanted(news)
            assert wanted or not (named or could)
            assert not wanted or named or could or silent  # the silent want what they wanted

    def check_leaks(self, station: Station) -> None:
        """A registry has those requests of nodes that run that their subscriptions make, and no others."""
        others = [other for other in self.network.up() if other is not station]
        if len(others) == len(NODES) - 1:
            made = sum(len({str(query.source_expression) + str(query.select.function == "all")
                            for _, query in other.queries.values()}) for other in others)  # fmt: skip
            assert station.backbone.announcer.requests <= made

    def teardown(self) -> None:
        if hasattr(self, "network"):
            self.settle()


TestBackbone = BackboneModel.TestCase
TestBackbone.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)
