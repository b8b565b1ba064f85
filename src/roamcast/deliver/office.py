"""A post office as a state machine: takes inputs, returns effects. It has no clock, thread, socket or random source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roamcast.deliver.address_book import AddressBook
from roamcast.deliver.context import OfficeContext, OfficeLimits
from roamcast.deliver.filing import Filing
from roamcast.deliver.messages import (
    AddressUpdate,
    AddressUpdateReceipt,
    BundleReceipt,
    ChunkReceipt,
    LetterBundle,
    LocationQuery,
    LocationReply,
    MailboxChunk,
    MailboxClaim,
    OfficeEffect,
    OfficeInput,
    ScheduleWork,
    TraceQuery,
    WorkDue,
)
from roamcast.deliver.migration import Migration
from roamcast.deliver.port import OfficeStore, PendingWork, WorkKind
from roamcast.deliver.posting import Posting
from roamcast.deliver.requests import (
    Acknowledge,
    Arrive,
    Deposit,
    Pull,
    PullMany,
    Register,
    Remove,
    SendLetter,
    SendLetters,
    TraceLetter,
    TraceReply,
)
from roamcast.deliver.tracing import Tracing
from roamcast.errors import RoamcastError, StorageError

__all__ = ["Office", "OfficeParts"]


@dataclass(frozen=True, slots=True)
class OfficeParts:
    """The classes an office is built from. Fault simulations replace some of them."""

    address_book: type[AddressBook] = AddressBook
    filing: type[Filing] = Filing
    posting: type[Posting] = Posting
    migration: type[Migration] = Migration


class Office:
    """The post office of one domain.

    All durable state is in the store. In memory there are only retry counters and hints where subscribers might be: a
    new Office on the same store, after `recover`, continues all unfinished work.

    A request that cannot be granted raises a RoamcastError and changes nothing. Messages of other offices may be
    delayed, repeated, reordered or lost.
    """

    def __init__(
        self, domain: str, store: OfficeStore, limits: OfficeLimits | None = None, parts: OfficeParts | None = None
    ) -> None:
        limits, parts = limits or OfficeLimits(), parts or OfficeParts()
        self._context = OfficeContext(domain, store, limits)
        self._address_book = parts.address_book(self._context)
        self._filing = parts.filing(self._context)
        self._posting = parts.posting(self._context, self._address_book, self._filing)
        self._migration = parts.migration(self._context, self._address_book, self._posting)
        self._tracing = Tracing(self._context, self._address_book)

    @property
    def domain(self) -> str:
        return self._context.domain

    def handle(self, input: OfficeInput, now: int) -> list[OfficeEffect]:
        """Handle one input in its own transaction. It is durable when this returns; only then carry out the effects.

        `now` is the time of day, used for time to live; it may jump. Raises StorageError; then nothing has changed,
        and a message of another office can be treated as lost.
        """
        (outcome,) = self.handle_all([input], now)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def handle_all(self, inputs: Sequence[OfficeInput], now: int) -> list[list[OfficeEffect] | Exception]:
        """Handle many inputs in one transaction (group commit). Returns the effects or the error of each.

        Carry out no effect before this returns. An input that the store rejects fails alone; if the disk fails, all
        fail.
        """
        try:
            with self._context.store.transaction():
                return [self._outcome(input, now) for input in inputs]
        except Exception as error:
            self._context.attempts.clear()
            if len(inputs) == 1 or isinstance(error, StorageError):
                return [self._reschedule(input, error) for input in inputs]
        return [self.handle_all([input], now)[0] for input in inputs]

    def recover(self) -> list[OfficeEffect]:
        """Schedule all unfinished work. Call this at every start. Random delays avoid a burst of messages."""
        with self._context.store.transaction():
            pending = self._context.store.pending_work()
        return [ScheduleWork(work, 0, self._context.limits.first_retry) for work in pending]

    def _outcome(self, input: OfficeInput, now: int) -> list[OfficeEffect] | Exception:
        self._context.now = now
        self._context.effects = []
        try:
            self._dispatch(input)
        except StorageError:
            raise
        except RoamcastError as error:
            return self._reschedule(input, error)
        return self._context.effects

    def _reschedule(self, input: OfficeInput, error: Exception) -> list[OfficeEffect] | Exception:
        """Schedule failed work again. Other inputs are repeated by their senders."""
        if not isinstance(input, WorkDue):
            return error
        self._context.effects = []
        self._context.retry_later(input.work)
        return self._context.effects

    def _dispatch(self, input: OfficeInput) -> None:
        match input:
            case LetterBundle():
                self._posting.on_letter_bundle(input)
            case BundleReceipt():
                self._posting.on_bundle_receipt(input)
            case Pull():
                self._filing.pull(input)
            case Acknowledge(name):
                self._filing.acknowledge(input)
                self._use_room((name,))
            case PullMany(pulls):
                acknowledged = self._filing.acknowledge_many(input)
                outcomes = zip(pulls, acknowledged, strict=True)
                self._use_room([pull.name for pull, count in outcomes if pull.through and isinstance(count, int)])
                self._filing.pull_many(input, acknowledged)
            case SendLetter():
                self._posting.send(input)
            case SendLetters():
                self._posting.send_all(input)
            case Deposit():
                self._posting.deposit(input)
            case WorkDue(work):
                self._on_work_due(work)
            case MailboxChunk():
                self._migration.on_chunk(input)
            case ChunkReceipt():
                self._migration.on_chunk_receipt(input)
            case Arrive():
                self._migration.arrive(input)
            case MailboxClaim():
                self._migration.on_claim(input)
            case AddressUpdate():
                self._address_book.on_address_update(input)
            case AddressUpdateReceipt():
                self._address_book.on_address_update_receipt(input)
            case LocationQuery():
                self._address_book.on_location_query(input)
            case LocationReply():
                self._on_location_reply(input)
            case Register():
                self._migration.register(input)
            case Remove():
                self._migration.remove(input)
            case TraceLetter():
                self._tracing.trace(input)
            case TraceQuery():
                self._tracing.on_trace_query(input)
            case TraceReply():
                self._context.emit(input)

    def _use_room(self, names: Iterable[str]) -> None:
        """Letters were acknowledged: file those that were queued because a mailbox was full."""
        for name in names:
            if self._context.is_scheduled(PendingWork(WorkKind.POST, name)):
                self._posting.post_next(name)

    def _on_location_reply(self, message: LocationReply) -> None:
        name = message.name
        is_posting = self._context.is_scheduled(PendingWork(WorkKind.POST, name))
        if not is_posting and not self._context.is_scheduled(PendingWork(WorkKind.CLAIM, name)):
            return  # nobody waits for this any more
        is_new = self._address_book.learn(name, message.office, message.epoch)
        self._migration.on_location_reply(message, is_new=is_new)
        if is_posting and is_new:
            self._posting.post_next(name)

    def _on_work_due(self, work: PendingWork) -> None:
        kind, name = work
        match kind:
            case WorkKind.POST:
                self._posting.post_next(name, unanswered=True)
            case WorkKind.NOTIFY:
                self._address_book.retry_notify(name)
            case WorkKind.CLAIM:
                self._migration.send_claim(name, unanswered=True)
            case WorkKind.HAND_OVER:
                self._migration.hand_over(name)
