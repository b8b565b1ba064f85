"""Bindings of tracks: which source a subscription was bound to when, from where sources and subscribers were.

The binder of a node decides, step by step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from roamcast.bind.lcesm.binder import Binder
from roamcast.bind.lcesm.messages import (
    Attributes,
    Bound,
    Effect,
    SourceChanged,
    SourceMessage,
    SourceRegistered,
    Subscribed,
    SubscriberChanged,
    SubscriberRegistered,
    Unbound,
    same_attributes,
)
from roamcast.lacl import Query
from roamcast.model import BEFORE_ALL, Position
from roamcast.places import Places
from roamcast.space import Space

__all__ = ["Fix", "PastBinding", "TrackReplay"]

_SUBSCRIBER: Final = "\0"  # before the id of a subscriber: the entities of a binder share one set of ids


class Fix(NamedTuple):
    """Where an entity was at a time, and its attributes from then on."""

    id: str
    x: float
    y: float
    attributes: Attributes


class PastBinding(NamedTuple):
    """A source was bound from `begin` on and before `end`; None: it still is."""

    subscription: str
    source: str
    begin: int
    end: int | None


class TrackReplay:
    """Binds subscriptions, all of which begin before the tracks. `subscriptions` are (id, subscriber, checked query).

    A source is known from its first fix on, and stays where its last one says. A subscription is bound from the first
    fix of its subscriber on. Ids of sources and of subscribers may be equal.
    """

    def __init__(
        self, subscriptions: Iterable[tuple[str, str, Query]], space: Space, places: Places | None = None
    ) -> None:
        self._binder = Binder(space, places)
        self._past = _PastBindings()
        self._sources: dict[str, Attributes] = {}
        self._subscribers: dict[str, Attributes] = {}
        for id, subscriber, query in subscriptions:
            if subscriber not in self._subscribers:
                self._subscribers[subscriber] = {}
                self._binder.handle(SubscriberRegistered(_SUBSCRIBER + subscriber, {}), BEFORE_ALL)
            self._binder.handle(Subscribed(id, _SUBSCRIBER + subscriber, query), BEFORE_ALL)

    def step(self, now: int, sources: Sequence[Fix], subscribers: Sequence[Fix]) -> list[PastBinding]:
        """Move all who have a fix at this time, together; the last fix of each counts.

        Times must ascend. Points must be valid. Returns bindings that have ended before.
        """
        ended = self._past.begin(now)
        last_sources = _last(sources)
        last_subscribers = _last(fix for fix in subscribers if fix.id in self._subscribers)
        self._change_sources(now, last_sources)
        self._change_subscribers(now, last_subscribers)
        moves = [(_SUBSCRIBER + id, fix.x, fix.y) for id, fix in last_subscribers.items()]
        moves += [(id, fix.x, fix.y) for id, fix in last_sources.items()]
        if moves:
            ids, x, y = zip(*moves, strict=True)
            self._past.note(self._binder.handle_moves(ids, x, y, [now] * len(ids), now))
        return ended

    def finish(self) -> Iterator[PastBinding]:
        """The rest of the bindings. The last ones have no end."""
        return self._past.finish()

    def _change_sources(self, now: int, fixes: Mapping[str, Fix]) -> None:
        """Register new sources where they are, and change attributes."""
        messages: list[SourceMessage] = []
        for id, fix in fixes.items():
            known = self._sources.get(id)
            if known is None:
                messages.append(SourceRegistered(id, fix.attributes, Position(id, fix.x, fix.y, now)))
            elif not same_attributes(known, fix.attributes):
                messages.append(SourceChanged(id, fix.attributes))
            self._sources[id] = fix.attributes
        if messages:
            self._past.note(self._binder.handle_sources(messages, now))

    def _change_subscribers(self, now: int, fixes: Mapping[str, Fix]) -> None:
        for id, fix in fixes.items():
            if not same_attributes(self._subscribers[id], fix.attributes):
                self._subscribers[id] = fix.attributes
                self._past.note(self._binder.handle(SubscriberChanged(_SUBSCRIBER + id, fix.attributes), now))


def _last(fixes: Iterable[Fix]) -> Mapping[str, Fix]:
    return {fix.id: fix for fix in fixes}


class _PastBindings:
    """Bindings with their begin and end, of effects in the order of time.

    What happens at one time happens together: a binding that lasts no time is left out, and one that ends and begins
    again at the same time goes on.
    """

    def __init__(self) -> None:
        self._now = BEFORE_ALL
        self._live: dict[tuple[str, str], int] = {}  # with their begin
        self._ending: dict[tuple[str, str], int] = {}  # that end now, with their begin

    def begin(self, now: int) -> list[PastBinding]:
        """Return what ended at the time before."""
        ended = [PastBinding(*pair, begin, self._now) for pair, begin in self._ending.items() if begin != self._now]
        self._now, self._ending = now, {}
        return ended

    def note(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Bound(subscription, source, at):
                    pair = subscription, source
                    self._live[pair] = self._ending.pop(pair, at)
                case Unbound(subscription, source, _):
                    pair = subscription, source
                    self._ending[pair] = self._live.pop(pair)
                case _:
                    pass

    def finish(self) -> Iterator[PastBinding]:
        yield from self.begin(self._now)
        for pair, begin in self._live.items():
            yield PastBinding(*pair, begin, None)
