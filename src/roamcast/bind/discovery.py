"""Discovery between nodes: standing requests, and what registries announce to those who made them. Sans-IO.

Every node asks every other, over and over: it says which sources it looks for, which it wants to send, and how far it
has heard; it is answered as soon as there is news, and now and then anyway. Questions and answers may be lost, late or
come twice: each says where it stands. Sessions rise with every start of a node, numbers within a session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from roamcast.bind.messages import (
    Attributes,
    Moved,
    PositionForgotten,
    SourceChanged,
    SourceMessage,
    SourceRegistered,
    SourceRemoved,
    same_attributes,
)
from roamcast.lacl import Query, normalised, parse, plan_of
from roamcast.lacl.conditions import may_hold
from roamcast.lacl.printing import condition_text
from roamcast.lacl.syntax import Condition
from roamcast.model import Position, global_name

__all__ = [
    "Announcer", "Answer", "Ask", "Heard", "Interest", "News", "Plan", "Request", "Seeker", "Sources",
    "request_of",
]  # fmt: skip


_MOST: Final = 1_000  # sources in an answer


Plan: TypeAlias = Literal["bind", "match"]


class Request(NamedTuple):
    """A standing request for sources that satisfy a condition on their attributes; an empty one is satisfied by all.

    For the bind plan they are announced wherever they are: which is the best is for the node to say whose subscriber it
    is. For the match plan they are only wanted.
    """

    plan: Plan
    condition: str

    def admits(self, attributes: Attributes) -> bool:
        """Whether events of a source could be wanted."""
        condition = _condition(self.condition)
        return condition is None or may_hold(condition, attributes)


def request_of(query: Query) -> Request:
    """What a subscription asks of other nodes. Equal requests are one."""
    condition = query.source_expression
    return Request(plan_of(query), "" if condition is None else condition_text(normalised(condition)))


@lru_cache(maxsize=100_000)
def _condition(text: str) -> Condition | None:
    return parse(f"Select all() Where {text}").where if text else None


class Interest(NamedTuple):
    """What a node looks for, and the sources of the one it asks that it wants to send."""

    requests: frozenset[Request] = frozenset()
    wanted: frozenset[str] = frozenset()

    @property
    def matching(self) -> frozenset[Request]:
        return frozenset(request for request in self.requests if request.plan == "match")


class Heard(NamedTuple):
    """How far the announcements of a registry go, or were heard."""

    session: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class Ask:
    """`interest` is left out when the registry has this `version` of it."""

    node: str
    session: int
    version: int
    interest: Interest | None
    heard: Heard


@dataclass(frozen=True, slots=True)
class News:
    """A source as it is now; without attributes it is gone, or no longer asked for."""

    source: str
    attributes: Attributes | None
    position: Position | None = None

    def registered(self, node: str) -> SourceRegistered:
        """How another node's binder is told of it."""
        name, at = global_name(self.source, node), self.position
        return SourceRegistered(name, self.attributes or {}, None if at is None else replace(at, entity=name))


@dataclass(frozen=True, slots=True)
class Answer:
    """What changed `after` a number; if that is 0, what there is. `version` is that of the interest it is about.

    `asker` is the session of the one who asked. A version of -1 says that it is not known: its interest is needed.
    `more`: there is more than an answer holds, to be asked for at once.
    """

    node: str
    asker: int
    version: int
    after: int
    heard: Heard
    news: tuple[News, ...] = ()
    more: bool = False


class Sources(Protocol):
    """The sources of a node. Each has attributes."""

    def __iter__(self) -> Iterator[News]: ...

    def get(self, id: str) -> News | None: ...


