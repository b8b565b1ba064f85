"""A post office: messages in, effects out. No clock, thread, socket or random source of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from roamcast.deliver.address_book import Directory
from roamcast.deliver.context import Desk, Rules
from roamcast.deliver.filing import Clerk
from roamcast.deliver.messages import (
    Acknowledge,
    Arrive,
    Claim,
    Deposit,
    Due,
    Effect,
    Inquiry,
    Located,
    Message,
    Moved,
    Noted,
    Portion,
    PortionTaken,
    Post,
    Posted,
    Pull,
    Query,
    Register,
    Remove,
    Send,
    SendAll,
    Trace,
    Traced,
    Wake,
)
from roamcast.deliver.migration import Migration
from roamcast.deliver.pending_work import Duty, Kind
from roamcast.deliver.port import OfficeStore
from roamcast.deliver.posting import Posting
from roamcast.deliver.tracing import Tracing
from roamcast.errors import RoamcastError, StorageError

__all__ = ["Office", "Parts"]


@dataclass(frozen=True, slots=True)
class Parts:
    """What an office is made of."""

    directory: type[Directory] = Directory
    clerk: type[Clerk] = Clerk
    posting: type[Posting] = Posting
    migration: type[Migration] = Migration


class Office:
    """The post office of one domain.

    Everything it must not forget is in the store. What it has in memory besides is only how often something was tried
    and where others might be: a new Office on the same store, after `recover`, goes on with all that was unfinished.

    A request that cannot be granted raises a RoamcastError and changes nothing. Messages of other offices may come
    late, twice, out of order or not at all.
    """

    def __init__(self, domain: str, store: OfficeStore, rules: Rules | None = None, parts: Parts | None = None) -> None:
        rules, parts = rules or Rules(), parts or Parts()
        self._desk = Desk(domain, store, rules)
        self._directory = parts.directory(self._desk)
        self._clerk = parts.clerk(self._desk)
        self._posting = parts.posting(self._desk, self._directory, self._clerk)
        self._migration = parts.migration(self._desk, self._directory, self._posting)
        self._tracing = Tracing(self._desk, self._directory)

    @property
    def domain(self) -> str:
        return self._desk.domain

    def handle(self, message: Message, now: int) -> list[Effect]:
        """One message in a transaction of its own, which is on disk when this returns: only then may effects leave.

        `now` is the time of day, for time to live; it may jump. Raises StorageError when the disk refuses; then nothing
        has changed, and a message of another office may be taken as lost.
        """
        (outcome,) = self.handle_all([message], now)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def handle_all(self, messages: Sequence[Message], now: int) -> list[list[Effect] | Exception]:
        """Many messages in one transaction (group commit), each with its effects or why it failed.

        No effect of any may leave before this returns. A message that the store cannot take fails alone; when the disk
        refuses, all do.
        """
        try:
            with self._desk.store.transaction():
                return [self._outcome(message, now) for message in messages]
        except Exception as error:
            self._desk.tries.clear()
            if len(messages) == 1 or isinstance(error, StorageError):
                return [self._again(message, error) for message in messages]
        return [self.handle_all([message], now)[0] for message in messages]

    def recover(self) -> list[Effect]:
        """At every start: what is unfinished goes on soon, a little apart so that the others are not overrun."""
        with self._desk.store.transaction():
            duties = self._desk.store.duties()
        return [Wake(duty, 0, self._desk.rules.first_wait) for duty in duties]

    def _outcome(self, message: Message, now: int) -> list[Effect] | Exception:
        self._desk.now = now
        self._desk.effects = []
        try:
            self._apply(message)
        except StorageError:
            raise
        except RoamcastError as error:
            return self._again(message, error)
        return self._desk.effects

    def _again(self, message: Message, error: Exception) -> list[Effect] | Exception:
        """Whatever else is lost comes again of itself; what is due must be made due again."""
        if not isinstance(message, Due):
            return error
        self._desk.effects = []
        self._desk.wake(message.duty)
        return self._desk.effects

    def _apply(self, message: Message) -> None:
        match message:
            case Post():
                self._posting.post(message)
            case Posted():
                self._posting.posted(message)
            case Pull():
                self._clerk.pull(message)
            case Acknowledge(name):
                self._clerk.acknowledge(message)
                if Duty(Kind.POST, name) in self._desk.tries:
                    self._posting.go_on(name)  # there may be room now for what waits here
            case Send():
                self._posting.send(message)
            case SendAll():
                self._posting.send_all(message)
            case Deposit():
                self._posting.deposit(message)
            case Due(duty):
                self._due(duty)
            case Portion():
                self._migration.portion(message)
            case PortionTaken():
                self._migration.portion_taken(message)
            case Arrive():
                self._migration.arrive(message)
            case Claim():
                self._migration.claim(message)
            case Moved():
                self._directory.moved(message)
            case Noted():
                self._directory.noted(message)
            case Query():
                self._directory.query(message)
            case Located():
                self._located(message)
            case Register():
                self._migration.register(message)
            case Remove():
                self._migration.remove(message)
            case Trace():
                self._tracing.trace(message)
            case Inquiry():
                self._tracing.inquiry(message)
            case Traced():
                self._tracing.traced(message)

    def _located(self, message: Located) -> None:
        name = message.name
        post = Duty(Kind.POST, name) in self._desk.tries
        if not post and Duty(Kind.CLAIM, name) not in self._desk.tries:
            return  # an answer to a question that is no longer open
        news = self._directory.learn(name, message.office, message.epoch)
        self._migration.located(message, news=news)
        if post and news:
            self._posting.go_on(name)

    def _due(self, duty: Duty) -> None:
        kind, name = duty
        match kind:
            case Kind.POST:
                self._posting.go_on(name, unanswered=True)
            case Kind.TELL:
                self._directory.go_on_telling(name)
            case Kind.CLAIM:
                self._migration.go_on_claiming(name, unanswered=True)
            case Kind.HAND:
                self._migration.hand_over(name)
