"""The mailbox service: what subscribers and the pipeline do with mailboxes of this node."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from random import Random
from typing import NamedTuple, TypeVar, cast

from roamcast.deliver.addressing import SubscriberNames, elsewhere_error
from roamcast.deliver.port import OfficeStore
from roamcast.deliver.requests import (
    Acknowledge,
    Acknowledged,
    Deposit,
    Deposited,
    LetterSent,
    LettersSent,
    MailboxPull,
    Pull,
    Pulled,
    PulledMany,
    PullMany,
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
from roamcast.node.waiting import Waiters, await_to_the_end, wait_for
from roamcast.security.tokens import new_token
from roamcast.settings_model import NodeLimits

__all__ = ["DepositResult", "MailboxService", "PulledMailboxes"]

_DEPOSIT = 10_000  # letters in a message
_TRACE_RETRY, _TRACE_WAIT = 0.25, 3.0  # seconds

T = TypeVar("T")


class DepositResult(NamedTuple):
    """How many letters of a deposit were new and are stored, and how many were dropped as duplicates."""

    accepted: int
    duplicates: int


class PulledMailboxes(NamedTuple):
    """What was pulled from each mailbox, or why not, and how many letters were acknowledged in all."""

    outcomes: tuple[Pulled | RoamcastError, ...]
    acknowledged: int


class MailboxService:
    """Serves mailboxes by their subscribers' full names. Belongs to one event loop, except for `deposit`, which is
    thread-safe, and `erase`, which blocks.
    """

    def __init__(self, actor: OfficeActor, names: SubscriberNames, waiters: Waiters, limits: NodeLimits) -> None:
        self._actor = actor
        self._names = names
        self._waiters = waiters
        self._limits = limits
        self._rng = Random()  # noqa: S311 - for fairness between mailboxes
        self._tracing: dict[str, asyncio.Future[TraceReply]] = {}
        self.expired = 0
        """Letters that were not delivered because their time to live had passed."""

    async def register(self, id: str) -> None:
        """Open a mailbox. Raises ConflictError for a removed subscriber."""
        await await_to_the_end(self._actor.tell(Register(self._names.of(id))))

    async def remove(self, id: str) -> None:
        """Remove a mailbox for good. Raises ElsewhereError while another office has it."""
        await await_to_the_end(self._actor.tell(Remove(self._names.of(id))))

    async def pull(self, name: str, limit: int, after: int) -> Pulled:
        """The letters after offset `after`, as many as fit a response, at least one if there is any.

        Raises ElsewhereError.
        """
        pull = Pull(name, limit, after, self._limits.pull_bytes)
        pulled = cast(Pulled, await await_to_the_end(self._actor.tell(pull)))
        self.expired += pulled.expired
        return pulled

    async def pull_waiting(self, name: str, limit: int, after: int, wait: float) -> Pulled:
        """As `pull`; if there is nothing, wait up to `wait` seconds for the first letter."""
        return await self._poll(
            [name], wait, lambda: self.pull(name, limit, after), lambda pulled: bool(pulled.letters)
        )

    async def pull_many(self, pulls: Sequence[MailboxPull], wait: float = 0.0) -> PulledMailboxes:
        """Acknowledge and pull many mailboxes, in one transaction.

        If there is neither a letter nor an error, wait up to `wait` seconds for the first letter.
        """
        if not pulls:
            return PulledMailboxes((), 0)
        acknowledged = 0

        async def pull() -> tuple[Pulled | RoamcastError, ...]:
            nonlocal acknowledged
            request = PullMany(tuple(pulls), self._limits.pull_bytes, self._rng.randrange(len(pulls)))
            done = cast(PulledMany, await await_to_the_end(self._actor.tell(request)))
            for outcome in done.outcomes:
                if isinstance(outcome, Pulled):
                    acknowledged += outcome.acknowledged
                    self.expired += outcome.expired
            return done.outcomes

        names = [each.name for each in pulls] if wait else []
        outcomes = await self._poll(names, wait, pull, lambda outcomes: any(map(_is_news, outcomes)))
        return PulledMailboxes(outcomes, acknowledged)

    async def acknowledge(self, name: str, through: int) -> int:
        """Delete letters up to offset `through`; returns how many were deleted."""
        done = cast(Acknowledged, await await_to_the_end(self._actor.tell(Acknowledge(name, through))))
        return done.count

    async def send(self, message: SendLetter) -> LetterSent:
        return cast(LetterSent, await await_to_the_end(self._actor.tell(message)))

    async def send_all(self, messages: Sequence[SendLetter]) -> tuple[LetterSent | RoamcastError, ...]:
        """Send several letters. Each is accepted or refused on its own."""
        done = cast(LettersSent, await await_to_the_end(self._actor.tell(SendLetters(tuple(messages)))))
        return done.outcomes

    async def last_sent(self, sender: str, receiver: str) -> int:
        """The number of the last letter, 0 for none. Raises ElsewhereError unless the sender is served here."""

        def read(store: OfficeStore) -> int | ElsewhereError:
            tenure = store.tenures((sender,)).get(sender)
            if tenure is not None and tenure.active:
                return store.last_sent(sender, (receiver,))[receiver]
            stored = store.last_known(sender)
            return elsewhere_error(sender, stored.office if stored else None, stored.epoch if stored else 0)

        answer = await await_to_the_end(self._actor.query(read))
        if isinstance(answer, ElsewhereError):
            raise answer
        return answer

    async def trace(self, receiver: str, sender: str, number: int) -> TraceReply:
        """What became of a letter. Raises NotFoundError if it was never sent, UnavailableError if no office reports
        it in time.
        """
        with suppress(ElsewhereError):  # another office knows what the sender has sent
            if number > (last := await self.last_sent(sender, receiver)):
                hint = f"the last one has number {last}" if last else "nothing was sent to this receiver"
                raise NotFoundError("no letter with this number was sent", where=receiver, hint=hint)
        loop = asyncio.get_running_loop()
        ticket = new_token()
        answer: asyncio.Future[TraceReply] = loop.create_future()
        self._tracing[ticket] = answer
        end, pause = loop.time() + _TRACE_WAIT, _TRACE_RETRY
        try:
            while loop.time() < end:
                await await_to_the_end(self._actor.tell(TraceLetter(ticket, receiver, sender, number)))
                done, _ = await asyncio.wait([answer], timeout=min(pause, max(0.0, end - loop.time())))
                if done:
                    return answer.result()
                pause *= 2
        finally:
            del self._tracing[ticket]
        raise UnavailableError("no office has reported on this letter yet", where=receiver, hint="try again later")

    def resolve_trace(self, reply: TraceReply) -> None:
        answer = self._tracing.get(reply.ticket)
        if answer is not None and not answer.done():
            answer.set_result(reply)

    def deposit(self, letters: Sequence[Letter]) -> Callable[[], DepositResult]:
        """Begin to store letters of the pipeline.

        The returned function waits until they are durable, or raises StorageError. Many letters are stored in several
        transactions, one after the other, and what others request meanwhile comes in between.
        """
        parts = [Deposit(tuple(letters[at : at + _DEPOSIT])) for at in range(0, len(letters), _DEPOSIT)]
        first = [self._actor.tell(part) for part in parts[:1]]

        def wait() -> DepositResult:
            done = [cast(Deposited, future.result()) for future in first]
            done += [cast(Deposited, self._actor.tell(part).result()) for part in parts[1:]]
            duplicates = sum(each.duplicates for each in done)
            return DepositResult(sum(each.accepted + each.queued for each in done) - duplicates, duplicates)

        return wait

    def erase(self, receivers: Iterable[str]) -> None:
        """Remove the mailboxes of removed subscribers. Idempotent. Raises StorageError."""
        for removed in [self._actor.tell(Remove(self._names.of(id))) for id in receivers]:
            removed.result()

    async def _poll(
        self, names: Collection[str], wait: float, pull: Callable[[], Awaitable[T]], is_enough: Callable[[T], bool]
    ) -> T:
        """Pull; while that is not enough, pull again when there are letters to one of `names`, for `wait` seconds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + wait
        with self._waiters.waiting(*names) as event:
            while True:
                event.clear()
                pulled = await pull()
                left = end - loop.time()
                if is_enough(pulled) or left <= 0 or self._waiters.stopped or not await wait_for(event, left):
                    return pulled


def _is_news(outcome: Pulled | RoamcastError) -> bool:
    return isinstance(outcome, RoamcastError) or bool(outcome.letters)
