"""There is room for so many sources of another node: beyond it none of them is known."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from backbones import Registry

from roamcast.bind.discovery.announcer import Announcer
from roamcast.bind.discovery.messages import Interest, News, Request
from roamcast.bind.discovery.seeker import Seeker
from roamcast.bind.lcesm.messages import SourceRegistered, SourceRemoved
from roamcast.model import Position

LIMIT, ROOM = 10**9, 5
ALL, LIGHT = Request("bind", ""), Request("bind", "&context = light")
FIRE = Request("match", "&context = fire")
A_WHILE = 60_000_000


class Pair:
    """A node that asks and one that is asked, which tells of two sources at a time."""

    def __init__(self, *ids: str) -> None:
        self.registry = Registry()
        self.put(*ids)
        self.session = 0
        self.now = 1
        self.start_asked()
        self.seeker = Seeker("here", 1, "there", LIMIT, ROOM, itertools.count())
        self.seeker.look_for(Interest(frozenset([ALL, FIRE]), frozenset("a")))
        self.messages: list[object] = []

    def start_asked(self) -> None:
        self.session += 1
        self.announcer = Announcer("there", self.session, self.registry, 2)

    def put(self, *ids: str, context: str = "noise") -> None:
        for id in ids:
            self.registry.sources[id] = News(id, {"context": context}, Position(id, 0, 0, 1))

    def change(self, *ids: str, gone: Iterable[str] = ()) -> None:
        self.put(*ids)
        for id in gone:
            del self.registry.sources[id]
        self.announcer.changed([*gone, *ids])

    def talk(self) -> str:
        """Until there is no more to say; what is known then."""
        more = True
        while more:
            self.messages += self.seeker.lapse(self.now)
            answer = self.announcer.ask(self.seeker.ask())
            self.messages += self.seeker.hear(answer, self.now)
            more = answer.more or answer.version < 0 or self.seeker.ask().interest is not None
        return "".join(sorted(self.seeker.sources))


def test_as_many_as_there_is_room_for_are_known() -> None:
    """Also when some go as others come."""
    pair = Pair(*"abcde")
    assert pair.talk() == "abcde"
    pair.change("f", "g", gone="ab")
    assert pair.talk() == "cdefg"
    assert not pair.seeker.is_full


def test_of_more_none_is_known_not_even_for_a_moment() -> None:
    """What came in the first answers is never told to the binder."""
    pair = Pair(*"abcdef")
    assert pair.talk() == ""
    assert pair.messages == []
    assert pair.seeker.is_full
    assert pair.seeker.is_up


def test_when_one_more_comes_all_are_gone() -> None:
    """A part of them would be bound wrongly."""
    pair = Pair(*"abcde")
    pair.talk()
    pair.messages.clear()
    pair.change("f")
    assert pair.talk() == ""
    assert pair.messages == [SourceRemoved(f"{id}@there") for id in "abcde"]


def test_the_other_is_asked_for_nothing_that_there_is_no_room_for() -> None:
    """But it hears what subscriptions of plan match could want, and what was wanted."""
    pair = Pair(*"abcdef")
    pair.talk()
    assert pair.announcer.requests == 1
    assert pair.announcer.is_wanted(News("any", {"context": "fire"}))
    assert pair.announcer.is_wanted(News("a", {}))
    pair.change("g")
    assert pair.announcer.ask(pair.seeker.ask()).news == ()


def test_after_a_while_it_is_asked_again() -> None:
    """It is still full if there are still too many; then all are known that there are."""
    pair = Pair(*"abcdef")
    pair.talk()
    pair.now += A_WHILE
    assert pair.talk() == ""
    assert pair.seeker.is_full
    pair.change(gone="a")
    assert pair.talk() == ""
    pair.now += A_WHILE
    assert pair.talk() == "bcdef"
    assert not pair.seeker.is_full


def test_it_is_asked_again_at_once_for_something_else() -> None:
    """Of which there may be fewer."""
    pair = Pair(*"abcdef")
    pair.put("z", context="light")
    pair.talk()
    pair.seeker.look_for(Interest(frozenset([LIGHT])))
    assert pair.talk() == "z"
    assert not pair.seeker.is_full
    assert [message.id for message in pair.messages if isinstance(message, SourceRegistered)] == ["z@there"]


def test_it_is_asked_again_when_it_starts_anew() -> None:
    """It may be another by now."""
    pair = Pair(*"abcdef")
    pair.talk()
    del pair.registry.sources["a"]
    pair.start_asked()
    assert pair.talk() == "bcdef"


def test_answers_of_before_do_not_count_once_there_was_no_room() -> None:
    """They are of requests that are not made any more."""
    pair = Pair(*"abcdef")
    late = pair.announcer.ask(pair.seeker.ask())
    pair.talk()
    assert pair.seeker.hear(late, pair.now) == []
    assert pair.talk() == ""
    assert pair.messages == []


def test_attributes_take_room() -> None:
    """A source counts for one more with each 1,000 characters; an answer holds as much, but at least one source."""
    pair = Pair("a", "b")
    large = News("c", {"note": "x" * 2_996}, Position("c", 0, 0, 1))
    pair.registry.sources["c"] = large
    assert large.room == 4
    assert pair.talk() == ""
    assert pair.seeker.is_full
    del pair.registry.sources["b"]
    pair.announcer.changed(["b"])
    pair.now += A_WHILE
    assert pair.talk() == "ac"
