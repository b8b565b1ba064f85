"""Standing requests and announcements between two nodes, over an unreliable network."""

from __future__ import annotations

import itertools
import random

import pytest
from backbones import Registry, source_request

from roamcast.bind.discovery.announcer import Announcer
from roamcast.bind.discovery.backbone import Backbone
from roamcast.bind.discovery.messages import (
    DiscoveryInterest,
    DiscoveryRequest,
    DiscoveryResponse,
    SourceAnnouncement,
    request_of,
)
from roamcast.bind.discovery.requester import PeerRequester
from roamcast.bind.lcesm.messages import (
    EntityMoved,
    PositionForgotten,
    SourceChanged,
    SourceDemanded,
    SourceIdle,
    SourceMessage,
    SourceRegistered,
    SourceRemoved,
)
from roamcast.errors import NotFoundError
from roamcast.lacl import check, parse
from roamcast.model import Position, split_name

TIMEOUT, CAPACITY = 40, 1_000
NOISE, LIGHT, ALL = (
    source_request("bind", "&context = noise"),
    source_request("bind", "&context = light"),
    source_request("bind", ""),
)
CONTEXTS = ({"context": "noise"}, {"context": "light"}, {"floor": 1}, {"floor": True})


class Mirror:
    """The sources a binder would know after the messages; each message must be valid for it."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[object, tuple[float, float]]] = {}

    def take(self, messages: list[SourceMessage]) -> None:
        for message in messages:
            match message:
                case SourceRegistered(id, attributes, position):
                    assert id not in self.known
                    assert position is not None
                    assert position.entity == id
                    self.known[id] = _typed(attributes), (position.x, position.y)
                case SourceChanged(id, attributes):
                    self.known[id] = _typed(attributes), self.known[id][1]
                case EntityMoved(id, x, y):
                    self.known[id] = self.known[id][0], (x, y)
                case SourceRemoved(id):
                    del self.known[id]
                case _:
                    raise AssertionError(message)


def _typed(attributes: object) -> str:
    return repr(attributes)


class Pair:
    """A requester and an announcer, which may drop it. Both may restart, and messages may be delayed for long."""

    def __init__(self, seed: int, max_size: int = 1_000) -> None:
        self.random = random.Random(seed)
        self.now = 1
        self.max_size = max_size
        self.sessions = [0, 0]
        self.registry = Registry()
        self.interest = DiscoveryInterest()
        self.in_flight: list[DiscoveryRequest | DiscoveryResponse] = []
        self.start_requester()
        self.start_announcer()

    def start_requester(self) -> None:
        self.sessions[0] += 1
        self.requester = PeerRequester("here", self.sessions[0], "there", TIMEOUT, CAPACITY, itertools.count())
        self.mirror = Mirror()
        self.requester.set_interest(self.interest)

    def start_announcer(self) -> None:
        self.sessions[1] += 1
        self.announcer = Announcer("there", self.sessions[1], self.registry, self.max_size)

    def deliver(self, message: DiscoveryRequest | DiscoveryResponse) -> None:
        if isinstance(message, DiscoveryRequest):
            self.in_flight.append(self.announcer.respond(message))
        else:
            self.mirror.take(self.requester.receive(message, self.now))

    def step(self) -> None:
        self.now += 1
        match self.random.randint(0, 19):
            case 0 | 1 | 2 | 3 | 4 | 5:
                self.in_flight.append(self.requester.request())
            case 6 | 7 | 8 | 9 | 10 | 11 if self.in_flight:
                at = self.random.randrange(len(self.in_flight))
                twice = self.random.random() < 0.3
                self.deliver(self.in_flight[at] if twice else self.in_flight.pop(at))
            case 12 if self.in_flight:
                self.in_flight.pop(self.random.randrange(len(self.in_flight)))
            case 13 | 14:
                self.change()
            case 15:
                requests = frozenset(self.random.sample([NOISE, LIGHT, ALL], self.random.randint(0, 2)))
                self.interest = DiscoveryInterest(
                    requests, frozenset(self.random.sample("abc", self.random.randint(0, 2)))
                )
                self.requester.set_interest(self.interest)
            case 16 if self.random.random() < 0.3:
                self.start_requester()
            case 17 if self.random.random() < 0.3:
                self.start_announcer()
            case 18:
                self.now += self.random.choice([1, TIMEOUT])
            case 19 if self.random.random() < 0.3:
                self.announcer.remove_peer("here")
            case _:
                pass
        self.mirror.take(self.requester.expire(self.now))

    def change(self) -> None:
        id = self.random.choice("abcd")
        if id in self.registry.sources and self.random.random() < 0.3:
            del self.registry.sources[id]
        else:
            at = Position(id, self.random.randint(0, 3), self.random.randint(0, 3), self.now)
            self.registry.sources[id] = SourceAnnouncement(id, self.random.choice(CONTEXTS), at)
        self.announcer.announce([id])

    def converge(self) -> None:
        """Deliver messages in flight, in any order, then poll without losses."""
        self.random.shuffle(self.in_flight)
        while self.in_flight:
            self.deliver(self.in_flight.pop())
        for _ in range(8):
            self.now += 1
            response = self.announcer.respond(self.requester.request())
            self.mirror.take(self.requester.receive(response, self.now))

    def expected(self) -> dict[str, tuple[object, tuple[float, float]]]:
        return {
            f"{source.source}@there": (_typed(source.attributes), (source.position.x, source.position.y))
            for source in self.registry
            if source.position is not None
            and any(request.accepts(source.attributes or {}) for request in self.interest.requests)
        }


@pytest.mark.parametrize("seed", range(60))
def test_the_requester_converges_to_the_registered_sources(seed: int) -> None:
    """Despite lost, repeated, delayed and reordered messages, restarts and drops; in one response or many."""
    pair = Pair(seed, max_size=1 + seed % 3)
    for _ in range(60):
        for _ in range(pair.random.randint(1, 40)):
            pair.step()
        pair.converge()
        assert pair.mirror.known == pair.expected()
        assert {f"{id}@there" for id in pair.requester.sources} == set(pair.mirror.known)
        assert pair.requester.is_reachable
        ask = pair.requester.request()
        response = pair.announcer.respond(ask)
        assert (ask.interest, response.announcements, response.more, response.cursor) == (None, (), False, ask.cursor)
        assert pair.announcer.requests == len(pair.interest.requests)
        for source in pair.registry:
            assert pair.announcer.is_demanded(source) == (source.source in pair.interest.demanded)


def test_a_new_request_takes_one_round_trip() -> None:
    """After one request and one response all admitted sources are known."""
    pair = Pair(1)
    for id in "abc":
        pair.registry.sources[id] = SourceAnnouncement(id, CONTEXTS[0], Position(id, 0, 0, 1))
    assert pair.requester.set_interest(DiscoveryInterest(frozenset([NOISE])))
    pair.mirror.take(pair.requester.receive(pair.announcer.respond(pair.requester.request()), 2))
    assert sorted(pair.mirror.known) == ["a@there", "b@there", "c@there"]
    assert pair.requester.request().interest is None


def test_a_subscription_sends_one_request_to_each_of_fifty_nodes() -> None:
    """When it ends, no standing request is left."""
    names = [f"n{number:02}" for number in range(50)]
    registries = {name: Registry() for name in names}
    for name, registry in registries.items():
        registry.sources["mic"] = SourceAnnouncement("mic", {"context": "noise"}, Position("mic", int(name[1:]), 0, 1))
    nodes = {name: Backbone(name, 1, registries[name], TIMEOUT) for name in names}
    for node in nodes.values():
        for other in names:
            node.add_peer(other)
    query = check(parse("Select Where &context = noise and &location in nearest"))
    here = nodes["n00"]
    for count, known in ((1, 49), (-1, 0)):
        to_poll = here.add_requests(request_of(query), count)
        assert sorted(to_poll) == names[1:]
        messages = []
        for other in to_poll:
            messages += here.receive(nodes[other].announcer.respond(here.requester(other).request()), 5)
        assert len(messages) == 49
        assert len(list(here.remote_sources())) == known
        assert sum(node.announcer.requests for node in nodes.values()) == known


def test_equivalent_conditions_share_one_request() -> None:
    """However they are written, and whatever the choice among the sources."""
    texts = (
        "Select Where &a = 1 and &b = 2 and &location in nearest",
        "Select nearof() Where &b = 2 and &location in rang:loc(5) and &a = 1",
    )
    assert len({request_of(check(parse(text))) for text in texts}) == 1
    node = Backbone("here", 1, Registry(), TIMEOUT)
    node.add_peer("there")
    polls = [bool(node.add_requests(request_of(check(parse(text))), times)) for times in (1, -1) for text in texts]
    assert polls == [True, False, False, True]


def test_match_requests_demand_sources_without_announcing_them() -> None:
    """Terms and regions belong to events: only attributes can rule a source out."""
    registry = Registry()
    for id, context in (("a", "noise"), ("b", "light")):
        registry.sources[id] = SourceAnnouncement(id, {"context": context}, Position(id, 0, 0, 1))
    announcer = Announcer("there", 1, registry)
    where = '(&context = noise or not &terms has ("x") and &context = dark) and &location in box(5, 5, 6, 6)'
    requester = PeerRequester("here", 1, "there", TIMEOUT, CAPACITY, itertools.count())
    requester.set_interest(DiscoveryInterest(frozenset([request_of(check(parse(f"Select all() Where {where}")))])))
    assert requester.receive(announcer.respond(requester.request()), 1) == []
    assert [announcer.is_demanded(source) for source in registry] == [True, False]


def test_demand_is_sent_to_the_node_of_the_source() -> None:
    """And to no other node; demand for local sources is not sent at all."""
    node = Backbone("here", 1, Registry(), TIMEOUT)
    for other in ("east", "west"):
        node.add_peer(other)
    assert node.apply_demand([SourceDemanded("a@east", 1), SourceDemanded("b", 1)]) == ["east"]
    asks = {other: node.requester(other).request().interest for other in node.peers}
    assert {other: set(ask.demanded) for other, ask in asks.items() if ask} == {"east": {"a"}, "west": set()}
    assert node.apply_demand([SourceIdle("a@east", 2), SourceDemanded("b@gone", 2)]) == ["east"]


def test_removing_a_peer_removes_its_sources_and_requests() -> None:
    """Nothing of it is left."""
    registry = Registry()
    there, here = Backbone("there", 1, registry, TIMEOUT), Backbone("here", 1, Registry(), TIMEOUT)
    registry.sources["a"] = SourceAnnouncement("a", {}, Position("a", 0, 0, 1))
    here.add_peer("there")
    here.add_requests(request_of(check(parse("Select Where &location in nearest"))))
    here.receive(there.announcer.respond(here.requester("there").request()), 1)
    assert here.remove_peer("there") == [SourceRemoved("a@there")]
    assert here.peers == ()
    there.announcer.remove_peer("here")
    assert there.announcer.requests == 0
    with pytest.raises(NotFoundError):
        here.requester("there")


def test_a_requester_repeats_its_interest_when_the_announcer_dropped_it() -> None:
    """Without a restart of either node."""
    pair = Pair(1)
    pair.registry.sources["a"] = SourceAnnouncement("a", CONTEXTS[0], Position("a", 0, 0, 1))
    pair.requester.set_interest(DiscoveryInterest(frozenset([NOISE])))
    pair.converge()
    for x in (1, 2, 3):
        pair.registry.sources["a"] = SourceAnnouncement("a", CONTEXTS[0], Position("a", x, 0, 1 + x))
        pair.announcer.announce(["a"])
        pair.converge()
    pair.announcer.remove_peer("here")
    pair.registry.sources["b"] = SourceAnnouncement("b", CONTEXTS[0], Position("b", 0, 0, 9))
    pair.converge()
    assert pair.announcer.requests == 1
    assert sorted(pair.mirror.known) == ["a@there", "b@there"]


def test_a_dropped_requester_gets_all_sources_although_a_response_is_lost() -> None:
    """Its cursor is still from before it was dropped."""
    pair = Pair(1)
    pair.registry.sources["a"] = SourceAnnouncement("a", CONTEXTS[0], Position("a", 0, 0, 1))
    pair.requester.set_interest(DiscoveryInterest(frozenset([NOISE])))
    pair.converge()
    pair.announcer.remove_peer("here")
    del pair.registry.sources["a"]
    pair.mirror.take(pair.requester.receive(pair.announcer.respond(pair.requester.request()), 9))
    assert pair.announcer.respond(pair.requester.request()).version > 0  # the lost response
    pair.converge()
    assert pair.mirror.known == {}


def test_a_dropped_requester_gets_all_sources_although_an_early_request_arrives_late() -> None:
    """That request has the interest, but an older cursor than the requester has now."""
    pair = Pair(1)
    pair.registry.sources["a"] = SourceAnnouncement("a", CONTEXTS[0], Position("a", 0, 0, 1))
    pair.requester.set_interest(DiscoveryInterest(frozenset([NOISE])))
    early = pair.requester.request()
    pair.converge()
    pair.announcer.remove_peer("here")
    del pair.registry.sources["a"]
    pair.deliver(early)
    pair.converge()
    assert pair.mirror.known == {}


def test_a_requester_that_expired_the_peer_ignores_earlier_responses() -> None:
    """They may have sources whose removal is not announced again."""
    pair = Pair(1)
    pair.registry.sources["a"] = SourceAnnouncement("a", CONTEXTS[0], Position("a", 0, 0, 1))
    pair.requester.set_interest(DiscoveryInterest(frozenset([NOISE])))
    pair.deliver(pair.requester.request())
    late = pair.in_flight[0]
    pair.converge()
    del pair.registry.sources["a"]
    pair.announcer.announce(["a"])
    pair.converge()
    pair.now += TIMEOUT
    pair.mirror.take(pair.requester.expire(pair.now))
    pair.deliver(late)
    pair.converge()
    assert pair.mirror.known == {}


def test_a_requester_repeats_its_interest_when_the_announcer_has_one_from_before_a_reset() -> None:
    """A late request gave it to the announcer, which had dropped the requester."""
    pair = Pair(1)
    pair.registry.sources["a"] = SourceAnnouncement("a", CONTEXTS[0], Position("a", 0, 0, 1))
    pair.requester.set_interest(DiscoveryInterest(frozenset([NOISE])))
    early = pair.requester.request()
    pair.converge()
    pair.now += TIMEOUT
    pair.mirror.take(pair.requester.expire(pair.now))
    pair.converge()
    assert sorted(pair.mirror.known) == ["a@there"]
    pair.announcer.remove_peer("here")
    del pair.registry.sources["a"]
    pair.deliver(early)
    pair.converge()
    assert pair.mirror.known == {}


@pytest.mark.parametrize("now", [None, Position("a", 5, 5, 3)])
def test_an_erased_position_is_erased_at_peers(now: Position | None) -> None:
    """It was erased, or replaced by an older one, which a plain move would not do."""
    pair = Pair(1)
    pair.registry.sources["a"] = SourceAnnouncement("a", CONTEXTS[0], Position("a", 0, 0, 7))
    pair.requester.set_interest(DiscoveryInterest(frozenset([NOISE])))
    pair.converge()
    pair.registry.sources["a"] = SourceAnnouncement("a", CONTEXTS[0], now)
    pair.announcer.announce(["a"])
    messages = pair.requester.receive(pair.announcer.respond(pair.requester.request()), pair.now)
    moves = [] if now is None else [EntityMoved("a@there", now.x, now.y, now.time)]
    assert messages == [PositionForgotten("a@there"), *moves]


def test_global_names_contain_the_node() -> None:
    """A name without a node is local."""
    assert [split_name(name) for name in ("a", "a@north")] == [("a", None), ("a", "north")]


def test_announcements_in_several_responses_take_effect_together() -> None:
    """No subscription is bound to the best of a part, and known sources stay until the last response."""
    pair = Pair(1, max_size=2)
    pair.requester.set_interest(DiscoveryInterest(frozenset([ALL])))
    for id in "abcd":
        pair.registry.sources[id] = SourceAnnouncement(id, CONTEXTS[0], Position(id, 0, 0, 1))
    assert pair.requester.receive(pair.announcer.respond(pair.requester.request()), 2) == []
    messages = pair.requester.receive(pair.announcer.respond(pair.requester.request()), 2)
    assert [message.id for message in messages if isinstance(message, SourceRegistered)] == [
        f"{id}@there" for id in "abcd"
    ]
    del pair.registry.sources["a"]
    pair.start_announcer()
    while (response := pair.announcer.respond(pair.requester.request())).version < 0 or response.more:
        assert pair.requester.receive(response, 3) == []
    assert pair.requester.receive(response, 3) == [SourceRemoved("a@there")]


def test_a_peer_that_rejoins_gets_the_current_requests() -> None:
    """Although it still has the earlier requests, and neither node restarted."""
    registry = Registry()
    for id, context in (("a", "noise"), ("b", "light")):
        registry.sources[id] = SourceAnnouncement(id, {"context": context}, Position(id, 0, 0, 1))
    there, here = Backbone("there", 1, registry, TIMEOUT), Backbone("here", 1, Registry(), TIMEOUT)
    here.add_peer("there")
    for request in (ALL, LIGHT, NOISE):
        here.add_requests(request)
    here.receive(there.announcer.respond(here.requester("there").request()), 1)
    here.remove_peer("there")
    here.add_requests(ALL, -1)
    here.add_requests(NOISE, -1)
    here.add_peer("there")
    for now in (2, 3):
        here.receive(there.announcer.respond(here.requester("there").request()), now)
    assert set(here.requester("there").sources) == {"b"}
    assert there.announcer.requests == 1
