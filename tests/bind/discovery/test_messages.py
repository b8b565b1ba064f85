"""Standing requests and announcements between two nodes, over a network that does what it likes."""

from __future__ import annotations

import itertools
import random

import pytest
from backbones import Registry

from roamcast.bind.discovery.announcer import Announcer
from roamcast.bind.discovery.backbone import Backbone
from roamcast.bind.discovery.messages import Answer, Ask, Interest, News, Request, request_of
from roamcast.bind.discovery.seeker import Seeker
from roamcast.bind.lcesm.messages import (
    Moved,
    PositionForgotten,
    SourceChanged,
    SourceMessage,
    SourceRegistered,
    SourceRemoved,
    Unwanted,
    Wanted,
)
from roamcast.errors import NotFoundError
from roamcast.lacl import check, parse
from roamcast.model import Position, local_name

LIMIT, ROOM = 40, 1_000
NOISE, LIGHT, ALL = Request("bind", "&context = noise"), Request("bind", "&context = light"), Request("bind", "")
CONTEXTS = ({"context": "noise"}, {"context": "light"}, {"floor": 1}, {"floor": True})


class Mirror:
    """What a binder would know after the messages it was given; each must make sense to it."""

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
                case Moved(id, x, y):
                    self.known[id] = self.known[id][0], (x, y)
                case SourceRemoved(id):
                    del self.known[id]
                case _:
                    raise AssertionError(message)


def _typed(attributes: object) -> str:
    return repr(attributes)


class Pair:
    """A node that asks and one that is asked; both may be started again, and every message may be held for long."""

    def __init__(self, seed: int, most: int = 1_000) -> None:
        self.random = random.Random(seed)
        self.now = 1
        self.most = most
        self.sessions = [0, 0]
        self.registry = Registry()
        self.interest = Interest()
        self.under_way: list[Ask | Answer] = []
        self.start_asker()
        self.start_asked()

    def start_asker(self) -> None:
        self.sessions[0] += 1
        self.seeker = Seeker("here", self.sessions[0], "there", LIMIT, ROOM, itertools.count())
        self.mirror = Mirror()
        self.seeker.look_for(self.interest)

    def start_asked(self) -> None:
        self.sessions[1] += 1
        self.announcer = Announcer("there", self.sessions[1], self.registry, self.most)

    def deliver(self, message: Ask | Answer) -> None:
        if isinstance(message, Ask):
            self.under_way.append(self.announcer.ask(message))
        else:
            self.mirror.take(self.seeker.hear(message, self.now))

    def step(self) -> None:
        self.now += 1
        match self.random.randint(0, 19):
            case 0 | 1 | 2 | 3 | 4 | 5:
                self.under_way.append(self.seeker.ask())
            case 6 | 7 | 8 | 9 | 10 | 11 if self.under_way:
                at = self.random.randrange(len(self.under_way))
                twice = self.random.random() < 0.3
                self.deliver(self.under_way[at] if twice else self.under_way.pop(at))
            case 12 if self.under_way:
                self.under_way.pop(self.random.randrange(len(self.under_way)))
            case 13 | 14:
                self.change()
            case 15:
                requests = frozenset(self.random.sample([NOISE, LIGHT, ALL], self.random.randint(0, 2)))
                self.interest = Interest(requests, frozenset(self.random.sample("abc", self.random.randint(0, 2))))
                self.seeker.look_for(self.interest)
            case 16 if self.random.random() < 0.3:
                self.start_asker()
            case 17 if self.random.random() < 0.3:
                self.start_asked()
            case 18:
                self.now += self.random.choice([1, LIMIT])
            case _:
                pass
        self.mirror.take(self.seeker.lapse(self.now))

    def change(self) -> None:
        id = self.random.choice("abcd")
        if id in self.registry.sources and self.random.random() < 0.3:
            del self.registry.sources[id]
        else:
            at = Position(id, self.random.randint(0, 3), self.random.randint(0, 3), self.now)
            self.registry.sources[id] = News(id, self.random.choice(CONTEXTS), at)
        self.announcer.changed([id])

    def settle(self) -> None:
        """Nothing is lost any more; what is under way comes first, in any order."""
        self.random.shuffle(self.under_way)
        while self.under_way:
            self.deliver(self.under_way.pop())
        for _ in range(8):
            self.now += 1
            answer = self.announcer.ask(self.seeker.ask())
            self.mirror.take(self.seeker.hear(answer, self.now))

    def expected(self) -> dict[str, tuple[object, tuple[float, float]]]:
        return {
            f"{news.source}@there": (_typed(news.attributes), (news.position.x, news.position.y))
            for news in self.registry
            if news.position is not None
            and any(request.admits(news.attributes or {}) for request in self.interest.requests)
        }