class _Asker:
    """What a registry knows of a node that asks: its interest, and which sources it is told of.

    `changed` has the number of the last announcement of each source. That one is gone is kept until it was heard.
    """

    def __init__(self, session: int) -> None:
        self.session = session
        self.version = -1
        self.interest = Interest()
        self.number = 0
        self.changed: dict[str, int] = {}
        self.told: set[str] = set()

    def looks_for(self, attributes: Attributes) -> bool:
        return any(request.plan == "bind" and request.admits(attributes) for request in self.interest.requests)

    def wants(self, source: News) -> bool:
        return source.source in self.interest.wanted or any(
            request.plan == "match" and request.admits(source.attributes or {}) for request in self.interest.requests
        )

    def note(self, source: str) -> None:
        self.number += 1
        self.changed[source] = self.number


class Announcer:
    """A node's registry, as other nodes see it."""

    def __init__(self, node: str, session: int, sources: Sources, most: int = _MOST) -> None:
        """`most` sources are told of in an answer."""
        self._node = node
        self._session = session
        self._sources = sources
        self._most = most
        self._askers: dict[str, _Asker] = {}
        self.stirred: set[str] = set()
        """Sources that may be wanted now, or not any more; whoever looks at them clears it."""

    @property
    def requests(self) -> int:
        """How many standing requests there are."""
        return sum(len(asker.interest.requests) for asker in self._askers.values())

    def ask(self, ask: Ask) -> Answer:
        """What there is to tell now."""
        asker = self._askers.get(ask.node)
        if asker is None or asker.session < ask.session:
            if ask.interest is None:
                return Answer(self._node, ask.session, -1, 0, Heard(self._session))
            if asker is not None:
                self._stir(asker.interest, Interest())
            asker = self._askers[ask.node] = _Asker(ask.session)
            if ask.heard.session == self._session:  # who was forgotten: all is told anew, and numbers go on
                asker.number = ask.heard.number
            ask = replace(ask, heard=Heard())
        elif asker.session > ask.session:
            return Answer(self._node, ask.session, -1, 0, Heard(self._session))  # to one that is no more
        if ask.interest is not None and ask.version > asker.version:
            self._look_for(asker, ask.version, ask.interest)
        after = ask.heard.number if ask.heard.session == self._session else 0
        _forget(asker, after)
        new = sorted((number, source) for source, number in asker.changed.items() if number > after)
        told, more = new[: self._most], len(new) > self._most
        heard = Heard(self._session, told[-1][0] if more else asker.number)
        news = tuple(self._told(asker, source) for _, source in told)
        return Answer(self._node, ask.session, asker.version, after, heard, news, more)

    def changed(self, sources: Iterable[str]) -> frozenset[str]:
        """These were registered, changed, moved or removed; the nodes that there is news for."""
        concerned = set[str]()
        for source in sources:
            now = self._sources.get(source)
            for node, asker in self._askers.items():
                fits = now is not None and asker.looks_for(now.attributes or {})
                if fits or source in asker.told:
                    (asker.told.add if fits else asker.told.discard)(source)
                    asker.note(source)
                    concerned.add(node)
        return frozenset(concerned)

    def leave(self, node: str) -> None:
        """It is no part of the backbone any more, and neither is what it asked for."""
        asker = self._askers.pop(node, None)
        if asker is not None:
            self._stir(asker.interest, Interest())

    def is_wanted(self, source: News) -> bool:
        """Whether another node wants a source to send, as far as is known. One that is silent wants what it wanted."""
        return any(asker.wants(source) for asker in self._askers.values())

    def _look_for(self, asker: _Asker, version: int, interest: Interest) -> None:
        before, asker.version, asker.interest = asker.interest, version, interest
        self._stir(before, interest)
        if before.requests == interest.requests:
            return
        fitting = {one.source for one in self._sources if asker.looks_for(one.attributes or {})}
        for source in sorted(fitting ^ asker.told):
            asker.note(source)
        asker.told = fitting

    def _stir(self, before: Interest, now: Interest) -> None:
        self.stirred |= before.wanted ^ now.wanted
        if before.matching != now.matching:
            self.stirred |= {one.source for one in self._sources}

    def _told(self, asker: _Asker, source: str) -> News:
        now = self._sources.get(source) if source in asker.told else None
        return now or News(source, None)


