"""The capacity of a requester: if a peer has more sources than that, none of them is known."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from backbones import Registry, source_request

from roamcast.bind.discovery.announcer import Announcer
from roamcast.bind.discovery.messages import DiscoveryInterest, SourceAnnouncement
from roamcast.bind.discovery.requester import PeerRequester
from roamcast.bind.lcesm.messages import SourceRegistered, SourceRemoved
from roamcast.model import Position

TIMEOUT, CAPACITY = 10**9, 5
ALL, LIGHT = source_request("bind", ""), source_request("bind", "&context = light")
FIRE = source_request("match", "&context = fire")
PAUSE = 60_000_000


class Pair:
    """A requester and an announcer that announces two sources in a response."""

    def __init__(self, *ids: str) -> None:
        self.registry = Registry()
        self.put(*ids)
        self.session = 0
        self.now = 1
        self.start_announcer()
        self.requester = PeerRequester("here", 1, "there", TIMEOUT, CAPACITY, itertools.count())
        self.requester.set_interest(DiscoveryInterest(frozenset([ALL, FIRE]), frozenset("a")))
        self.messages: list[object] = []

    def start_announcer(self) -> None:
        self.session += 1
        self.announcer = Announcer("there", self.session, self.registry, 2)

    def put(self, *ids: str, context: str = "noise") -> None:
        for id in ids:
            self.registry.sources[id] = SourceAnnouncement(id, {"context": context}, Position(id, 0, 0, 1))

    def change(self, *ids: str, removed: Iterable[str] = ()) -> None:
        self.put(*ids)
        for id in removed:
            del self.registry.sources[id]
        self.announcer.announce([*removed, *ids])

    def poll(self) -> str:
        """Poll until nothing is pending. Returns the known ids."""
        more = True
        while more:
            self.messages += self.requester.expire(self.now)
            response = self.announcer.respond(self.requester.request())
            self.messages += self.requester.receive(response, self.now)
            more = response.more or response.version < 0 or self.requester.request().interest is not None
        return "".join(sorted(self.requester.sources))


def test_sources_up_to_the_capacity_are_known() -> None:
    """Also when some are removed as others are added."""
    pair = Pair(*"abcde")
    assert pair.poll() == "abcde"
    pair.change("f", "g", removed="ab")
    assert pair.poll() == "cdefg"
    assert not pair.requester.is_full


def test_above_the_capacity_no_source_is_known() -> None:
    """The binder never hears of those in the first responses."""
    pair = Pair(*"abcdef")
    assert pair.poll() == ""
    assert pair.messages == []
    assert pair.requester.is_full
    assert pair.requester.is_reachable


def test_exceeding_the_capacity_later_removes_all_sources() -> None:
    """With a part of them, subscriptions would be bound wrongly."""
    pair = Pair(*"abcde")
    pair.poll()
    pair.messages.clear()
    pair.change("f")
    assert pair.poll() == ""
    assert pair.messages == [SourceRemoved(f"{id}@there") for id in "abcde"]


def test_a_full_requester_makes_no_bind_requests() -> None:
    """Requests of plan match and demanded sources are still sent."""
    pair = Pair(*"abcdef")
    pair.poll()
    assert pair.announcer.requests == 1
    assert pair.announcer.is_demanded(SourceAnnouncement("any", {"context": "fire"}))
    assert pair.announcer.is_demanded(SourceAnnouncement("a", {}))
    pair.change("g")
    assert pair.announcer.respond(pair.requester.request()).announcements == ()


def test_a_full_requester_retries_after_a_pause() -> None:
    """It stays full while there are too many sources, and then learns all of them."""
    pair = Pair(*"abcdef")
    pair.poll()
    pair.now += PAUSE
    assert pair.poll() == ""
    assert pair.requester.is_full
    pair.change(removed="a")
    assert pair.poll() == ""
    pair.now += PAUSE
    assert pair.poll() == "bcdef"
    assert not pair.requester.is_full


def test_a_full_requester_retries_when_the_interest_changes() -> None:
    """The new interest may admit fewer sources."""
    pair = Pair(*"abcdef")
    pair.put("z", context="light")
    pair.poll()
    pair.requester.set_interest(DiscoveryInterest(frozenset([LIGHT])))
    assert pair.poll() == "z"
    assert not pair.requester.is_full
    assert [message.id for message in pair.messages if isinstance(message, SourceRegistered)] == ["z@there"]


def test_a_full_requester_retries_when_the_peer_restarts() -> None:
    """It may have fewer sources by then."""
    pair = Pair(*"abcdef")
    pair.poll()
    del pair.registry.sources["a"]
    pair.start_announcer()
    assert pair.poll() == "bcdef"


def test_a_full_requester_ignores_responses_to_earlier_requests() -> None:
    """They belong to requests that were withdrawn."""
    pair = Pair(*"abcdef")
    late = pair.announcer.respond(pair.requester.request())
    pair.poll()
    assert pair.requester.receive(late, pair.now) == []
    assert pair.poll() == ""
    assert pair.messages == []


def test_attributes_count_towards_the_capacity() -> None:
    """Each 1,000 characters count as one more source; a response holds at least one source."""
    pair = Pair("a", "b")
    large = SourceAnnouncement("c", {"note": "x" * 2_996}, Position("c", 0, 0, 1))
    pair.registry.sources["c"] = large
    assert large.size == 4
    assert pair.poll() == ""
    assert pair.requester.is_full
    del pair.registry.sources["b"]
    pair.announcer.announce(["b"])
    pair.now += PAUSE
    assert pair.poll() == "ac"


def test_sources_are_complete_from_the_first_full_response() -> None:
    """An outdated response, to a request from before the peer was silent, does not make them so."""
    pair = Pair("a")
    assert not pair.requester.is_complete
    pair.poll()
    assert pair.requester.is_complete
    late = pair.announcer.respond(pair.requester.request())
    assert pair.requester.expire(pair.now + TIMEOUT) != []
    assert pair.requester.receive(late, pair.now + TIMEOUT) == []
    assert not pair.requester.is_complete
    assert pair.poll() == "a"
    assert pair.requester.is_complete


def test_a_source_that_is_looked_for_again_stays() -> None:
    """The peer retracted it before it knew. One that is really gone leaves with the next response."""
    pair = Pair("a", "b")
    pair.poll()
    pair.messages.clear()
    pair.requester.set_interest(DiscoveryInterest(frozenset([FIRE])))
    late = pair.announcer.respond(pair.requester.request())
    pair.requester.set_interest(DiscoveryInterest(frozenset([ALL])))
    pair.change(removed="b")
    assert pair.requester.receive(late, pair.now) == []
    assert sorted(pair.requester.sources) == ["a", "b"]
    assert pair.poll() == "a"
    assert pair.messages == [SourceRemoved("b@there")]