@pytest.mark.parametrize("seed", range(60))
def test_what_is_known_is_what_there_is_once_settled(seed: int) -> None:
    """However messages are lost, repeated, held and reordered, and whoever is started again; in one answer or many."""
    pair = Pair(seed, most=1 + seed % 3)
    for _ in range(60):
        for _ in range(pair.random.randint(1, 40)):
            pair.step()
        pair.settle()
        assert pair.mirror.known == pair.expected()
        assert {f"{id}@there" for id in pair.seeker.sources} == set(pair.mirror.known)
        assert pair.seeker.is_up
        ask = pair.seeker.ask()
        answer = pair.announcer.ask(ask)
        assert (ask.interest, answer.news, answer.more, answer.heard) == (None, (), False, ask.heard)
        assert pair.announcer.requests == len(pair.interest.requests)
        for news in pair.registry:
            assert pair.announcer.is_wanted(news) == (news.source in pair.interest.wanted)


def test_a_new_request_takes_one_round_trip() -> None:
    """One question, one answer, and all fitting sources are known."""
    pair = Pair(1)
    for id in "abc":
        pair.registry.sources[id] = News(id, CONTEXTS[0], Position(id, 0, 0, 1))
    assert pair.seeker.look_for(Interest(frozenset([NOISE])))
    pair.mirror.take(pair.seeker.hear(pair.announcer.ask(pair.seeker.ask()), 2))
    assert sorted(pair.mirror.known) == ["a@there", "b@there", "c@there"]
    assert pair.seeker.ask().interest is None


def test_with_fifty_nodes_a_subscription_asks_each_once() -> None:
    """And when it ends, nobody has a standing request any more."""
    names = [f"n{number:02}" for number in range(50)]
    registries = {name: Registry() for name in names}
    for name, registry in registries.items():
        registry.sources["mic"] = News("mic", {"context": "noise"}, Position("mic", int(name[1:]), 0, 1))
    nodes = {name: Backbone(name, 1, registries[name], LIMIT) for name in names}
    for node in nodes.values():
        for other in names:
            node.join(other)
    query = check(parse("Select Where &context = noise and &location in nearest"))
    here = nodes["n00"]
    for times, known in ((1, 49), (-1, 0)):
        urgent = here.look_for(request_of(query), times)
        assert sorted(urgent) == names[1:]
        messages = []
        for other in urgent:
            messages += here.hear(nodes[other].announcer.ask(here.seeker(other).ask()), 5)
        assert len(messages) == 49
        assert len(list(here.sources())) == known
        assert sum(node.announcer.requests for node in nodes.values()) == known


def test_equal_conditions_are_one_request() -> None:
    """Written differently, chosen differently, for many subscriptions."""
    texts = (
        "Select Where &a = 1 and &b = 2 and &location in nearest",
        "Select nearof() Where &b = 2 and &location in rang:loc(5) and &a = 1",
    )
    assert len({request_of(check(parse(text))) for text in texts}) == 1
    node = Backbone("here", 1, Registry(), LIMIT)
    node.join("there")
    asked = [bool(node.look_for(request_of(check(parse(text))), times)) for times in (1, -1) for text in texts]
    assert asked == [True, False, False, True]


def test_what_the_match_plan_could_admit_is_wanted_and_not_announced() -> None:
    """Terms and regions are the event's own: only attributes can rule a source out."""
    registry = Registry()
    for id, context in (("a", "noise"), ("b", "light")):
        registry.sources[id] = News(id, {"context": context}, Position(id, 0, 0, 1))
    announcer = Announcer("there", 1, registry)
    where = '(&context = noise or not &terms has ("x") and &context = dark) and &location in box(5, 5, 6, 6)'
    seeker = Seeker("here", 1, "there", LIMIT, ROOM, itertools.count())
    seeker.look_for(Interest(frozenset([request_of(check(parse(f"Select all() Where {where}")))])))
    assert seeker.hear(announcer.ask(seeker.ask()), 1) == []
    assert [announcer.is_wanted(news) for news in registry] == [True, False]


def test_demand_is_told_to_the_node_that_has_the_source() -> None:
    """And to no other; what is wanted here at home is nobody else's business."""
    node = Backbone("here", 1, Registry(), LIMIT)
    for other in ("east", "west"):
        node.join(other)
    assert node.demand([Wanted("a@east", 1), Wanted("b", 1)]) == ["east"]
    asks = {other: node.seeker(other).ask().interest for other in node.nodes}
    assert {other: set(ask.wanted) for other, ask in asks.items() if ask} == {"east": {"a"}, "west": set()}
    assert node.demand([Unwanted("a@east", 2), Wanted("b@gone", 2)]) == ["east"]


