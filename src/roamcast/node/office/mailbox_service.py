"""The counter of a node's post office: where subscribers are served, and the pipeline leaves its letters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import NamedTuple, TypeVar, cast

from roamcast.deliver.messages import (
    Acknowledge,
    Acknowledged,
    Deposit,
    Deposited,
    Pull,
    Pulled,
    Register,
    Remove,
    Send,
    SendAll,
    Sent,
    SentAll,
    Trace,
    Traced,
)
from roamcast.deliver.port import OfficeStore
from roamcast.deliver.refusals import elsewhere
from roamcast.errors import ElsewhereError, NotFoundError, RoamcastError, UnavailableError
from roamcast.model import Letter
from roamcast.node.office.actor import Postmaster
from roamcast.node.office.names import Names
from roamcast.node.office.waiters import Bells, rung
from roamcast.node.settings import Limits
from roamcast.security.tokens import new_token

__all__ = ["Counter", "Delivery"]

_DEPOSIT = 2_000  # letters at a time, so that others get their turn in between
_FIRST_ASKED_AGAIN, _TRACE_WAIT = 0.25, 3.0  # seconds

T = TypeVar("T")


class Delivery(NamedTuple):
    """What a deposit did: letters that are stored and were not before, and letters that were dropped as copies."""

    accepted: int
    duplicates: int


class Counter:
    """Subscribers are named in full. Belongs to one event loop, but for `deposit` and `erase`, which block."""

    def __init__(self, postmaster: Postmaster, names: Names, bells: Bells, limits: Limits) -> None:
        self._postmaster = postmaster
        self._names = names
        self._bells = bells
        self._limits = limits
        self._tracing: dict[str, asyncio.Future[Traced]] = {}
        self.expired = 0
        """Letters that were not handed out because their time to live was over."""

    async def register(self, id: str) -> None:
        """Raises ConflictError for one that has left for good."""
        await _reply(self._postmaster.tell(Register(self._names.of(id))))

    async def remove(self, id: str) -> None:
        """Raises ElsewhereError while the mailbox is with another office."""
        await _reply(self._postmaster.tell(Remove(self._names.of(id))))

    async def pull(self, name: str, limit: int, after: int) -> Pulled:
        """No more than fit into an answer, but one letter if there is one. Raises ElsewhereError."""
        pull = Pull(name, limit, after, self._limits.pull_bytes)
        pulled = cast(Pulled, await _reply(self._postmaster.tell(pull)))
        self.expired += pulled.expired
        return pulled

    async def pull_waiting(self, name: str, limit: int, after: int, wait: float) -> Pulled:
        """If there is nothing, as soon as there is, within so many seconds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + wait
        with self._bells.hung(name) as bell:
            while True:
                bell.clear()
                pulled = await self.pull(name, limit, after)
                left = end - loop.time()
                if pulled.letters or left <= 0 or self._bells.stopped or not await rung(bell, left):
                    return pulled

    async def waiting(self, name: str) -> int:
        """How many letters are readable now."""
        return (await _reply(self._postmaster.ask(lambda store: store.loads((name,)))))[name].readable

    async def acknowledge(self, name: str, through: int) -> int:
        done = cast(Acknowledged, await _reply(self._postmaster.tell(Acknowledge(name, through))))
        return done.count

    async def acknowledge_and_pull(self, name: str, through: int, limit: int, size: int) -> tuple[int, Pulled]:
        """Both in one go; 0 acknowledges nothing. How many were acknowledged, and the next letters."""
        acknowledging = self._postmaster.tell(Acknowledge(name, through)) if through else None
        pulling = self._postmaster.tell(Pull(name, limit, through, size))
        count = 0 if acknowledging is None else cast(Acknowledged, await _reply(acknowledging)).count
        pulled = cast(Pulled, await _reply(pulling))
        self.expired += pulled.expired
        return count, pulled

    async def send(self, message: Send) -> Sent:
        return cast(Sent, await _reply(self._postmaster.tell(message)))

    async def send_all(self, messages: Sequence[Send]) -> tuple[Sent | RoamcastError, ...]:
        """Each is taken or refused by itself."""
        done = cast(SentAll, await _reply(self._postmaster.tell(SendAll(tuple(messages)))))
        return done.outcomes

    async def last_sent(self, sender: str, receiver: str) -> int:
        """The number of the last letter, 0 for none. Raises ElsewhereError unless the sender is served here."""

        def asked(store: OfficeStore) -> int | ElsewhereError:
            tenure = store.tenures((sender,)).get(sender)
            if tenure is not None and tenure.active:
                return store.sent(sender, receiver)
            kept = store.whereabouts(sender)
            return elsewhere(sender, kept.office if kept else None, kept.epoch if kept else 0)

        answer = await _reply(self._postmaster.ask(asked))
        if isinstance(answer, ElsewhereError):
            raise answer
        return answer

    async def trace(self, receiver: str, sender: str, number: int) -> Traced:
        """What became of a letter that was posted here. Raises UnavailableError if nobody says so in time."""
        loop = asyncio.get_running_loop()
        ticket = new_token()
        answer: asyncio.Future[Traced] = loop.create_future()
        self._tracing[ticket] = answer
        end, pause = loop.time() + _TRACE_WAIT, _FIRST_ASKED_AGAIN
        try:
            while loop.time() < end:
                await _reply(self._postmaster.tell(Trace(ticket, receiver, sender, number)))
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

    def traced(self, news: Traced) -> None:
        answer = self._tracing.get(news.ticket)
        if answer is not None and not answer.done():
            answer.set_result(news)

    def deposit(self, letters: Sequence[Letter]) -> Delivery:
        """Letters of the pipeline, to ids of this domain; stored when this returns. Raises StorageError."""
        of = {id: self._names.of(id) for id in {letter.receiver for letter in letters}}
        named = [Letter(of[letter.receiver], letter.sender, letter.number, letter.body) for letter in letters]
        told = [
            self._postmaster.tell(Deposit(tuple(named[first : first + _DEPOSIT])))
            for first in range(0, len(named), _DEPOSIT)
        ]
        done = [cast(Deposited, each.result()) for each in told]
        duplicates = sum(each.duplicates for each in done)
        return Delivery(sum(each.filed + each.queued for each in done) - duplicates, duplicates)

    def erase(self, receivers: Iterable[str]) -> None:
        """See that mailboxes of those who have left are gone. Raises StorageError."""
        for removed in [self._postmaster.tell(Remove(self._names.of(id))) for id in receivers]:
            removed.result()


async def _reply(done: Future[T]) -> T:
    """What was asked for goes on though the one who asked goes away."""
    return await asyncio.shield(asyncio.wrap_future(done))
