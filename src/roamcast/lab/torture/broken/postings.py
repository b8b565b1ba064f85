"""Postings that let letters go too early, or send them the wrong way."""

from __future__ import annotations

from dataclasses import replace

from roamcast.deliver.letters import Key, key_of
from roamcast.deliver.messages import Post, Posted, Send, Sent
from roamcast.deliver.pending_work import Duty, Kind
from roamcast.deliver.posting import Posting

__all__ = [
    "AnswersForOthers",
    "ForgetsWhatWasPosted",
    "ForgetsWhatWasRefused",
    "MakesNoFriends",
    "NumbersByOffice",
    "PassesOnBlindly",
    "TakesAllBelow",
    "TakesTooEarly",
    "TriesOnce",
]


class AnswersForOthers(Posting):
    """An office that passes a letter on says that it was taken"""

    def _pass_on(self, message: Post) -> None:
        before = len(self._desk.effects)
        super()._pass_on(message)
        if len(self._desk.effects) > before:
            keys = tuple(map(key_of, message.letters))
            posted = Posted(message.receiver, keys, (), self._desk.domain, message.known, friend=False)
            self._desk.transmit(message.origin, posted)


class PassesOnBlindly(Posting):
    """Letters are passed on to wherever the receiver is thought to be, in whatever epoch"""

    def _pass_on(self, message: Post) -> None:
        super()._pass_on(replace(message, known=-1))


class ForgetsWhatWasPosted(Posting):
    """Letters leave the queue when they are posted, not when they are taken"""

    def go_on(self, receiver: str, *, unanswered: bool = False) -> None:
        super().go_on(receiver, unanswered=unanswered)
        for effect in list(self._desk.effects):
            post = getattr(effect, "message", None)
            if isinstance(post, Post) and post.origin == self._desk.domain:
                self._desk.store.dequeue(receiver, map(key_of, post.letters))


class ForgetsWhatWasRefused(Posting):
    """Letters that a full mailbox refuses leave the queue all the same"""

    def posted(self, message: Posted) -> None:
        super().posted(replace(message, taken=message.taken + message.full, full=()))


class TakesAllBelow(Posting):
    """An answer for one letter counts for all of its sender before it"""

    def posted(self, message: Posted) -> None:
        highest: dict[str, int] = {}
        for sender, number in message.taken:
            highest[sender] = max(number, highest.get(sender, 0))
        below = tuple(Key(sender, number) for sender, last in highest.items() for number in range(1, last + 1))
        super().posted(replace(message, taken=below))


class NumbersByOffice(Posting):
    """Each office numbers the letters of a sender by itself"""

    def send(self, message: Send) -> None:
        mine = f"{self._desk.domain} {message.sender}"
        last = self._desk.store.sent(message.sender, message.receiver)
        self._desk.store.put_sent(message.sender, message.receiver, self._desk.store.sent(mine, message.receiver))
        super().send(replace(message, number=None))
        self._desk.store.put_sent(mine, message.receiver, self._desk.store.sent(message.sender, message.receiver))
        self._desk.store.put_sent(message.sender, message.receiver, last)
        self._desk.effects[-1] = Sent(message.sender, message.receiver, message.number or 0, True)


class TriesOnce(Posting):
    """What is not answered is not posted again"""

    def go_on(self, receiver: str, *, unanswered: bool = False) -> None:
        if unanswered and Duty(Kind.POST, receiver) in self._desk.tries:
            return
        super().go_on(receiver, unanswered=unanswered)


class TakesTooEarly(Posting):
    """New letters are taken while the mailbox is still being handed over"""

    def post(self, message: Post) -> None:
        tenure = self._desk.tenure(message.receiver)
        if tenure is not None and tenure.arriving is not None:
            self._desk.store.put_tenure(replace(tenure, arriving=None))
            super().post(message)
            after = self._desk.tenure(message.receiver)
            if after is not None:
                self._desk.store.put_tenure(replace(after, arriving=tenure.arriving))
            return
        super().post(message)


class MakesNoFriends(Posting):
    """Whoever gets a letter does not note the domain it came from as a friend"""

    def post(self, message: Post) -> None:
        before = self._desk.tenure(message.receiver)
        super().post(message)
        if before is not None and before.settled:
            self._desk.store.put_tenure(before)