def test_who_leaves_takes_its_sources_and_its_requests_along() -> None:
    """As if it had never been there."""
    registry = Registry()
    there, here = Backbone("there", 1, registry, LIMIT), Backbone("here", 1, Registry(), LIMIT)
    registry.sources["a"] = News("a", {}, Position("a", 0, 0, 1))
    here.join("there")
    here.look_for(request_of(check(parse("Select Where &location in nearest"))))
    here.hear(there.announcer.ask(here.seeker("there").ask()), 1)
    assert here.leave("there") == [SourceRemoved("a@there")]
    assert here.nodes == ()
    there.announcer.leave("here")
    assert there.announcer.requests == 0
    with pytest.raises(NotFoundError):
        here.seeker("there")


def test_who_was_forgotten_says_again_what_it_looks_for() -> None:
    """Also where nobody was started again."""
    pair = Pair(1)
    pair.registry.sources["a"] = News("a", CONTEXTS[0], Position("a", 0, 0, 1))
    pair.seeker.look_for(Interest(frozenset([NOISE])))
    pair.settle()
    for x in (1, 2, 3):
        pair.registry.sources["a"] = News("a", CONTEXTS[0], Position("a", x, 0, 1 + x))
        pair.announcer.changed(["a"])
        pair.settle()
    pair.announcer.leave("here")
    pair.registry.sources["b"] = News("b", CONTEXTS[0], Position("b", 0, 0, 9))
    pair.settle()
    assert pair.announcer.requests == 1
    assert sorted(pair.mirror.known) == ["a@there", "b@there"]


@pytest.mark.parametrize("now", [None, Position("a", 5, 5, 3)])
def test_a_position_that_is_taken_back_is_so_elsewhere(now: Position | None) -> None:
    """It was forgotten, or an older one counts again: a move there would be ignored."""
    pair = Pair(1)
    pair.registry.sources["a"] = News("a", CONTEXTS[0], Position("a", 0, 0, 7))
    pair.seeker.look_for(Interest(frozenset([NOISE])))
    pair.settle()
    pair.registry.sources["a"] = News("a", CONTEXTS[0], now)
    pair.announcer.changed(["a"])
    messages = pair.seeker.hear(pair.announcer.ask(pair.seeker.ask()), pair.now)
    moves = [] if now is None else [Moved("a@there", now.x, now.y, now.time)]
    assert messages == [PositionForgotten("a@there"), *moves]


def test_names_say_whose_a_source_is() -> None:
    """Without a node it is one's own."""
    assert [local_name(name) for name in ("a", "a@north")] == [("a", None), ("a", "north")]


def test_what_takes_several_answers_counts_when_all_are_here() -> None:
    """Nobody is to be bound to the best of a part; of what was known before nothing is gone until then."""
    pair = Pair(1, most=2)
    pair.seeker.look_for(Interest(frozenset([ALL])))
    for id in "abcd":
        pair.registry.sources[id] = News(id, CONTEXTS[0], Position(id, 0, 0, 1))
    assert pair.seeker.hear(pair.announcer.ask(pair.seeker.ask()), 2) == []
    told = pair.seeker.hear(pair.announcer.ask(pair.seeker.ask()), 2)
    assert [message.id for message in told if isinstance(message, SourceRegistered)] == [f"{id}@there" for id in "abcd"]
    del pair.registry.sources["a"]
    pair.start_asked()
    while (answer := pair.announcer.ask(pair.seeker.ask())).version < 0 or answer.more:
        assert pair.seeker.hear(answer, 3) == []
    assert pair.seeker.hear(answer, 3) == [SourceRemoved("a@there")]


def test_who_is_expelled_and_invited_again_is_asked_for_what_is_looked_for_now() -> None:
    """Though it still has the requests of before, and neither of the two was started again."""
    registry = Registry()
    for id, context in (("a", "noise"), ("b", "light")):
        registry.sources[id] = News(id, {"context": context}, Position(id, 0, 0, 1))
    there, here = Backbone("there", 1, registry, LIMIT), Backbone("here", 1, Registry(), LIMIT)
    here.join("there")
    for request in (ALL, LIGHT, NOISE):
        here.look_for(request)
    here.hear(there.announcer.ask(here.seeker("there").ask()), 1)
    here.leave("there")
    here.look_for(ALL, -1)
    here.look_for(NOISE, -1)
    here.join("there")
    for now in (2, 3):
        here.hear(there.announcer.ask(here.seeker("there").ask()), now)
    assert set(here.seeker("there").sources) == {"b"}
    assert there.announcer.requests == 1
