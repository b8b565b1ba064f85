"""A node's registry, as other nodes see it: which sources each is told of, and what is new for it. Sans-IO."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from roamcast.bind.discovery.messages import Answer, Ask, Heard, Interest, News, Sources
from roamcast.bind.lcesm.messages import Attributes

__all__ = ["Announcer"]

_MOST: Final = 1_000  # sources in an answer


class _Asker:
    """What a registry knows of a node that asks: its interest, and which sources it is told of.

    `_changed` has the number of the last announcement of each source, in the order of numbers, so that what is new is
    found without a look at the rest. That one is gone is kept, also in `_gone`, until it was heard.
    """

    def __init__(self, session: int) -> None:
        self.session = session
        self.version = -1
        self.interest = Interest()
        self.number = 0
        self._changed: OrderedDict[str, int] = OrderedDict()
        self._gone: OrderedDict[str, int] = OrderedDict()
        self.told: set[str] = set()

    def looks_for(self, attributes: Attributes) -> bool:
        return any(request.plan == "bind" and request.admits(attributes) for request in self.interest.requests)

    def wants(self, source: News) -> bool:
        return source.source in self.interest.wanted or any(
            request.plan == "match" and request.admits(source.attributes or {}) for request in self.interest.requests
        )

    def note(self, source: str, *, fits: bool) -> None:
        """It is to be told of, or not any more."""
        self.number += 1
        self._changed[source] = self.number
        self._changed.move_to_end(source)
        if fits:
            self.told.add(source)
            self._gone.pop(source, None)
        else:
            self.told.discard(source)
            self._gone[source] = self.number

    def forget(self, heard: int) -> None:
        """Up to this number all was heard: also of those that are gone."""
        while self._gone and next(iter(self._gone.values())) <= heard:
            source, _ = self._gone.popitem(last=False)
            del self._changed[source]

    def since(self, heard: int) -> list[tuple[str, int]]:
        """What was announced after this number, in order; after none, what there is."""
        new = itertools.takewhile(lambda item: item[1] > heard, reversed(self._changed.items()))
        return [item for item in new if heard or item[0] in self.told][::-1]


class Announcer:
    """A node's registry, as other nodes see it."""

    def __init__(self, node: str, session: int, sources: Sources, most: int = _MOST) -> None:
        """`most` sources are told of in an answer, see `News.room`."""
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
        asker.forget(after)
        new = asker.since(after)
        news = self._some(asker, new)
        more = len(news) < len(new)
        heard = Heard(self._session, new[len(news) - 1][1] if more else asker.number)
        return Answer(self._node, ask.session, asker.version, after, heard, news, more)

    def changed(self, sources: Iterable[str]) -> frozenset[str]:
        """These were registered, changed, moved or removed; the nodes that there is news for."""
        concerned = set[str]()
        for source in sources:
            now = self._sources.get(source)
            for node, asker in self._askers.items():
                fits = now is not None and asker.looks_for(now.attributes or {})
                if fits or source in asker.told:
                    asker.note(source, fits=fits)
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
            asker.note(source, fits=source in fitting)

    def _stir(self, before: Interest, now: Interest) -> None:
        self.stirred |= before.wanted ^ now.wanted
        if before.matching != now.matching:
            self.stirred |= {one.source for one in self._sources}

    def _some(self, asker: _Asker, new: Iterable[tuple[str, int]]) -> tuple[News, ...]:
        """As many as an answer holds, but at least one."""
        told: list[News] = []
        room = self._most
        for source, _ in new:
            news = self._told(asker, source)
            room -= news.room
            if told and room < 0:
                break
            told.append(news)
        return tuple(told)

    def _told(self, asker: _Asker, source: str) -> News:
        now = self._sources.get(source) if source in asker.told else None
        return now or News(source, None)