def _forget(asker: _Asker, heard: int) -> None:
    gone = [source for source, number in asker.changed.items() if number <= heard and source not in asker.told]
    for source in gone:
        del asker.changed[source]


def _is_taken_back(before: Position | None, now: Position | None) -> bool:
    """Whether where a source was is not so any more, though it has not moved since."""
    return before is not None and (now is None or now.time < before.time)


class Seeker:
    """A node's dealings with the registry of another: questions out, answers in, messages for the binder.

    When nothing was heard for `limit` microseconds the other's sources are gone; they come back when it does. What
    takes several answers counts when all of them are here.
    """

    def __init__(self, node: str, session: int, other: str, limit: int, versions: Iterator[int]) -> None:
        """`versions` rise over all seekers of a session: the other may have requests of one that was before this."""
        self.other = other
        self.is_up = False
        self.heard_at: int | None = None
        """When the other was heard last, also if that is long ago."""
        self._node = node
        self._session = session
        self._limit = limit
        self._interest = Interest()
        self._versions = versions
        self._version = next(versions)
        self._known = -1  # the version of our interest that the other has
        self._heard = Heard()
        self._sources: dict[str, News] = {}
        self._pending: dict[str, News] = {}  # heard, but more belongs to it
        self._anew = False  # all is being told, not what changed

    @property
    def sources(self) -> Mapping[str, News]:
        """What is known of the other's sources, by their ids there."""
        return self._sources

    def look_for(self, interest: Interest) -> bool:
        """From now on look for this; whether that is new, and so to be asked for at once."""
        if interest == self._interest:
            return False
        self._interest = interest
        self._version = next(self._versions)
        return True

    def ask(self) -> Ask:
        interest = None if self._known == self._version else self._interest
        return Ask(self._node, self._session, self._version, interest, self._heard)

    def hear(self, answer: Answer, now: int) -> list[SourceMessage]:
        """An answer to any question of ours, perhaps an old one."""
        if answer.asker != self._session or answer.heard.session < self._heard.session:
            return []  # to, or of, an earlier life
        self.heard_at, self.is_up = now, True
        if answer.heard.session > self._heard.session:
            self._heard, self._known = Heard(answer.heard.session), -1
        if answer.version < 0:
            self._known = -1
            return []
        if not answer.after <= self._heard.number <= answer.heard.number:
            return []  # overtaken by a later one, or of before a silence
        self._known, self._heard = answer.version, answer.heard
        if not answer.after:
            self._pending, self._anew = {}, True
        self._pending.update((news.source, news) for news in answer.news)
        return [] if answer.more else self._take()

    def lapse(self, now: int) -> list[SourceMessage]:
        """After the limit nothing that is known counts any more, and all of it is to be told again."""
        if not self.is_up or self.heard_at is None or now - self.heard_at < self._limit:
            return []
        self.is_up = False
        return self.forget()

    def forget(self) -> list[SourceMessage]:
        """As if nothing had been heard."""
        self._heard = self._heard._replace(number=0)
        self._pending, self._anew = {}, True
        return self._take()

    def _take(self) -> list[SourceMessage]:
        """All of it is here: let it be known."""
        gone = [News(id, None) for id in self._sources if id not in self._pending] if self._anew else []
        news = (*gone, *self._pending.values())
        self._pending, self._anew = {}, False
        return [message for one in news for message in self._learn(one)]

    def _learn(self, news: News) -> list[SourceMessage]:
        name, before = global_name(news.source, self.other), self._sources.get(news.source)
        if news.attributes is None:
            self._sources.pop(news.source, None)
            return [] if before is None else [SourceRemoved(name)]
        self._sources[news.source] = news
        if before is None:
            return [news.registered(self.other)]
        messages: list[SourceMessage] = []
        if _is_taken_back(before.position, news.position):
            messages.append(PositionForgotten(name))
        if not same_attributes(before.attributes or {}, news.attributes):
            messages.append(SourceChanged(name, news.attributes))
        if (at := news.position) is not None and at != before.position:
            messages.append(Moved(name, at.x, at.y, at.time))
        return messages
