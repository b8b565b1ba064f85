"""The counter of a node's post office: where subscribers are served, and the pipeline leaves its letters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar, cast

from roamcast.deliver.addressing import elsewhere_error
from roamcast.deliver.port import OfficeStore
from roamcast.deliver.requests import (
    Acknowledge,
    Acknowledged,
    Deposit,
    Deposited,
    LetterSent,
    LettersSent,
    Pull,
    Pulled,
    Register,
    Remove,
    SendLetter,
    SendLetters,
    TraceLetter,
    TraceReply,
)
from roamcast.errors import ElsewhereError, NotFoundError, RoamcastError, UnavailableError
from roamcast.model import Letter
from roamcast.node.office.actor import OfficeActor
from roamcast.node.office.names import SubscriberNames
from roamcast.node.waiting import Waiters, await_to_the_end, wait_for
from roamcast.security.tokens import new_token
from roamcast.settings import NodeLimits

__all__ = ["Delivery", "MailboxService"]

_DEPOSIT = 2_000  # letters at a time, so that others get their turn in between
_FIRST_ASKED_AGAIN, _TRACE_WAIT = 0.25, 3.0  # seconds

T = TypeVar("T")


class Delivery(NamedTuple):
    """What a deposit did: letters that are stored and were not before, and letters that were dropped as copies."""

    accepted: int
    duplicates: int


class MailboxService:
    """Subscribers are named in full. Belongs to one event loop, but for `deposit` and `erase`, which block."""

    def __init__(self, actor: OfficeActor, names: SubscriberNames, waiters: Waiters, limits: NodeLimits) -> None:
        self._actor = actor
        self._names = names
        self._waiters = waiters
        self._limits = limits
        self._tracing: dict[str, asyncio.Future[TraceReply]] = {}
        self.expired = 0
        """Letters that were not handed out because their time to live was over."""

    async def register(self, id: str) -> None:
        """Raises ConflictError for one that has left for good."""
        await await_to_the_end(self._actor.tell(Register(self._names.of(id))))

    async def remove(self, id: str) -> None:
        """Raises ElsewhereError while the mailbox is with another office."""
        await await_to_the_end(self._actor.tell(Remove(self._names.of(id))))

    async def pull(self, name: str, limit: int, after: int) -> Pulled:
        """No more than fit into an answer, but one letter if there is one. Raises ElsewhereError."""
        pull = Pull(name, limit, after, self._limits.pull_bytes)
        pulled = cast(Pulled, await await_to_the_end(self._actor.tell(pull)))
        self.expired += pulled.expired
        return pulled

    async def pull_waiting(self, name: str, limit: int, after: int, wait: float) -> Pulled:
        """If there is nothing, as soon as there is, within so many seconds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + wait
        with self._waiters.waiting(name) as event:
            while True:
                event.clear()
                pulled = await self.pull(name, limit, after)
                left = end - loop.time()
                if pulled.letters or left <= 0 or self._waiters.stopped or not await wait_for(event, left):
                    return pulled

    async def waiting(self, name: str) -> int:
        """How many letters are readable now."""
        return (await await_to_the_end(self._actor.query(lambda store: store.loads((name,)))))[name].readable

    async def acknowledge(self, name: str, through: int) -> int:
        done = cast(Acknowledged, await await_to_the_end(self._actor.tell(Acknowledge(name, through))))
        return done.count

    async def acknowledge_and_pull(self, name: str, through: int, limit: int, size: int) -> tuple[int, Pulled]:
        """Both in one go; 0 acknowledges nothing. How many were acknowledged, and the next letters."""
        acknowledging = self._actor.tell(Acknowledge(name, through)) if through else None
        pulling = self._actor.tell(Pull(name, limit, through, size))
        count = 0 if acknowledging is None else cast(Acknowledged, await await_to_the_end(acknowledging)).count
        pulled = cast(Pulled, await await_to_the_end(pulling))
        self.expired += pulled.expired
        return count, pulled

    async def send(self, message: SendLetter) -> LetterSent:
        return cast(LetterSent, await await_to_the_end(self._actor.tell(message)))

    async def send_all(self, messages: Sequence[SendLetter]) -> tuple[LetterSent | RoamcastError, ...]:
        """Each is taken or refused by itself."""
        done = cast(LettersSent, await await_to_the_end(self._actor.tell(SendLetters(tuple(messages)))))
        return done.outcomes

    async def last_sent(self, sender: str, receiver: str) -> int:
        """The number of the last letter, 0 for none. Raises ElsewhereError unless the sender is served here."""

        def asked(store: OfficeStore) -> int | ElsewhereError:
            tenure = store.tenures((sender,)).get(sender)
            if tenure is not None and tenure.active:
                return store.last_sent(sender, receiver)
            kept = store.last_known(sender)
            return elsewhere_error(sender, kept.office if kept else None, kept.epoch if kept else 0)

        answer = await await_to_the_end(self._actor.query(asked))
        if isinstance(answer, ElsewhereError):
            raise answer
        return answer

    async def trace(self, receiver: str, sender: str, number: int) -> TraceReply:
        """What became of a letter that was posted here. Raises UnavailableError if nobody says so in time."""
        loop = asyncio.get_running_loop()
        ticket = new_token()
        answer: asyncio.Future[TraceReply] = loop.create_future()
        self._tracing[ticket] = answer
        end, pause = loop.time() + _TRACE_WAIT, _FIRST_ASKED_AGAIN
        try:
            while loop.time() < end:
                await await_to_the_end(self._actor.tell(TraceLetter(ticket, receiver, sender, number)))
                done, _ = await asyncio.wait([answer], timeout=min(pause, max(0.0, end - loop.time())))
                if done:
                    return answer.result()
                pause *= 2
        finally:
            del self._tracing[ticket]
        if number > await self.last_sent(sender, receiver):
            hint = "the number is what sending it said"
            raise NotFoundError("no letter of this number was sent", where=receiver, hint=hint)
        raise UnavailableError(
            "no office has said yet what became of it", where=receiver, hint="it is on its way: ask again later"
        )

    def traced(self, news: TraceReply) -> None:
        answer = self._tracing.get(news.ticket)
        if answer is not None and not answer.done():
            answer.set_result(news)

    def deposit(self, letters: Sequence[Letter]) -> Delivery:
        """Letters of the pipeline, to ids of this domain; stored when this returns. Raises StorageError."""
        of = {id: self._names.of(id) for id in {letter.receiver for letter in letters}}
        named = [Letter(of[letter.receiver], letter.sender, letter.number, letter.body) for letter in letters]
        told = [
            self._actor.tell(Deposit(tuple(named[first : first + _DEPOSIT])))
            for first in range(0, len(named), _DEPOSIT)
        ]
        done = [cast(Deposited, each.result()) for each in told]
        duplicates = sum(each.duplicates for each in done)
        return Delivery(sum(each.filed + each.queued for each in done) - duplicates, duplicates)

    def erase(self, receivers: Iterable[str]) -> None:
        """See that mailboxes of those who have left are gone. Raises StorageError."""
        for removed in [self._actor.tell(Remove(self._names.of(id))) for id in receivers]:
            removed.result()
