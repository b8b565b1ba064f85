"""A node's dealings with the registry of another: questions out, answers in, messages for the binder. Sans-IO."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from roamcast.bind.discovery.messages import Answer, Ask, Heard, Interest, News
from roamcast.bind.lcesm.messages import (
    Moved,
    PositionForgotten,
    SourceChanged,
    SourceMessage,
    SourceRemoved,
    same_attributes,
)
from roamcast.model import Position, global_name

__all__ = ["Seeker"]

_REST: Final = 60_000_000  # microseconds before one that had too many sources is asked for them again
_AWAKE: Final = 0


class Seeker:
    """When nothing was heard for `limit` microseconds the other's sources are gone; they come back when it does. What
    takes several answers counts when all of them are here.

    There is `room` for so many of the other's sources (see `News.room`). When it has more of those that are looked for,
    it `is_full`: none of them is known, and they are asked for again when something else is looked for, when the other
    starts anew, or after a while.
    """

    def __init__(self, node: str, session: int, other: str, limit: int, room: int, versions: Iterator[int]) -> None:
        """`versions` rise over all seekers of a session: the other may have requests of one that was before this."""
        self.other = other
        self.is_up = False
        self.is_full = False
        self.heard_at: int | None = None
        """When the other was heard last, also if that is long ago."""
        self._node = node
        self._session = session
        self._limit = limit
        self._room = room
        self._interest = Interest()
        self._versions = versions
        self._version = next(versions)
        self._since = self._version  # what is said of interests before it does not count
        self._known = -1  # the version of our interest that the other has
        self._rests_until = _AWAKE
        self._heard = Heard()
        self._sources = _Shelf()
        self._pending = _Shelf()  # heard, but more belongs to it
        self._anew = False  # all is being told, not what changed

    @property
    def sources(self) -> Mapping[str, News]:
        """What is known of the other's sources, by their ids there."""
        return self._sources.news

    def look_for(self, interest: Interest) -> bool:
        """From now on look for this; whether that is new, and so to be asked for at once."""
        if interest == self._interest:
            return False
        if interest.requests != self._interest.requests:
            self._wake()
        self._interest = interest
        self._version = next(self._versions)
        return True

    def ask(self) -> Ask:
        interest = self._interest if self._rests_until == _AWAKE else self._interest.without_sources
        return Ask(
            self._node, self._session, self._version, None if self._known == self._version else interest, self._heard
        )

    def hear(self, answer: Answer, now: int) -> list[SourceMessage]:
        """An answer to any question of ours, perhaps an old one."""
        if answer.asker != self._session or answer.heard.session < self._heard.session:
            return []  # to, or of, an earlier life
        self.heard_at, self.is_up = now, True
        if answer.heard.session > self._heard.session:
            self._heard, self._known = Heard(answer.heard.session), -1
            self._wake()
        if answer.version < 0:
            self._known = -1
            return []
        if answer.version < self._since or not answer.after <= self._heard.number <= answer.heard.number:
            return []  # overtaken by a later one, or of before a silence
        self._known, self._heard = answer.version, answer.heard
        if not answer.after:
            self._pending, self._anew = _Shelf(), True
        for news in answer.news:
            if self._anew and news.attributes is None:
                self._pending.drop(news.source)
            else:
                self._pending.put(news)
        if self._is_too_much(complete=not answer.more):
            return self._rest(now)
        if answer.more:
            return []
        self.is_full = self._rests_until != _AWAKE
        return self._take()

    def lapse(self, now: int) -> list[SourceMessage]:
        """After the limit nothing that is known counts any more, and all of it is to be told again."""
        if now >= self._rests_until:
            self._wake()
        if not self.is_up or self.heard_at is None or now - self.heard_at < self._limit:
            return []
        self.is_up = False
        return self.forget()

    def forget(self) -> list[SourceMessage]:
        """As if nothing had been heard."""
        self._heard = self._heard._replace(number=0)
        self._pending, self._anew = _Shelf(), True
        return self._take()

    def _is_too_much(self, *, complete: bool) -> bool:
        """While more is to come, what is pending alone; then what will be known."""
        pending, known = self._pending, self._sources.news
        if not complete or self._anew:
            return pending.room > self._room
        before = sum(known[id].room for id in pending.news if id in known)
        gone = sum(news.room for news in pending.news.values() if news.attributes is None)
        return self._sources.room - before + pending.room - gone > self._room

    def _rest(self, now: int) -> list[SourceMessage]:
        self.is_full, self._rests_until = True, now + _REST
        self._version = self._since = next(self._versions)
        return self.forget()

    def _wake(self) -> None:
        if self._rests_until != _AWAKE:
            self._rests_until = _AWAKE
            self._version = self._since = next(self._versions)

    def _take(self) -> list[SourceMessage]:
        """All of it is here: let it be known."""
        pending = self._pending.news
        gone = [News(id, None) for id in self._sources.news if id not in pending] if self._anew else []
        self._pending, self._anew = _Shelf(), False
        return [message for news in (*gone, *pending.values()) for message in self._learn(news)]

    def _learn(self, news: News) -> list[SourceMessage]:
        name, before = global_name(news.source, self.other), self._sources.news.get(news.source)
        if news.attributes is None:
            self._sources.drop(news.source)
            return [] if before is None else [SourceRemoved(name)]
        self._sources.put(news)
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


class _Shelf:
    """Sources by id, and the room that they take."""

    def __init__(self) -> None:
        self.news: dict[str, News] = {}
        self.room = 0

    def put(self, news: News) -> None:
        self.drop(news.source)
        self.news[news.source] = news
        self.room += news.room

    def drop(self, id: str) -> None:
        before = self.news.pop(id, None)
        self.room -= 0 if before is None else before.room


def _is_taken_back(before: Position | None, now: Position | None) -> bool:
    """Whether where a source was is not so any more, though it has not moved since."""
    return before is not None and (now is None or now.time < before.time)
