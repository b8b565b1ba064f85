"""A node's dealings with the registry of another: questions out, answers in, messages for the binder. Sans-IO."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from roamcast.bind.discovery import Answer, Ask, Heard, Interest, News
from roamcast.bind.messages import (
    Moved,
    PositionForgotten,
    SourceChanged,
    SourceMessage,
    SourceRemoved,
    same_attributes,
)
from roamcast.model import Position, global_name

__all__ = ["Seeker"]


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


def _is_taken_back(before: Position | None, now: Position | None) -> bool:
    """Whether where a source was is not so any more, though it has not moved since."""
    return before is not None and (now is None or now.time < before.time)
