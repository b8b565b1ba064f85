"""Whatever the network does and whoever dies: once settled, every binding is the one brute force would choose."""

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
        asked=st.lists(st.tuples(nodes, st.sampled_from(TEXTS)), min_size=3, max_size=8),
    )
    def begin(
        self, seed: int, known: list[tuple[str, str, dict[str, str], int, int]], asked: list[tuple[str, str]]
    ) -> None:
        """Most of what goes wrong needs a few of each."""
        self.network = Network({name: Station(name, NODES) for name in NODES}, random.Random(seed))
        self.count = 0
        for name, station in self.network.stations.items():
            station.move_subscriber(f"ann-{name}", 3, 3, 0)
        for source in known:
            self.put_source(*source)
        for name, text in asked:
            self.subscribe(name, text)

    def station(self, name: str) -> Station:
        return self.network.stations[name]

    def apart(self) -> list[tuple[Station, Station]]:
        """Who has expelled whom; both run."""
        up = self.network.up()
        return [(one, two) for one in up for two in up if one is not two and two.name not in one.peers]

    @rule(name=nodes, id=sources, attributes=contexts, x=coordinates, y=coordinates)
    def put_source(self, name: str, id: str, attributes: dict[str, str], x: int, y: int) -> None:
        if self.station(name).is_up:
            self.station(name).put_source(id, attributes, x, y, self.network.now)

    @rule(name=nodes, id=sources, x=coordinates, y=coordinates, late=st.integers(0, 200))
    def move_source(self, name: str, id: str, x: int, y: int, late: int) -> None:
        """Also to where it was a while ago, which counts if nothing later is known."""
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
    def die(self, name: str) -> None:
        self.station(name).stop()

    @rule()
    @precondition(lambda self: len(self.network.up()) < len(NODES))
    def come_back(self) -> None:
        next(station for station in self.network.stations.values() if not station.is_up).start()

    @rule(name=nodes, at=st.integers(0, 1))
    def expel(self, name: str, at: int) -> None:
        peers = sorted(self.station(name).peers)
        if self.station(name).is_up and at < len(peers):
            self.station(name).expel(peers[at], self.network.now)

    @rule(at=st.integers(0, 5), anew=st.booleans())
    @precondition(lambda self: self.apart())
    def invite_again(self, at: int, anew: bool) -> None:
        """Who joins again may have been started again for it; and may have expelled the other as well."""
        pairs = self.apart()
        one, two = pairs[at % len(pairs)]
        if anew:
            two.stop()
            two.start()
        one.invite(two.name)
        two.invite(one.name)

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
        """A source is wanted elsewhere if and only if a node that is heard is bound to it or could match its events."""
        linked = self.network.linked(station)
        silent = len(linked) < len(NODES) - 1
        for news in station.registry:
            named = any(
                split_name(source) == (news.source, station.name)
                for other in linked
                for bound in other.bound().values()
                for source in bound
            )
            could = (news.attributes or {}).get("context") == "light" and any(
                plan_of(query) == "match" and id in other.looking
                for other in linked
                for id, (_, query) in other.queries.items()
            )
            wanted = station.backbone.announcer.is_demanded(news)
            assert wanted or not (named or could)
            assert not wanted or named or could or silent  # the silent want what they wanted

    def check_leaks(self, station: Station) -> None:
        """A registry has those requests of nodes that are heard that their subscriptions make, and no others."""
        others = self.network.linked(station)
        if len(others) == len(NODES) - 1:
            made = sum(len({request_of(other.queries[id][1]) for id in other.looking}) for other in others)
            assert station.backbone.announcer.requests == made

    @rule()
    def make_whole(self) -> None:
        """All run, and all talk with all; none is started again that runs."""
        while len(self.network.up()) < len(NODES):
            self.come_back()
        for one, two in self.apart():
            one.invite(two.name)

    def teardown(self) -> None:
        if hasattr(self, "network"):
            self.settle()
            self.make_whole()
            self.settle()


TestBackbone = BackboneModel.TestCase
TestBackbone.settings = brief()
